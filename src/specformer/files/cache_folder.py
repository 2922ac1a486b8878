"""Where files go that are kept for next time."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def user_cache(kind: str) -> Path:
    """The folder for a kind of files, spectra or data, in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # in a container, say, whose user has no name
        why = f"there is no home folder for {kind}; set XDG_CACHE_HOME to a folder of yours"
        raise OSError(errno.ENOENT, why) from None
    return folder / "specformer" / kind
