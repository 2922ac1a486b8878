r"""The spectra of many small graphs at once: one batched solve for all graphs of a size."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.errors import ConfigError, SpectrumError
from specformer.files import make_folder
from specformer.files.checked_tensors import read_tensors, write_tensors
from specformer.files.documents import parse_record
from specformer.graphs import GraphSet
from specformer.graphs.graph_set import runs_within, starts
from specformer.graphs.laplacian import laplacian_of, normalised_adjacency
from specformer.spectrum import cache as spectrum_cache
from specformer.spectrum.devices import usable_device
from specformer.spectrum.eigenpairs import (
    EQUAL,
    canonical_signs,
    check_eigenpairs,
    check_finite,
    max_orthogonality_error,
    max_residual,
    refined,
    snap,
)

logger = logging.getLogger(__name__)

Matrix = Literal["laplacian", "adjacency-with-loops"]
MATRICES = get_args(Matrix)
#: 2: the Laplacians are those of single graphs to the last bit.
_FORMAT = "specformer.many-spectra/2"
#: Fields of :class:`ManySpectra` that are stored in a file.
_TENSORS = ("eigenvalues", "eigenvectors", "sizes")
#: Most pairs of nodes in a shard and most entries in a batch of matrices; they limit the memory.
_SHARD = {"cpu": 2**25, "cuda": 2**27}
_BATCH = {"cpu": 2**20, "cuda": 2**23}
#: Precision of a solve by device; float32 on others.
_PRECISION = {"cpu": torch.float64}


@dataclass(frozen=True)
class ManyReport:
    """The time of all solves, and the largest errors over all graphs."""

    seconds: float
    max_residual: float
    max_orthogonality_error: float
    #: Hash of the graphs and of the choice of matrix, in a file of the cache.
    graphs: str = ""


@dataclass(frozen=True, eq=False)
class ManySpectra:
    r"""Eigenpairs of G graphs, flat: graph g has n eigenvalues and the n² entries of its U.

    Args:
        sizes: ``[G]`` nodes of each graph.
        eigenvalues: ``[ΣN]`` ascending within each graph.
        eigenvectors: ``[ΣN²]`` row by row: :math:`U_{ik}` lies at ``pair_start[g] + i·n + k``.
        report: time and checks.

    Attributes:
        node_start: ``[G + 1]`` where a graph's eigenvalues start.
        pair_start: ``[G + 1]`` where a graph's eigenvectors start.
    """

    sizes: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor
    report: ManyReport
    node_start: Tensor = field(init=False)
    pair_start: Tensor = field(init=False)

    def __post_init__(self) -> None:
        sizes = self.sizes.cpu().numpy()
        for name, counts in (("node_start", sizes), ("pair_start", sizes**2)):
            object.__setattr__(self, name, torch.as_tensor(starts(counts)).to(self.sizes.device))
        expected = (int(self.node_start[-1]), int(self.pair_start[-1]))
        if (len(self.eigenvalues), len(self.eigenvectors)) != expected:
            raise SpectrumError(
                f"{len(self.eigenvalues)} eigenvalues and {len(self.eigenvectors)} entries of "
                f"eigenvectors do not match the sizes, which need {expected[0]} and {expected[1]}."
            )

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        return (
            f"ManySpectra(graphs={len(self)}, nodes={len(self.eigenvalues)}, "
            f"device={self.eigenvalues.device})"
        )

    def __getitem__(self, graph: int) -> tuple[Tensor, Tensor]:
        """Eigenvalues ``[n]`` and eigenvectors ``[n, n]`` of one graph."""
        number = range(len(self))[graph]
        nodes = slice(*self.node_start[number : number + 2].tolist())
        pairs = slice(*self.pair_start[number : number + 2].tolist())
        values = self.eigenvalues[nodes]
        return values, self.eigenvectors[pairs].view(len(values), len(values))

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, atomically."""
        tensors = {name: getattr(self, name) for name in _TENSORS}
        write_tensors(path, tensors, _FORMAT, {"report": json.dumps(asdict(self.report))})

    @classmethod
    def load(cls, path: str | Path, verify: bool = True, graphs: str | None = None) -> ManySpectra:
        """Read what :meth:`save` wrote; a file that is damaged or altered is refused.

        The arrays stay in the file and are read when they are used. ``verify`` compares the
        checksum, which reads everything. ``graphs`` is the report's hash of the graphs, or None.
        """
        what = "file of spectra"
        tensors, words = read_tensors(
            Path(path), what, _FORMAT, refused=SpectrumError, names=_TENSORS, verify=verify
        )
        try:
            report = parse_record(ManyReport, words["report"])
        except (KeyError, ValueError) as error:
            raise SpectrumError(f"{path}: damaged {what} (its report: {error}).") from error
        if graphs not in (None, report.graphs):
            raise SpectrumError(f"{path}: not the spectra of these graphs.")
        if verify:
            check_finite(path, tensors)
        return cls(**tensors, report=report)


def decompose_many(
    graphs: GraphSet,
    *,
    matrix: Matrix = "laplacian",
    device: torch.device | str | None = None,
    cache: str | Path | None = None,
) -> ManySpectra:
    r"""All eigenpairs of every graph, in float32, with canonical signs.

    Args:
        graphs: of any sizes, also single nodes, graphs without bonds or of several components.
        matrix: ``"laplacian"``, :math:`L = I - D^{-1/2} A D^{-1/2}`, where a node without bonds
            adds an eigenvalue 1, or ``"adjacency-with-loops"``,
            :math:`\tilde D^{-1/2}(A + I)\tilde D^{-1/2}`.
        device: where to solve, in float64 on a CPU and in float32 elsewhere, and where the result
            lives.
        cache: folder for results, one file per set, found by the content of the graphs and
            ``matrix``. The result is then mapped from the file and read when it is used.

    Example:
        >>> pair_and_atom = GraphSet([2, 1], [1, 0], [[0], [1]])
        >>> decompose_many(pair_and_atom).eigenvalues
        tensor([0., 2., 1.])
    """
    target = usable_device(device)
    if cache is None:
        return solved(graphs, matrix, target, target)
    found = fetch_or_solve(Path(cache), graphs, matrix, target)
    return replace(found, **{name: getattr(found, name).to(target) for name in _TENSORS})


def fetch_or_solve(
    folder: Path, graphs: GraphSet, matrix: Matrix, device: torch.device
) -> ManySpectra:
    """Return the stored spectra of these graphs; without any, solve on a device and store them.

    On a full disk or in a read-only folder, warns and keeps the result in memory.
    """
    name = key_of_set(graphs, matrix)
    path = spectrum_cache.file_of(folder, name)
    found = spectrum_cache.undamaged(path, partial(ManySpectra.load, graphs=name))
    if found is not None:
        return found
    if folder.is_file():
        make_folder(folder)  # fails before a long solve, not after it
    fresh = solved(graphs, matrix, device, torch.device("cpu"), name)
    if spectrum_cache.keep(path, fresh.save, "the spectra are"):
        return ManySpectra.load(path, verify=False)
    return fresh


def key_of_set(graphs: GraphSet, matrix: str) -> str:
    """A name that depends on the graphs and the matrix, not on features or targets."""
    digest = hashlib.sha256(json.dumps([_FORMAT, matrix, "one"]).encode())
    for part in (graphs.num_nodes, graphs.num_edges, graphs.edge_index):
        digest.update(np.ascontiguousarray(part, dtype=np.int64).data)
    return digest.hexdigest()[:40]


def solved(
    graphs: GraphSet, matrix: Matrix, device: torch.device, home: torch.device, name: str = ""
) -> ManySpectra:
    """Solve on a device, a limited number of graphs at a time; the result is on ``home``.

    Those whose checks fail are solved again in float64 on the CPU.
    """
    if matrix not in MATRICES:
        raise ConfigError(f"matrix={matrix!r}: choose from {', '.join(MATRICES)}.")
    began, sizes = time.perf_counter(), graphs.num_nodes
    values = torch.empty(int(sizes.sum()), device=home)
    vectors = torch.empty(int((sizes**2).sum()), device=home)
    node_start, pair_start, worst = starts(sizes), starts(sizes**2), np.zeros(2)
    precision = _PRECISION.get(device.type, torch.float32)
    for first, last in runs_within(sizes**2, _SHARD.get(device.type, _SHARD["cuda"])):
        part = range(first, last)
        try:
            found, basis, errors = _solve_shard(graphs, part, matrix, device, precision)
        except (SpectrumError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            if device.type == "cpu" and precision == torch.float64:
                raise SpectrumError(str(error)) from error
            logger.warning("%s It is solved in float64 on the CPU.", error)
            cpu = torch.device("cpu")
            found, basis, errors = _solve_shard(graphs, part, matrix, cpu, torch.float64)
        values[node_start[first] : node_start[last]] = found
        vectors[pair_start[first] : pair_start[last]] = basis
        worst = np.maximum(worst, errors)  # keeps a NaN
    residual, orthogonality = worst.tolist()
    report = ManyReport(time.perf_counter() - began, residual, orthogonality, name)
    return ManySpectra(torch.as_tensor(sizes).to(home), values, vectors, report)


def _solve_shard(
    graphs: GraphSet, part: range, matrix: Matrix, device: torch.device, precision: torch.dtype
) -> tuple[Tensor, Tensor, np.ndarray]:
    """Flat eigenvalues and eigenvectors of some graphs, and the largest errors of both checks."""
    sizes = graphs.num_nodes[part.start : part.stop]
    order = np.argsort(sizes, kind="stable")  # graphs of equal size become neighbours
    # The matrices of these graphs are the diagonal blocks of one.
    adjacency = graphs.joined(part.start + order)
    if matrix == "laplacian":
        matrices, lowest = laplacian_of(adjacency, "one"), 0.0
    else:
        looped = adjacency + sp.eye_array(adjacency.shape[0])
        matrices, lowest = normalised_adjacency(looped), -1.0
    rows, node_start, pair_start = starts(sizes[order]), starts(sizes), starts(sizes**2)
    values = torch.empty(int(node_start[-1]), device=device)
    vectors = torch.empty(int(pair_start[-1]), device=device)
    worst = np.zeros(2)
    for low, high, n in _batches(sizes[order], _BATCH.get(device.type, _BATCH["cuda"])):
        operator = dense_blocks(matrices, int(rows[low]), high - low, n, device)
        found, basis = eigenpairs(operator, precision)
        snapped = snap(found.cpu().numpy(), EQUAL[precision], lowest)
        found, basis = torch.as_tensor(snapped).to(device), canonical_signs(basis)
        errors = max_residual(operator, found, basis), max_orthogonality_error(basis)
        worst = np.maximum(worst, errors)  # keeps a NaN
        graph = order[low:high]
        _place(values, node_start[graph], found)
        _place(vectors, pair_start[graph], basis.reshape(high - low, n * n))
    check_eigenpairs(f"the batched solver of graphs {part[0]}..{part[-1]}", *worst)
    logger.info("graphs %d..%d are solved", part[0], part[-1])
    return values, vectors, worst


def _batches(sizes: np.ndarray, entries: int) -> Iterator[tuple[int, int, int]]:
    """Runs of graphs of the same size, each with at most ``entries`` matrix entries."""
    edges = np.flatnonzero(np.diff(sizes, prepend=-1, append=-1))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        n = int(sizes[low])
        step = max(1, entries // (n * n))
        for begin in range(low, high, step):
            yield begin, min(begin + step, high), n


def _place(out: Tensor, first: np.ndarray, rows: Tensor) -> None:
    """Write row r of ``rows`` to ``out`` from ``first[r]`` on."""
    begin = torch.as_tensor(first, device=out.device)
    index = begin.unsqueeze(1) + torch.arange(rows.shape[1], device=out.device)
    out[index] = rows.to(out.dtype)


def dense_blocks(
    matrix: sp.csr_array, first: int, count: int, n: int, device: torch.device
) -> Tensor:
    """Diagonal blocks ``[count, n, n]`` of a block-diagonal matrix, from row ``first`` on."""
    begin = matrix.indptr[first : first + count * n + 1]
    inside = slice(int(begin[0]), int(begin[-1]))
    row = np.repeat(np.arange(count * n), np.diff(begin))
    column = matrix.indices[inside] - first - row // n * n
    dense = torch.zeros(count * n * n, dtype=torch.float64, device=device)
    dense[torch.as_tensor(row * n + column).to(device)] = torch.as_tensor(matrix.data[inside]).to(
        device
    )
    return dense.view(count, n, n)


def eigenpairs(operator: Tensor, precision: torch.dtype) -> tuple[Tensor, Tensor]:
    """Eigenpairs of float64 matrices, solved in ``precision``; vectors rounded to float32.

    The result is stored in float32, so the checks must see rounded vectors.
    """
    values, vectors = torch.linalg.eigh(operator.to(precision))
    rounded = vectors.float().double()
    return (values, rounded) if precision == torch.float64 else refined(operator, rounded)
