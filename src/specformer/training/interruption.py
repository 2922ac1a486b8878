r"""Signals that ask a training to end, heard between two epochs, so that the last is not lost."""

from __future__ import annotations

import signal
import time
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any, Self

#: Whoever presses Ctrl-C waits no longer than about this many seconds for an epoch to end.
_PATIENCE = 5.0


class Interruption:
    """Within it, a signal that would end the process waits until the epoch at hand is done.

    :attr:`asked` says so then, what the epoch gave can be saved, and :meth:`let_through` hands the
    signal on. Where epochs take longer than a few seconds, or with the second signal, it ends
    the process at once. Signals that are ignored, or that nobody handles, stay as they are.

    Example:
        >>> with Interruption() as interruption:
        ...     for epoch in range(3):
        ...         interruption.begin_epoch()
        ...         if interruption.asked:
        ...             print("saved")
        ...         interruption.let_through()
    """

    def __init__(self, active: bool = True) -> None:
        self._active = active and current_thread() is main_thread()
        self._usual: dict[int, Any] = {}
        self._heard: int | None = None
        self._began: float | None = None
        self._took: float | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal waits."""
        return self._heard is not None

    def begin_epoch(self) -> None:
        """The next epoch begins; how long the last one took tells what to expect."""
        now = time.monotonic()
        if self._began is not None:
            self._took = now - self._began
        self._began = now

    def let_through(self) -> None:
        """Hand a signal that waits on to its usual handler, which as a rule ends the process."""
        if (number := self._heard) is not None:
            self._heard = None
            self._usual[number](number, None)

    def __enter__(self) -> Self:
        names = ("SIGINT", "SIGTERM", "SIGHUP") if self._active else ()
        for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
            if callable(usual := signal.getsignal(number)):
                self._usual[number] = usual
                signal.signal(number, self._hear)
        return self

    def _hear(self, number: int, frame: FrameType | None) -> None:
        short = self._took is not None and self._took <= _PATIENCE
        if short and self._heard is None:
            self._heard = number
        else:
            self._heard = None
            self._usual[number](number, frame)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, usual in self._usual.items():
            if signal.getsignal(number) == self._hear:  # and not what the usual one has set
                signal.signal(number, usual)
        if kind is None:
            self.let_through()
