"""A cache of spectra on disk, found by the content of the graph and the options of the solve."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from specformer.errors import SpectrumError
from specformer.spectrum.shards import INDEX, emptied
from specformer.spectrum.spectrum import Spectrum

logger = logging.getLogger(__name__)

Stored = TypeVar("Stored")

#: Changes when a solve of the same graph gives other numbers, so that older files are not found.
#: 3: eigenvalues that lanczos and warm starts may have missed.
_VERSION = "specformer.spectrum-cache/3"


def content(adjacency: sp.csr_array) -> str:
    """A hash of a graph's edges and weights."""
    parts = (adjacency.indptr, np.int64), (adjacency.indices, np.int64)
    arrays = (np.ascontiguousarray(*part) for part in (*parts, (adjacency.data, np.float64)))
    return content_of(adjacency.shape, arrays)


def content_of(shape: tuple[int, int], pieces: Iterable[np.ndarray]) -> str:
    """The same for an adjacency in pieces: its row starts, columns and weights, in this order."""
    digest = hashlib.sha256()
    digest.update(np.asarray(shape, dtype=np.int64).tobytes())
    for piece in pieces:
        digest.update(piece.data)
    return digest.hexdigest()


def key(graph: str, options: dict[str, Any]) -> str:
    """A name for the spectrum of a graph with this content; it changes with any option."""
    text = json.dumps([_VERSION, graph, options], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def file_of(folder: str | Path, name: str) -> Path:
    """The file of a spectrum."""
    return Path(folder) / f"{name}.safetensors"


def rows_folder(folder: str | Path, name: str) -> Path:
    """The folder of a spectrum of which several processes read parts."""
    return Path(folder) / f"{name}.rows"


def link_shards(kept: Path, folder: Path) -> None:
    """Link shards of another folder into the cache; checksums tell if they are altered.

    On another disk they are copied: a symbolic link would find what the folder has later.
    """
    with suppress(OSError):  # without them the result is only not cached
        emptied(kept)
        for path in sorted(folder.resolve().iterdir(), key=lambda path: path.name == INDEX):
            link = kept / path.name
            link.unlink(missing_ok=True)
            try:
                link.hardlink_to(path)
            except OSError:
                shutil.copyfile(path, link)


def fetch(
    folder: str | Path, names: Sequence[str], graph: str, nodes: slice | None = None
) -> Spectrum | None:
    """Return the first spectrum stored under one of the names, or its rows of some nodes, or None.

    A damaged file is removed, and so is one of another graph than that of the content ``graph``.
    """

    def load(path: Path) -> Spectrum:
        found = Spectrum.load(path, nodes)
        if found.report is None or found.report.graph != graph:
            raise SpectrumError(f"{path}: not the spectrum of this graph.")
        return found

    for name in names:
        for path in (file_of(folder, name), rows_folder(folder, name)):
            if found := undamaged(path, load):
                return found
    return None


def undamaged(path: Path, load: Callable[[Path], Stored]) -> Stored | None:
    """Load a file; None if it does not exist. A damaged file is removed and gives None."""
    if not path.exists():
        return None
    try:
        return load(path)
    except SpectrumError as error:
        logger.warning("%s It is computed again.", error)
        with suppress(OSError):  # a read-only folder does not stop the solve
            path.unlink()
        return None


def keep(path: Path, save: Callable[[Path], None], what: str = "the spectrum is") -> bool:
    """Store a result in the cache.

    On a full disk or in a read-only folder, warns and returns False, so that the result is not
    lost.
    """
    try:
        save(path)
    except NotADirectoryError:  # the cache's path is a file
        raise
    except OSError as error:
        logger.warning("%s: %s not cached (%s).", path.parent, what, error.strerror or error)
        return False
    return True
