"""Words for those who wait: what is under way, again and again while no progress is shown."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread

from specformer.cli.options import echo

#: Seconds between two lines.
_EVERY = 1.7


class Waiting:
    """Says every other second what a command is at, but for stages that tell their own progress.

    Packages are imported, files read and reports written in silence otherwise, for seconds each.
    """

    def __init__(self) -> None:
        self._ended, self._stages = Event(), 0
        self._text, self._since = "", time.monotonic()
        self._telling: Thread | None = None

    def begin(self, text: str) -> None:
        """Say what is under way, at once and from now on."""
        echo(text, err=True)
        self._text, self._since = text.rstrip("."), time.monotonic()
        if self._telling is None:
            self._telling = Thread(target=self._tell, daemon=True)
            self._telling.start()

    @contextmanager
    def stage(self) -> Iterator[None]:
        """Be quiet meanwhile; what follows is the next thing to wait for."""
        self._stages += 1
        try:
            yield
        finally:
            self._stages -= 1
            self._text, self._since = "Going on", time.monotonic()

    def end(self) -> None:
        """Say no more."""
        self._ended.set()
        if self._telling is not None:
            self._telling.join()

    def _tell(self) -> None:
        while not self._ended.wait(_EVERY):
            elapsed = time.monotonic() - self._since
            if not self._stages and elapsed > _EVERY / 2:
                echo(f"{time.strftime('%H:%M:%S')} {self._text} · {elapsed:.0f} s", err=True)


_WAITING: ContextVar[Waiting | None] = ContextVar("waiting", default=None)


@contextmanager
def waited_for() -> Iterator[None]:
    """A command, whose waiting ends with it."""
    waiting = Waiting()
    before = _WAITING.set(waiting)
    try:
        yield
    finally:
        waiting.end()
        _WAITING.reset(before)


def first_words(text: str, silent: bool) -> None:
    """Say at once, before heavy packages are imported, what is under way; of workers, the first.

    It is said again while there is nothing else to see.
    """
    waiting = _WAITING.get()
    if waiting is not None and not silent and os.environ.get("RANK", "0") == "0":
        waiting.begin(text)


@contextmanager
def own_progress() -> Iterator[None]:
    """A stage that tells its own progress."""
    waiting = _WAITING.get()
    if waiting is None:
        yield
        return
    with waiting.stage():
        yield
