"""A cache of spectra on disk, found by the content of the graphs and the options of the solve.

A single graph has its own file; a data set of many graphs has one file.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch

from specformer.errors import SpectrumError
from specformer.files import make_folder
from specformer.files.checked_tensors import read_tensors, write_tensors
from specformer.files.documents import parse_record
from specformer.graphs import GraphSet
from specformer.spectrum.eigenpairs import check_finite
from specformer.spectrum.many.spectra import (
    TENSORS,
    ManyReport,
    ManySpectra,
    Matrix,
    solved,
)
from specformer.spectrum.shards import INDEX, emptied
from specformer.spectrum.spectrum import Spectrum

logger = logging.getLogger(__name__)

Stored = TypeVar("Stored")

#: Changes when a solve of the same graph gives other numbers, so that older files are not found.
#: 2: one rule for signs if several entries are equally large.
_VERSION = "specformer.spectrum-cache/2"
#: 2: the Laplacians are those of single graphs to the last bit.
MANY_FORMAT = "specformer.many-spectra/2"


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


def rows_folder(folder: str | Path, name: str) -> Path:
    """The folder of a spectrum of which several processes read parts."""
    return Path(folder) / f"{name}.rows"


def link_shards(kept: Path, folder: Path) -> None:
    """Link shards of another folder into the cache; checksums tell if they are altered."""
    with suppress(OSError):  # without links the result is only not cached
        emptied(kept)
        for path in sorted(folder.resolve().iterdir(), key=lambda path: path.name == INDEX):
            link = kept / path.name
            link.unlink(missing_ok=True)
            try:
                link.hardlink_to(path)
            except OSError:  # on another disk
                link.symlink_to(path)


def fetch(folder: str | Path, name: str, graph: str, nodes: slice | None = None) -> Spectrum | None:
    """Return the spectrum stored under ``name``, or the rows of some nodes, or None.

    A damaged file is removed, and so is one of another graph than that of the content ``graph``.
    """

    def load(path: Path) -> Spectrum:
        found = Spectrum.load(path, nodes)
        if found.report is None or found.report.graph != graph:
            raise SpectrumError(f"{path}: not the spectrum of this graph.")
        return found

    whole = undamaged(Path(folder) / f"{name}.safetensors", load)
    return whole or undamaged(rows_folder(folder, name), load)


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


def keep(folder: str | Path, name: str, spectrum: Spectrum) -> Path | None:
    """Store a spectrum and return its file.

    On a full disk or in a read-only folder, warns and returns None, so that the result is not lost.
    """
    path = Path(folder) / f"{name}.safetensors"
    try:
        spectrum.save(path)
    except OSError as error:
        logger.warning("%s: the spectrum is not cached (%s).", folder, error.strerror or error)
        return None
    return path


def key_of_set(graphs: GraphSet, matrix: str) -> str:
    """A name that depends on the graphs and the matrix, not on features or targets."""
    digest = hashlib.sha256(json.dumps([MANY_FORMAT, matrix, "one"]).encode())
    for part in (graphs.num_nodes, graphs.num_edges, graphs.edge_index):
        digest.update(np.ascontiguousarray(part, dtype=np.int64).data)
    return digest.hexdigest()[:40]


def fetch_or_solve(
    folder: Path, graphs: GraphSet, matrix: Matrix, device: torch.device
) -> ManySpectra:
    """Return the stored spectra of these graphs; without any, solve on a device and store them.

    On a full disk or in a read-only folder, warns and keeps the result in memory.
    """
    name = key_of_set(graphs, matrix)
    path = folder / f"{name}.safetensors"
    if (found := undamaged(path, partial(load_many, graphs=name))) is not None:
        return found
    if folder.is_file():
        make_folder(folder)  # fails before a long solve, not after it
    fresh = solved(graphs, matrix, device, torch.device("cpu"))
    try:
        save_many(path, fresh, name)
    except NotADirectoryError:  # the cache's path is a file
        raise
    except OSError as error:
        logger.warning("%s: the spectra are not cached (%s).", folder, error.strerror or error)
        return fresh
    return load_many(path, verify=False)


def save_many(path: str | Path, spectra: ManySpectra, graphs: str = "") -> None:
    """Write spectra atomically; ``graphs`` is the :func:`key_of_set` of the graphs."""
    tensors = {name: getattr(spectra, name) for name in TENSORS}
    report = json.dumps(asdict(replace(spectra.report, graphs=graphs)))
    write_tensors(path, tensors, MANY_FORMAT, {"report": report})


def load_many(path: str | Path, verify: bool = True, graphs: str | None = None) -> ManySpectra:
    """Read a file of :func:`save_many`; one that is damaged or altered is refused.

    The arrays stay in the file and are read when they are used. ``verify`` compares the checksum,
    which reads everything. ``graphs`` is the :func:`key_of_set` that the file must have, or None.
    """
    tensors, words = read_tensors(
        Path(path),
        "file of spectra",
        MANY_FORMAT,
        refused=SpectrumError,
        names=TENSORS,
        verify=verify,
    )
    try:
        report = parse_record(ManyReport, words["report"])
    except (KeyError, ValueError) as error:
        raise SpectrumError(f"{path}: damaged file of spectra (its report: {error}).") from error
    if graphs not in (None, report.graphs):
        raise SpectrumError(f"{path}: not the spectra of these graphs.")
    if verify:
        check_finite(path, tensors)
    return ManySpectra(**tensors, report=report)
