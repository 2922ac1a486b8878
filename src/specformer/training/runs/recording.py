r"""A run's readings on disk while it trains, so that a stopped run has its curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Progress, Update


class Recorded:
    """Shows progress as another object does, and appends each figure to ``metrics.jsonl``.

    What a finished run writes there replaces these lines.

    Args:
        shown: what else shows it.
        run: gives the run under way; None if it has no folder yet, and then nothing is written.
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
