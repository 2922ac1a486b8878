r"""A spectrum over several processes, each of which holds the rows of its own nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from specformer.graphs.laplacian import over_roots
from specformer.kernels.norms import Across, sum_over_workers
from specformer.spectrum.devices import usable_device
from specformer.spectrum.implicit.density import default_probes, spectral_density
from specformer.spectrum.implicit.implicit import DensityReport, ImplicitSpectrum
from specformer.spectrum.products import check_count
from specformer.spectrum.solvers.exact import KnownVectors, exact_vectors
from specformer.spectrum.sparse import Parts, RowShard, row_shard
from specformer.spectrum.spectrum import Spectrum


@dataclass(frozen=True, eq=False, repr=False)
class ShardedSpectrum(Spectrum):
    r"""All eigenvalues, and the rows :math:`U_r` of this process.

    A convolution is a local product, one sum of q × channels numbers over all processes, and
    another local product: :math:`y_r = U_r\,\mathrm{diag}(g) \sum_s U_s^\top x_s`. Features of
    neighbours are not sent. Losses and gradients are those of a process's own nodes; their sums
    over all processes are those of the graph.

    Args:
        across: sums a tensor over all processes, in place.
        all_nodes: number of nodes of the graph; ``num_nodes`` counts those of this process.
    """

    across: Across = field(kw_only=True)
    all_nodes: int = field(kw_only=True)

    def gft(self, x: Tensor) -> Tensor:
        r"""The transform :math:`\sum_s U_s^\top x_s` of the whole graph's signal."""
        return sum_over_workers(super().gft(x), self.across)

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "num_nodes": self.all_nodes}


def approximate_rows(
    rows: sp.csr_array,
    parts: Parts,
    *,
    degree: int = 128,
    probes: int | None = None,
    steps: int = 128,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> ImplicitSpectrum:
    """As :func:`specformer.approximate`, for this process's rows ``[m, n]`` of the adjacency.

    No process needs more than its rows. All get the same density, equal to that of a single process
    up to rounding.
    """
    check_count("degree", degree)  # before the density is estimated
    started, target = time.perf_counter(), usable_device(device)
    shard = row_shard(rows, parts, target, torch.float64)
    root = np.sqrt(np.asarray(rows.sum(axis=1)).ravel())
    for part, of_columns in ((shard.own, root), (shard.beyond, _fetched(shard, root[:, None])[0])):
        entries, (row, column) = part.values().cpu().numpy(), _places(part)
        part.values().copy_(torch.as_tensor(-over_roots(entries, root[row], of_columns[column])))
    lonely = np.diff(rows.indptr) == 0
    known = _known_vectors(shard, lonely, np.where(lonely, 1.0, root))
    probes = default_probes(rows.shape[1]) if probes is None else probes
    tokens = spectral_density(
        shard, known, lonely, probes=probes, steps=steps, seed=seed, dtype=dtype
    )
    report = DensityReport(probes, steps, seed, time.perf_counter() - started)
    return ImplicitSpectrum(shard.to(dtype=dtype), tokens, degree, report)


def _places(part: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each stored entry."""
    counts = part.crow_indices().diff().cpu().numpy()
    return np.repeat(np.arange(len(counts)), counts), part.col_indices().cpu().numpy()


def _fetched(shard: RowShard, columns: np.ndarray) -> np.ndarray:
    """Columns ``[m, c]`` of the rows that come from other processes, ``[c, h]``."""
    return shard.fetched(torch.as_tensor(columns).to(shard.device))().cpu().numpy().T


def _known_vectors(shard: RowShard, lonely: np.ndarray, root: np.ndarray) -> list[KnownVectors]:
    """This process's rows of the eigenvectors at 0 and at 2, the same as in a single process.

    ``shard`` has L − I, ``root`` the roots of the degrees.
    """
    parts, (one, other) = shard.parts, _double_cover(shard)
    component = np.minimum(one, other) // 2
    numbers = np.arange(parts.rows.start, parts.rows.stop)

    def total(array: np.ndarray) -> np.ndarray:
        return parts.sum(torch.as_tensor(array).to(shard.device)).cpu().numpy()

    def product(entry: np.ndarray) -> np.ndarray:
        found = shard @ torch.as_tensor(entry).to(shard.device).unsqueeze(1)
        return -found.squeeze(1).cpu().numpy()

    found = []
    for sign, eligible in ((1, ~lonely), (-1, ~lonely & (one != other))):
        firsts = numbers[eligible & (component == numbers)]
        counts = np.zeros(len(parts.bounds) - 1, dtype=np.int64)
        counts[place := list(parts.bounds).index(parts.rows.start)] = len(firsts)
        counts = total(counts)
        every, before = np.zeros(counts.sum(), dtype=np.int64), counts[:place].sum()
        every[before : before + len(firsts)] = firsts
        column = np.where(eligible, np.searchsorted(total(every), component), -1)
        side = np.where((sign > 0) | (one < other), 1.0, -1.0)
        found.append(exact_vectors(column, len(every), side * root, product, sign, total))
    return found


def _double_cover(shard: RowShard) -> np.ndarray:
    """The least number of a node's component in the double cover, for either copy, ``[2, m]``.

    There each edge joins a node to the other copy of its neighbour; the copies of node i have the
    numbers 2 i and 2 i + 1. They are in one component exactly if that of node i is not bipartite.
    Every round takes the least number over a component's part in this process, then over neighbours
    in other processes. The number of rounds is at most how often a path changes processes.
    """
    m, first = shard.shape[0], shard.parts.rows.start
    here = sp.csr_array((np.ones(shard.own.values().numel()), _places(shard.own)), shape=(m, m))
    _, piece = connected_components(sp.block_array([[None, here], [here, None]]), directed=False)
    row, column = _places(shard.beyond)
    least = np.full(piece.max() + 1, np.iinfo(np.int64).max)
    numbers = 2 * np.arange(first, first + m)
    np.minimum.at(least, piece, np.concatenate([numbers, numbers + 1]))
    while True:
        theirs = _fetched(shard, least[piece].reshape(2, m).T.copy())
        before = least.copy()
        for copy in (0, 1):
            np.minimum.at(least, piece[copy * m + row], theirs[1 - copy, column])
        changed = torch.tensor([float((least < before).any())], device=shard.device)
        if not shard.parts.sum(changed):
            return least[piece].reshape(2, m)
