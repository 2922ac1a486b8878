r"""The spectra of a whole data set in one safetensors file, filled shard by shard."""

from __future__ import annotations

import hashlib
import json
import logging
import struct
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from specformer.errors import SpectrumError
from specformer.files import make_folder, replacing, reserve
from specformer.files.checked_tensors import checksum, read_tensors
from specformer.files.documents import parse_record
from specformer.graphs import GraphSet
from specformer.graphs.laplacian import Isolated
from specformer.spectrum.cache import undamaged
from specformer.spectrum.eigenpairs import check_finite
from specformer.spectrum.many.spectra import (
    ManyReport,
    ManySpectra,
    Matrix,
    decompose_many,
    joined_report,
    spectra_shards,
)

logger = logging.getLogger(__name__)

#: 2: the Laplacians are those of single graphs to the last bit.
FORMAT = "specformer.many-spectra/2"
_NAMES = ("eigenvalues", "eigenvectors", "sizes")
#: Bytes before the arrays: far more than what is written there can take.
_HEADER = 2048


def key(graphs: GraphSet, matrix: str, isolated: str) -> str:
    """A name that changes with any graph or option, and not with features or targets.

    Example:
        >>> pair = GraphSet([2], [1], [[0], [1]])
        >>> key(pair, "laplacian", "one") == key(pair, "laplacian", "zero")
        False
    """
    digest = hashlib.sha256(json.dumps([FORMAT, matrix, isolated]).encode())
    for part in (graphs.num_nodes, graphs.num_edges, graphs.edge_index):
        digest.update(np.ascontiguousarray(part, dtype=np.int64).data)
    return digest.hexdigest()[:40]


def fetch_or_solve(
    folder: Path,
    graphs: GraphSet,
    *,
    matrix: Matrix,
    isolated: Isolated,
    device: torch.device,
    solve_in: torch.dtype | None,
) -> ManySpectra:
    """The spectra stored for these graphs and options; solved and stored if there are none.

    A full disk or a read-only folder is warned of, and what is solved then stays in memory.
    """
    name = key(graphs, matrix, isolated)
    path = folder / f"{name}.safetensors"
    if (found := undamaged(path, partial(load_many, graphs=name))) is not None:
        return found
    options: dict[str, Any] = {"matrix": matrix, "isolated": isolated}
    options |= {"device": device, "solve_in": solve_in}
    try:
        make_folder(folder)
        save_many(path, graphs.num_nodes, spectra_shards(graphs, **options), name)
    except NotADirectoryError:  # what was named is a file
        raise
    except OSError as error:  # before anything was solved: all its room is asked for at once
        logger.warning("%s: the spectra are not kept there (%s).", folder, error.strerror or error)
        return decompose_many(graphs, **options)
    return load_many(path, verify=False)


def save_many(
    path: str | Path, sizes: np.ndarray, shards: Iterable[ManySpectra], graphs: str = ""
) -> None:
    """Write the spectra of graphs of these sizes, atomically, holding one shard at a time.

    Args:
        path: the file.
        sizes: ``[G]`` nodes of each graph, all shards together.
        shards: as :func:`~specformer.spectrum.many.spectra.spectra_shards` gives them.
        graphs: their :func:`key`, kept in the file.
    """
    nodes, pairs = int(sizes.sum()), int((sizes**2).sum())
    with replacing(path) as part:
        with part.open("wb") as file:
            reserve(file, _HEADER + 8 * len(sizes) + 4 * (nodes + pairs))
        # The header has its length from the start, so what it says can be filled in last.
        _write_header(part, len(sizes), nodes, pairs, "", ManyReport(0.0, 0.0, 0.0))
        report = replace(_fill(part, sizes, nodes, pairs, shards), graphs=graphs)
        with safe_open(part, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in _NAMES}
        _write_header(part, len(sizes), nodes, pairs, checksum(tensors, _text(report)), report)


def load_many(path: str | Path, verify: bool = True, graphs: str | None = None) -> ManySpectra:
    """Read a file of :func:`save_many`; one that is damaged or altered is refused.

    The arrays stay in the file and are read as they are used.

    Args:
        path: the file.
        verify: whether to compare the checksum and look for NaN, which reads everything.
        graphs: the :func:`key` of the graphs whose spectra these must be; None for any.
    """
    tensors, words = read_tensors(
        Path(path), "file of spectra", FORMAT, refused=SpectrumError, names=_NAMES, verify=verify
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


def _fill(
    path: Path, sizes: np.ndarray, nodes: int, pairs: int, shards: Iterable[ManySpectra]
) -> ManyReport:
    np.memmap(path, np.int64, "r+", offset=_HEADER, shape=len(sizes))[:] = sizes
    begin = _HEADER + 8 * len(sizes)
    values = np.memmap(path, np.float32, "r+", offset=begin, shape=nodes)
    vectors = np.memmap(path, np.float32, "r+", offset=begin + 4 * nodes, shape=pairs)
    node = pair = 0
    reports = []
    for shard in shards:
        upto, until = node + len(shard.eigenvalues), pair + len(shard.eigenvectors)
        if upto > nodes or until > pairs:
            break
        values[node:upto] = shard.eigenvalues.cpu().numpy()
        vectors[pair:until] = shard.eigenvectors.cpu().numpy()
        node, pair = upto, until
        reports.append(shard.report)
    if (node, pair) != (nodes, pairs):
        raise SpectrumError(f"{path}: the shards are not those of {len(sizes)} graphs.")
    return joined_report(reports)


def _text(report: ManyReport) -> str:
    return json.dumps(asdict(report))


def _write_header(
    path: Path, graphs: int, nodes: int, pairs: int, digest: str, report: ManyReport
) -> None:
    """Write the start of a safetensors file: eight bytes of length, then JSON, then spaces."""
    content: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "checksum": digest, "report": _text(report)}
    }
    offset = 0
    # The longest type first: every array is then aligned.
    for name, kind, count, width in (
        ("sizes", "I64", graphs, 8),
        ("eigenvalues", "F32", nodes, 4),
        ("eigenvectors", "F32", pairs, 4),
    ):
        end = offset + count * width
        content[name] = {"dtype": kind, "shape": [count], "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(content).encode().ljust(_HEADER - 8)
    with path.open("r+b") as file:
        file.write(struct.pack("<Q", len(text)) + text)
