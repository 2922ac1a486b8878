"""Arrays of an ``.npz`` file: written atomically, read without pickle, errors in one sentence."""

from __future__ import annotations

import logging
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from specformer.errors import GraphError, nearest
from specformer.files import replacing

logger = logging.getLogger(__name__)

#: Errors from reading a file that is damaged or not npz; TypeError comes from an npy file.
DAMAGE = (
    OSError,
    EOFError,
    TypeError,
    ValueError,
    LookupError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name before what is wrong with it."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def read_arrays(
    path: Path, holding: str, required: Sequence[str], known: Collection[str]
) -> dict[str, NDArray[Any]]:
    """Read the arrays with known keys of a file that should hold one graph, or many graphs."""
    if not path.is_file():
        raise GraphError("there is no such file")
    if not os.access(path, os.R_OK):
        raise GraphError("is not readable: check its permissions")
    if not zipfile.is_zipfile(path):
        raise GraphError("is not an npz archive, or not a whole one")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for key in required:
                if key not in archive.files:
                    needs = f"{', '.join(required[:-1])} and {required[-1]}"
                    raise GraphError(f"has no {key!r}; a file of {holding} needs {needs}")
            _warn_of_mistyped(path, archive.files, known)
            return {key: _array(archive, key) for key in archive.files if key in known}
    except DAMAGE as error:
        reason = str(error).partition("\n")[0]
        raise GraphError(f"the file is damaged: {reason}") from None


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write an npz file, whole or not at all."""
    with replacing(path) as part, part.open("wb") as file:  # to a name NumPy would add an ending
        np.savez_compressed(file, **arrays)


def _warn_of_mistyped(path: Path, keys: Sequence[str], known: Collection[str]) -> None:
    """Warn of unknown keys that look like a missing one."""
    for key in keys:
        meant = None if key in known else nearest(key, known, alike=0.8)
        if meant is not None and meant not in keys:
            logger.warning("%s: the key %r is left alone; did you mean %r?", path, key, meant)


def texts(array: NDArray[Any], name: str) -> tuple[str, ...]:
    """Return a row of strings as a tuple.

    Example:
        >>> texts(np.array(["a", "b"]), "names")
        ('a', 'b')
    """
    if array.ndim != 1 or array.dtype.kind != "U":
        raise GraphError(f"{name} must be a row of strings, not {array.dtype} {list(array.shape)}")
    return tuple(array.tolist())


def _array(archive: NpzFile, key: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = archive[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise GraphError(f"{key} holds pickled Python objects, which are not loaded") from None
    return array
