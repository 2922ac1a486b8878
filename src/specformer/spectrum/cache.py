r"""Spectra on disk, found by the content of the graph and the options of the solve."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from specformer.errors import SpectrumError
from specformer.spectrum.spectrum import Spectrum

logger = logging.getLogger(__name__)

Stored = TypeVar("Stored")

#: Changes when a solve of the same graph gives other numbers; what was kept before is not found.
#: 2: one rule for signs where several entries are equally large.
_VERSION = "specformer.spectrum-cache/2"


def content(adjacency: sp.csr_array) -> str:
    """A hash of a graph's edges and weights."""
    digest = hashlib.sha256()
    digest.update(np.asarray(adjacency.shape, dtype=np.int64).tobytes())
    for part, dtype in (
        (adjacency.indptr, np.int64),
        (adjacency.indices, np.int64),
        (adjacency.data, np.float64),
    ):
        digest.update(np.ascontiguousarray(part, dtype=dtype).data)
    return digest.hexdigest()


def key(graph: str, options: dict[str, Any]) -> str:
    """A name for a spectrum of the graph of this content, which changes with any option.

    Example:
        >>> loop = content(sp.csr_array(np.eye(2)))
        >>> key(loop, {"k": 1}) == key(loop, {"k": 1}), key(loop, {"k": 1}) == key(loop, {"k": 2})
        (True, False)
    """
    text = json.dumps([_VERSION, graph, options], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def fetch(folder: str | Path, name: str, graph: str) -> Spectrum | None:
    """The spectrum stored under ``name``, or None; a damaged file is removed and rebuilt.

    So is one that says that it belongs to another graph than that of the content ``graph``.
    """

    def load(path: Path) -> Spectrum:
        found = Spectrum.load(path)
        if found.report is None or found.report.graph != graph:
            raise SpectrumError(f"{path}: not the spectrum of this graph.")
        return found

    return undamaged(_path(folder, name), load)


def undamaged(path: Path, load: Callable[[Path], Stored]) -> Stored | None:
    """Load a file; None if it does not exist or is damaged, and then it is removed."""
    if not path.exists():
        return None
    try:
        return load(path)
    except SpectrumError as error:
        logger.warning("%s It is computed again.", error)
        with suppress(OSError):  # a read-only folder must not stop the solve
            path.unlink()
        return None


def keep(folder: str | Path, name: str, spectrum: Spectrum) -> Path | None:
    """Store a spectrum and return its file, or warn and return None.

    A full disk or a read-only folder must not lose the result.
    """
    path = _path(folder, name)
    try:
        spectrum.save(path)
    except OSError as error:
        logger.warning("%s: the spectrum is not kept there (%s).", folder, error.strerror or error)
        return None
    return path


def _path(folder: str | Path, name: str) -> Path:
    return Path(folder) / f"{name}.safetensors"
