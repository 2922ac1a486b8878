"""Arrays of an ``.npz`` file, written atomically and read without pickle."""

from __future__ import annotations

import logging
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError, nearest
from specformer.files import replacing
from specformer.files.host_memory import free_bytes, gib, raised

logger = logging.getLogger(__name__)

#: Errors from reading a file that is damaged or not npz; TypeError comes from an npy file.
DAMAGE = (
    OSError, EOFError, SyntaxError, TypeError, ValueError, LookupError, RuntimeError,
    struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_PICKLED = "holds pickled Python objects, which are not loaded"
#: The end record of a zip archive: its signature and size.
_END, _END_SIZE = b"PK\x05\x06", 22


def load_arrays(
    path: Path, chosen: Callable[[list[str]], Iterable[str]] = iter
) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file, or those ``chosen`` from its names.

    A damaged file raises an error of :data:`DAMAGE`. NumPy does not check its directory, of which
    one damaged byte can hide the arrays after it.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) != _entries(archive):
            raise zipfile.BadZipFile("its directory does not name all of its arrays")
        named = {member.filename.removesuffix(".npy"): member for member in members}
        if len(named) != len(members):
            raise zipfile.BadZipFile("two of its arrays have the same name")
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile("its arrays are compressed in an unusual way")
            with archive.open(member):  # this compares its name with that in the directory
                pass
        return {key: _array(archive, key, named[key]) for key in chosen(list(named))}


def _array(archive: zipfile.ZipFile, key: str, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array; its checksum is compared."""
    if member.file_size > raised(free := free_bytes()):
        raise ValueError(
            f"{key} unpacks to {gib(member.file_size)}, but {gib(free)} of memory are free"
        )
    try:
        with archive.open(member) as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            if file.read(1):  # otherwise a shape that is too small would go unnoticed
                raise ValueError(f"{key} holds more than its shape says")
    except MemoryError:
        raise ValueError(f"{key} does not fit into memory") from None
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise ValueError(f"{key} {_PICKLED}") from None
    return array


def _entries(archive: zipfile.ZipFile) -> int:
    """The number of members according to the end record of the archive."""
    file = archive.fp
    assert file is not None
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_SIZE - 2**16))  # a comment may follow
    tail = file.read()
    (count,) = struct.unpack_from("<H", tail, tail.rindex(_END) + 10)
    return int(count)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name before the message of a :class:`GraphError`."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def read_arrays(
    path: Path,
    holding: str,
    required: Sequence[str],
    known: Collection[str],
    *,
    others: bool = False,
) -> dict[str, NDArray[Any]]:
    """Read the arrays with ``known`` keys; errors say what the file should be ``holding``.

    Keys that are not known are logged, unless the file is to hold ``others``.
    """
    if not path.is_file():
        raise GraphError("there is no such file")
    if not os.access(path, os.R_OK):
        raise GraphError("is not readable: check its permissions")
    if not zipfile.is_zipfile(path):
        raise GraphError("is not an npz archive, or only part of one")

    def chosen(names: list[str]) -> list[str]:
        for key in required:
            if key not in names:
                needs = " and ".join(filter(None, (", ".join(required[:-1]), required[-1])))
                has = ", ".join(map(repr, names[:8])) or "nothing"
                told = f"a file of {holding} needs {needs}; this one has {has}"
                raise GraphError(f"has no {key!r}; {told}")
        unread = [] if others else [key for key in names if key not in known]
        for key in unread:
            meant = nearest(key, known, alike=0.8)
            if meant is not None and meant not in names:
                logger.warning("%s: the key %r is ignored; did you mean %r?", path, key, meant)
        if unread:
            logger.info("%s: not read: %s", path, ", ".join(unread))
        return [key for key in names if key in known]

    try:
        return load_arrays(path, chosen)
    except DAMAGE as error:
        reason = str(error).partition("\n")[0]
        if _PICKLED in reason:
            raise GraphError(reason) from None
        raise GraphError(f"the file is damaged: {reason}") from None


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write an npz file, atomically."""
    with replacing(path) as part, part.open("wb") as file:  # NumPy adds an ending to names
        np.savez_compressed(file, **arrays)


def texts(array: NDArray[Any], name: str) -> tuple[str, ...]:
    """Return a row of strings as a tuple."""
    if array.ndim != 1 or array.dtype.kind != "U":
        raise GraphError(f"{name} must be a row of strings, not {array.dtype} {list(array.shape)}")
    return tuple(array.tolist())
