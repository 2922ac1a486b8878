r"""Eigenvectors of a normalised Laplacian that are known before any solve.

Each connected component with an edge has :math:`D^{1/2} 1_c` at λ = 0, and, if it is bipartite with
sides told apart by s = ±1, :math:`D^{1/2} s_c` at λ = 2. Nothing else lies at 0 or 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

#: Largest accepted error of a known eigenvector; a worse one is left to the solver.
_EXACT = 1e-10


@dataclass(frozen=True)
class KnownVectors:
    """Orthonormal eigenvectors with disjoint supports: at most one entry per node.

    Shapes: column ``[n]`` (−1: in no vector), entry ``[n]``.
    """

    column: np.ndarray
    entry: np.ndarray
    count: int
    #: Whether these are all there are at this end of the spectrum.
    complete: bool

    def write(self, basis: Tensor) -> None:
        """Fill the first ``count`` columns of ``basis``."""
        rows = np.flatnonzero(self.column >= 0)
        basis[:, : self.count] = 0.0
        place = (torch.as_tensor(rows), torch.as_tensor(self.column[rows]))
        basis[tuple(index.to(basis.device) for index in place)] = torch.as_tensor(
            self.entry[rows]
        ).to(basis)


def known_vectors(
    adjacency: sp.csr_array, sign: int = 1, degrees: np.ndarray | None = None
) -> KnownVectors:
    """Exact eigenvectors of the normalised adjacency I − L at 1 (sign 1) or at −1 (sign −1).

    Without ``degrees`` neighbours are counted, which is right for a graph without weights.

    Example:
        >>> path = sp.csr_array(np.array([[0, 1], [1, 0.0]]))
        >>> known_vectors(path, -1).entry.round(3).tolist()
        [0.707, -0.707]
    """
    graph = sp.csr_array(adjacency, copy=True)
    graph.eliminate_zeros()
    neighbours = np.diff(graph.indptr)
    if degrees is None:
        degrees = neighbours
    _, column = connected_components(graph, directed=False)
    side = np.ones(graph.shape[0])
    eligible = neighbours > 0
    if sign < 0:
        side, bipartite = _sides(graph)
        eligible &= bipartite
    # A node without edges kept at λ = 0 has a degree of 0 and an entry 1 on the diagonal.
    entry = side * np.sqrt(np.where(degrees > 0, degrees, 1.0)) * eligible
    column = _renumber(column, eligible)
    count = int(column.max(initial=-1)) + 1
    place = np.maximum(column, 0)
    norms = np.sqrt(np.bincount(place, entry**2, minlength=count))
    entry = entry / np.where(norms > 0, norms, 1.0)[place] if count else entry
    error = graph @ entry - sign * entry
    errors = np.sqrt(np.bincount(place, (error * eligible) ** 2, minlength=count))
    exact = eligible & (errors[place] <= _EXACT) if count else eligible
    kept = _renumber(column, exact)
    found = int(kept.max(initial=-1)) + 1
    signed = bool((graph.data < 0).any())  # more may lie at this end of a signed graph
    return KnownVectors(kept, entry * exact, found, complete=found == count and not signed)


def _sides(graph: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Which side ±1 each node is on, and whether its component has sides at all.

    In the double cover, where each edge joins a node to the other copy of its neighbour, a
    component falls into two exactly if it is bipartite.
    """
    n = graph.shape[0]
    _, cover = connected_components(sp.block_array([[None, graph], [graph, None]]), directed=False)
    one, other = cover[:n], cover[n:]
    return np.where(one < other, 1.0, -1.0), one != other


def _renumber(column: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Columns counted anew over the nodes kept; −1 for the rest."""
    new = np.full(len(column), -1)
    if keep.any():
        new[keep] = np.unique(column[keep], return_inverse=True)[1]
    return new
