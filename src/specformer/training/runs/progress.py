r"""Telling whoever waits how far a long job is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


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
