r"""The spectra of many small graphs at once: one batched solve for all graphs of a size."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.errors import ConfigError, SpectrumError
from specformer.graphs import GraphSet
from specformer.graphs.flat_arrays import runs_within, starts
from specformer.graphs.laplacian import laplacian_of, normalised_adjacency
from specformer.spectrum.devices import usable_device
from specformer.spectrum.eigenpairs import (
    EQUAL,
    canonical_signs,
    check_eigenpairs,
    max_orthogonality_error,
    max_residual,
    refined,
    snap,
)

logger = logging.getLogger(__name__)

Matrix = Literal["laplacian", "adjacency-with-loops"]
MATRICES = get_args(Matrix)
#: Fields of :class:`ManySpectra` that are stored in a file.
TENSORS = ("eigenvalues", "eigenvectors", "sizes")
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
    if cache is not None:
        from specformer.spectrum.cache import fetch_or_solve  # it imports this module

        found = fetch_or_solve(Path(cache), graphs, matrix, target)
        moved = {name: getattr(found, name).to(target) for name in TENSORS}
        return replace(found, **moved)
    return solved(graphs, matrix, target, target)


def solved(
    graphs: GraphSet, matrix: Matrix, device: torch.device, home: torch.device
) -> ManySpectra:
    """Solve on a device, a limited number of graphs at a time; the result is on ``home``."""
    if matrix not in MATRICES:
        raise ConfigError(f"matrix={matrix!r}: choose from {', '.join(MATRICES)}.")
    sizes = graphs.num_nodes
    values = torch.empty(int(sizes.sum()), device=home)
    vectors = torch.empty(int((sizes**2).sum()), device=home)
    reports = []
    node = pair = 0
    for first, last in runs_within(sizes**2, _SHARD.get(device.type, _SHARD["cuda"])):
        shard = _solve_surely(graphs, range(first, last), matrix, device)
        values[node : node + len(shard.eigenvalues)] = shard.eigenvalues
        vectors[pair : pair + len(shard.eigenvectors)] = shard.eigenvectors
        node += len(shard.eigenvalues)
        pair += len(shard.eigenvectors)
        reports.append(shard.report)
    # NumPy's maximum keeps a NaN, Python's may not.
    residual = np.max([report.max_residual for report in reports])
    error = np.max([report.max_orthogonality_error for report in reports])
    seconds = sum(report.seconds for report in reports)
    report = ManyReport(seconds, float(residual), float(error))
    return ManySpectra(torch.as_tensor(sizes).to(home), values, vectors, report)


def _solve_surely(
    graphs: GraphSet, part: range, matrix: Matrix, device: torch.device
) -> ManySpectra:
    """Solve on a device; if the checks fail, solve again in float64 on the CPU."""
    precision = _PRECISION.get(device.type, torch.float32)
    try:
        return _solve_shard(graphs, part, matrix, device, precision)
    except (SpectrumError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
        if device.type == "cpu" and precision == torch.float64:
            raise SpectrumError(str(error)) from error
        logger.warning("%s It is solved in float64 on the CPU.", error)
    return _solve_shard(graphs, part, matrix, torch.device("cpu"), torch.float64)


def _solve_shard(
    graphs: GraphSet, part: range, matrix: Matrix, device: torch.device, precision: torch.dtype
) -> ManySpectra:
    began = time.perf_counter()
    lowest = 0.0 if matrix == "laplacian" else -1.0
    sizes = graphs.num_nodes[part.start : part.stop]
    order = np.argsort(sizes, kind="stable")  # graphs of equal size become neighbours
    # The matrices of these graphs are the diagonal blocks of one.
    adjacency = graphs.joined(part.start + order)
    if matrix == "laplacian":
        matrices = laplacian_of(adjacency, "one")
    else:
        looped = adjacency + sp.eye_array(adjacency.shape[0])
        matrices = sp.csr_array(normalised_adjacency(looped))
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
    residual, error = worst.tolist()
    check_eigenpairs(f"the batched solver of graphs {part[0]}..{part[-1]}", residual, error)
    report = ManyReport(time.perf_counter() - began, residual, error)
    logger.info("graphs %d..%d solved in %.2f s", part[0], part[-1], report.seconds)
    return ManySpectra(torch.as_tensor(sizes).to(device), values, vectors, report)


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
