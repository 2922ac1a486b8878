r"""Where data files are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from specformer.errors import DataNotFoundError

#: Names a folder that is searched after an explicit one.
VARIABLE = "SPECFORMER_DATA"


def data_folders(explicit: str | Path | None = None) -> list[Path]:
    """Folders searched, in order.

    An explicit one, ``$SPECFORMER_DATA``, ``./data``, ``../shared/data``.
    """
    named = [explicit, os.environ.get(VARIABLE)]
    return [Path(folder) for folder in (*named, "data", Path("..") / "shared" / "data") if folder]


def find_file(name: str, explicit: str | Path | None = None) -> Path:
    """The first file of that name, or an error that lists where it was looked for."""
    folders = data_folders(explicit)
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    searched = ", ".join(str(folder) for folder in folders)
    raise DataNotFoundError(
        f"{name} was not found in {searched}; name its folder with --data or ${VARIABLE}."
    )
