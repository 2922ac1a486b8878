r"""Where data files are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from specformer.errors import DataNotFoundError
from specformer.files import user_cache

#: Names a folder that is searched after an explicit one.
VARIABLE = "SPECFORMER_DATA"


def download_folder() -> Path:
    """Where downloaded sets are kept: ``specformer/data`` in the user's cache."""
    return user_cache("data")


def data_folders(explicit: str | Path | None = None) -> list[Path]:
    """Folders searched, in order.

    An explicit one, ``$SPECFORMER_DATA``, ``./data``, ``../shared/data``, the downloads. The
    explicit one has to be there.
    """
    if explicit and not Path(explicit).is_dir():
        raise DataNotFoundError(f"{explicit}: no such folder of data.")
    named = [Path(folder) for folder in (explicit, os.environ.get(VARIABLE)) if folder]
    return [*named, Path("data"), Path("..") / "shared" / "data", download_folder()]


def search(name: str, explicit: str | Path | None = None) -> Path | None:
    """The first file of that name in the folders searched, or None."""
    paths = (folder / name for folder in data_folders(explicit))
    return next((path for path in paths if path.is_file()), None)


def find_file(name: str, explicit: str | Path | None = None) -> Path:
    """The first file of that name, or an error that lists where it was looked for."""
    path = search(name, explicit)
    if path is None:
        raise not_found(name, explicit)
    return path


def not_found(
    name: str, explicit: str | Path | None = None, why: str | None = None
) -> DataNotFoundError:
    """The error for a file that is in none of the folders; ``why`` it could not be got either.

    Example:
        >>> str(not_found("a.npz", why="it is not public")).partition(" was ")[0]
        'a.npz'
    """
    searched = ", ".join(str(folder) for folder in data_folders(explicit))
    also = f", and {why}" if why else ""
    return DataNotFoundError(
        f"{name} was not found in {searched}{also}; name its folder with --data or ${VARIABLE}."
    )
