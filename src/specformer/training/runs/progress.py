r"""How far a long job is: on screen, in ``metrics.jsonl`` and in TensorBoard (extra ``track``)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from specformer.errors import ConfigError
from specformer.training.runs.folder import RunFolder


class Update(Protocol):
    """Called with steps done, a figure worth showing, and perhaps others by name."""

    def __call__(self, done: int, figure: float, **others: float) -> None: ...


class Progress(Protocol):
    """Something that can show stages of work."""

    def stage(self, label: str, total: int, unit: str) -> AbstractContextManager[Update]:
        """A stage of ``total`` steps; ``unit`` names the figure that comes with each update."""
        ...

    def say(self, text: str) -> None:
        """Show a text that stays."""
        ...


class Silent:
    """Shows nothing."""

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:  # noqa: ARG002
        yield lambda done, figure, **others: None  # noqa: ARG005

    def say(self, text: str) -> None:
        pass


class Recorded:
    """Shows progress as another object does, and appends each figure to ``metrics.jsonl``.

    A finished run replaces these lines. ``run`` gives the present run's folder; while it gives
    None, nothing is written.
    """

    def __init__(self, shown: Progress, run: Callable[[], RunFolder | None]) -> None:
        self._shown = shown
        self._run = run

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:
        with self._shown.stage(label, total, unit) as show:

            def update(done: int, figure: float, **others: float) -> None:
                show(done, figure, **others)
                if run := self._run():
                    run.append_metrics({"of": label, "epoch": done, unit: figure, **others})

            yield update

    def say(self, text: str) -> None:
        self._shown.say(text)


#: The folder of a run that TensorBoard is pointed at.
EVENTS = "tensorboard"
_LIVE = "live"


def require_tensorboard() -> Any:
    """The class of TensorBoard's writers; ask for it before hours of training."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "--tensorboard needs TensorBoard: pip install 'specformer[track]'."
        ) from None
    return SummaryWriter


def _add_scalars(writer: Any, step: int, values: Mapping[str, float | None]) -> None:
    """One reading of each name; None, a run that has stopped, is left out."""
    for name, value in values.items():
        if value is not None:
            writer.add_scalar(name, value, step, new_style=True)


class Tracked(Recorded):
    """Shows progress likewise, and writes each figure to ``tensorboard/live``."""

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:
        with self._shown.stage(label, total, unit) as show:
            run = self._run()
            if run is None:
                yield show
                return
            with require_tensorboard()(str(run.path / EVENTS / _LIVE)) as writer:

                def update(done: int, figure: float, **others: float) -> None:
                    show(done, figure, **others)
                    _add_scalars(writer, done, {unit: figure, **others})
                    writer.flush()  # a TensorBoard that is open sees it

                yield update


def track_run(run: RunFolder) -> Path:
    """Write a finished run's readings as events, one subfolder per run so that curves overlay.

    Each of its runs, ``tensorboard/run-000`` and so on, has what ``metrics.jsonl`` holds every ten
    epochs, and the final test result at the last of them. Events of an earlier call are replaced.
    """
    folder = run.path / EVENTS
    for stale in folder.glob("run-*"):
        shutil.rmtree(stale)
    result = run.result()
    final = result.get("test", {}).get("values", [])
    runs = _by_run(run.metrics())
    for number, readings in enumerate(runs):
        with require_tensorboard()(str(folder / f"run-{number:03d}")) as writer:
            last = 0
            for epoch, values in readings:
                _add_scalars(writer, epoch, values)
                last = epoch if any(value is not None for value in values.values()) else last
            if len(final) == len(runs):
                _add_scalars(writer, last, {f"test_{result['metric']}": final[number]})
    return folder


def _by_run(rows: list[dict[str, Any]]) -> list[list[tuple[int, dict[str, float | None]]]]:
    """The rows of ``metrics.jsonl``, lists of figures, as one list of readings per run."""
    runs: list[list[tuple[int, dict[str, float | None]]]] = []
    for row in rows:
        figures = {name: values for name, values in row.items() if isinstance(values, list)}
        count = max((len(values) for values in figures.values()), default=0)
        runs += [[] for _ in range(count - len(runs))]
        for number in range(count):
            reading = {name: values[number] for name, values in figures.items()}
            runs[number].append((int(row["epoch"]), reading))
    return runs
