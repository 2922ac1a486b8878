"""Folders that one process at a time works in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from specformer.files.atomic import make_folder


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Lock a folder, made if need be; False where another process has it.

    The system lets go of it when the process ends, however it does. True also where a system or a
    network disk has no locks.
    """
    make_folder(folder)
    if sys.platform == "win32":  # no such locks
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        free = True
        with suppress(OSError):
            free = _taken(handle)
        yield free
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    """Take an open folder; False where another process has."""
    import fcntl  # not on every system

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
