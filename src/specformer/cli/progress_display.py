r"""Progress of long jobs on standard error: live lines on a terminal, log lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from specformer.cli.output import EVERY, clear_line, printable, since_heartbeat, without_heartbeat
from specformer.errors import SpecformerError
from specformer.training.runs.progress import Progress, Silent, Update

#: Updates that the time left is estimated from.
_RECENT = 100
#: Least characters of a bar with text beside it, and most.
_SHORT_BAR, _LONG_BAR = 5, 40


@contextmanager
def progress_bars(silent: bool) -> Iterator[Progress]:
    """Progress on standard error; nothing if silent."""
    console = Console(stderr=True)
    if silent:
        yield Silent()
    elif console.is_terminal and not console.is_dumb_terminal:
        yield _Live(console)
    else:
        yield _Logged()


class _Stage:
    """The state of a stage."""

    def __init__(self, label: str, total: int, unit: str) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done, self.figures = 0, ""
        self._started = time.monotonic()
        #: The last updates: runs that continue from checkpoints do not begin at 0.
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT)

    def update(self, done: int, figure: float, **others: float) -> None:
        self.done = done
        self._recent.append((done, time.monotonic()))
        shown = {self.unit: figure, **others}
        self.figures = " · ".join(
            f"{name.replace('_', ' ')} {value:.3g}".strip() for name, value in shown.items()
        )

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    @property
    def count(self) -> str:
        """Steps done, and most steps to do; empty for a single step."""
        return f"{self.done:,}/{self.total:,}" if self.total > 1 else ""

    def times(self, ended: bool) -> str:
        """The time so far and, estimated from the last steps, the most time left."""
        if ended or not self._recent or self.done <= self._recent[0][0]:
            return clock(self.elapsed)
        (before, began), (_, last) = self._recent[0], self._recent[-1]
        pace = (last - began) / (self.done - before)
        left = pace * (self.total - self.done) - (time.monotonic() - last)
        if left <= 0 and self.done < self.total:  # slower than before: no estimate
            return clock(self.elapsed)
        return f"{clock(self.elapsed)}, at most {clock(max(0.0, left))} left"


def clock(seconds: float) -> str:
    """A time as minutes and seconds, or as hours, minutes and seconds.

    Example:
        >>> clock(5.4), clock(3725)
        ('0:05', '1:02:05')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def laid_out(
    label: str, count: str, figures: str, times: str, width: int
) -> list[tuple[str, int, str]]:
    """Rows of text, the width of a bar, and text; as few rows as fit into ``width``.

    Example:
        >>> laid_out("mine", "3/9", "loss 0.5", "0:05", 80)
        [('mine', 40, '3/9 · loss 0.5 · 0:05')]
        >>> laid_out("mine", "3/9", "loss 0.5", "0:05", 24)
        [('mine', 8, '3/9 · 0:05'), ('  loss 0.5', 0, '')]
    """

    def joined(*parts: str) -> str:
        return " · ".join(part for part in parts if part)

    shortest = _SHORT_BAR if count else 1  # a dot
    short = joined(count, times)
    layouts = (
        [(label, joined(count, figures, times))],
        [(label, short), (f"  {figures}", "")],
        [(label, ""), ("", short), (f"  {figures}", "")],
    )
    for rows in layouts:
        fits = all(len(left) + len(right) + shortest + 2 <= width for left, right in rows[:1])
        if fits and all(len(left) + len(right) + 2 <= width for left, right in rows[1:]):
            break
    barred = next(number for number, (_, right) in enumerate(rows) if right)
    found = []
    for number, (left, right) in enumerate(rows):
        room = width - len(left) - len(right) - 2
        bar = max(0, min(_LONG_BAR, room)) if count and number == barred else 0
        if left.strip() or right:
            found.append((left, bar, right))
    return found


@contextmanager
def _running(stage: _Stage, end: Callable[[bool], None]) -> Iterator[Update]:
    """Run a stage; ``end`` is called with whether it is worth a last line.

    It is not if an error refused it before its first step.
    """
    has_line = True
    try:
        with without_heartbeat():
            yield stage.update
    except SpecformerError:
        has_line = bool(stage.done)
        raise
    finally:
        end(has_line)


class _Live:
    """Stages in progress at the bottom of a terminal; ended ones stay above."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open: list[_Stage] = []
        self._live = Live(
            console=console, get_renderable=self._drawn, refresh_per_second=5, transient=True
        )

    def say(self, text: str) -> None:
        clear_line()
        self._console.print(printable(text), markup=False, highlight=False)

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:
        stage = _Stage(label, total, unit)
        self._open.append(stage)
        if len(self._open) == 1:
            self._live.start()

        def end(has_line: bool) -> None:
            self._open.remove(stage)
            if not self._open:
                self._live.stop()
            if has_line:
                self._console.print(self._lines(stage, ended=True))

        with _running(stage, end) as update:
            yield update

    def _drawn(self) -> RenderableType:
        return Group(*(self._lines(stage) for stage in self._open))

    def _lines(self, stage: _Stage, ended: bool = False) -> Text:
        ascii_only = self._console.options.ascii_only
        full, empty = ("#", "-") if ascii_only else ("━", "─")
        share = 1.0 if ended else min(1.0, stage.done / max(1, stage.total))
        shown = Text()
        rows = laid_out(
            stage.label, stage.count, stage.figures, stage.times(ended), self._console.width
        )
        for number, (left, bar, right) in enumerate(rows):
            filled = round(share * bar)
            shown.append("\n" if number else "").append(left)
            if bar:
                shown.append(" " if left else "")
                shown.append(full * filled, "green" if ended else "cyan")
                shown.append(empty * (bar - filled), "dim")
            between = " " if bar else " · " if left else ""
            shown.append(f"{between}{right}" if right else "")
        return shown


class _Logged:
    """Lines with the time of day, every other second, for files and pipes."""

    def say(self, text: str) -> None:
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:
        stage, ended = _Stage(label, total, unit), Event()

        def told(last: bool = False) -> None:
            parts = (label, stage.count, stage.figures, stage.times(last))
            self.say(f"{time.strftime('%H:%M:%S')} {' · '.join(filter(None, parts))}")

        first = max(EVERY / 10, EVERY - since_heartbeat())  # counted from the last heartbeat

        def tell() -> None:
            wait = first
            while not ended.wait(wait):
                told()
                wait = EVERY

        # In a thread, because a single long step, such as a decomposition, has no updates.
        telling = Thread(target=tell, daemon=True)
        telling.start()

        def end(has_line: bool) -> None:
            ended.set()
            telling.join()
            if has_line:
                told(last=True)

        with _running(stage, end) as update:
            yield update
