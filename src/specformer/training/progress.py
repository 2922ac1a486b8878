r"""Telling whoever waits how far a long job is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

#: Called with steps done and a figure worth showing, such as the mean loss.
Update = Callable[[int, float], None]


class Progress(Protocol):
    """Something that can show stages of work."""

    def stage(self, label: str, total: int, unit: str) -> AbstractContextManager[Update]:
        """A stage of ``total`` steps; ``unit`` names the figure that comes with each update."""
        ...


class Silent:
    """Shows nothing."""

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:  # noqa: ARG002
        yield lambda _done, _figure: None
