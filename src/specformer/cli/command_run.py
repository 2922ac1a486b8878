"""The run of a command: its folder, its end, and how to continue it after a stop."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from specformer.cli.output import echo
from specformer.errors import SpecformerError

if TYPE_CHECKING:
    import numpy as np

    from specformer.cli.options import Shared
    from specformer.tasks.job import Workplace
    from specformer.training.runs.folder import RunFolder

#: The parent of run folders by default.
_RUNS = "runs"


class CommandRun:
    """A run whose folder is made once its input is valid, and removed if the run is then refused.

    Args:
        make: makes the folder, and puts its lock against other processes on the stack.
        is_new: whether the folder may be removed.
    """

    def __init__(self, make: Callable[[ExitStack], RunFolder], is_new: bool = True) -> None:
        self.folder: RunFolder | None = None
        self._make, self._is_new, self._held = make, is_new, ExitStack()

    @classmethod
    def new(cls, out: Path | None, name: str, config: dict[str, Any]) -> Self:
        """A run in ``out`` or, without it, in a new folder ``name`` below ``runs/``."""
        from specformer.training.runs.folder import RunFolder

        def make(held: ExitStack) -> RunFolder:
            if out:
                held.enter_context(RunFolder(out).held())
                return RunFolder.create(out, config)
            run = RunFolder.fresh(_RUNS, name, config)
            held.enter_context(run.held())
            return run

        return cls(make)

    def begin(self) -> RunFolder:
        """The folder, made at the first call."""
        if self.folder is None:
            self.folder = self._make(self._held)
        return self.folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self.folder and self._is_new and isinstance(error, SpecformerError):
            self.folder.withdraw()
        self._held.close()


def refuse_taken(out: Path | None) -> None:
    """Refuse a folder that cannot take a run, before any work is done."""
    from specformer.training.runs.folder import RunFolder

    if out:
        RunFolder(out).refuse_taken()
    else:
        RunFolder(_RUNS).refuse_unwritable()


class Made(NamedTuple):
    """What a command made: its run folder, the complete result, the arrays and the report."""

    run: RunFolder
    result: dict[str, Any]
    arrays: Mapping[str, np.ndarray]
    report: Path


def make_run(
    make: Callable[[Workplace, Callable[[], Path]], tuple[dict[str, Any], dict[str, np.ndarray]]],
    config: Mapping[str, Any],
    shared: Shared,
    *,
    kind: str,
    name: str,
    out: Path | None,
    lanes: int = 1,
) -> Made:
    """Make a run folder with a report from the result and the arrays that ``make`` gives.

    ``make`` may begin the folder before its end, to keep checkpoints in it.
    """
    from specformer.reports.html import write_report

    refuse_taken(out)
    config = {
        **config, "seed": shared.seed, "device": str(shared.target), "repeat": repeat_command(),
    }  # fmt: skip
    with CommandRun.new(out, name, config) as command:
        with (
            explaining_resume(lambda: continuing_command(command.folder, out)),
            shared.workplace(told=False, lanes=lanes) as place,
        ):
            result, arrays = make(place, lambda: command.begin().path)
        run = command.begin()
        complete = run.finish(
            kind,
            dict(result),
            dict(arrays),
            command=config["repeat"],
            seed=shared.seed,
            device=shared.target,
        )
        return Made(run, complete, arrays, write_report(run))


#: Options for folders of one machine, and for printing: they do not belong to a repeatable command.
_LOCAL = ("--out", "--data", "--cache")
_PRINTING = ("--quiet", "-q", "--json")


def repeat_command() -> str:
    """The current command, in the form that repeats it anywhere."""
    return portable_command(sys.argv[1:])


def portable_command(arguments: Sequence[str]) -> str:
    """The command line that repeats a run anywhere."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        local = argument.partition("=")[0] in _LOCAL
        if not skip and not local and argument not in _PRINTING:
            kept.append(argument)
        skip = local and "=" not in argument
    return shlex.join(["specformer", *kept])


class Ended(SystemExit):
    """A signal asked the process to end; the exit status is 128 plus its number, as in a shell."""


@contextmanager
def explaining_resume(
    command: Callable[[], Sequence[str]], kept: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """If a signal stops the work, say how to continue it, or to start over if nothing was kept.

    Says nothing if ``command`` returns no words.
    """
    try:
        yield
    except (KeyboardInterrupt, Ended):
        if words := command():
            how = "Go on with" if kept() else "Nothing was kept yet; start over with"
            echo(f"Stopped. {how}: {shlex.join(['specformer', *words])}", err=True)
        raise


def continuing_command(run: RunFolder | None, out: Path | None) -> list[str]:
    """The words of this command that continue its run; none if it has not begun."""
    if run is None:
        return []
    return [*sys.argv[1:], *([] if out else ["--out", str(run.path)])]
