r"""Eigenvectors of a normalised Laplacian that are known without a solve.

Each connected component with an edge has :math:`D^{1/2} 1_c` at λ = 0, and, if it is bipartite with
sides marked by s = ±1, :math:`D^{1/2} s_c` at λ = 2. Nothing else lies at 0 or 2.
"""

from __future__ import annotations

from collections.abc import Callable
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
    #: Whether these are all eigenvectors at this end of the spectrum.
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

    Without ``degrees``, neighbours are counted, which is right for a graph without weights.
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
        # In the double cover, where each edge joins a node to the other copy of its neighbour, a
        # component splits in two exactly if it is bipartite.
        cover = sp.block_array([[None, graph], [graph, None]])
        one, other = connected_components(cover, directed=False)[1].reshape(2, -1)
        side = np.where(one < other, 1.0, -1.0)
        eligible &= one != other
    column = np.where(eligible, column, -1)
    present = np.bincount(column[eligible], minlength=1) > 0
    return exact_vectors(
        np.where(eligible, np.cumsum(present)[column] - 1, -1),
        int(present.sum()),
        # A node without edges kept at λ = 0 has a degree of 0 and an entry 1 on the diagonal.
        side * np.sqrt(np.where(degrees > 0, degrees, 1.0)),
        graph.__matmul__,
        sign,
        signed=bool((graph.data < 0).any()),
    )


def exact_vectors(
    column: np.ndarray,
    count: int,
    entry: np.ndarray,
    product: Callable[[np.ndarray], np.ndarray],
    sign: int,
    total: Callable[[np.ndarray], np.ndarray] = lambda sums: sums,
    *,
    signed: bool = False,
) -> KnownVectors:
    """Unit vectors, one per component, without those that are not exact eigenvectors.

    Args:
        column: component of each node, from 0 to ``count`` − 1; −1 for none.
        count: number of components.
        entry: entry of each node, up to a factor per component.
        product: product with the normalised adjacency.
        sign: the eigenvalue.
        total: extends sums over components to all processes, each of which has some nodes.
        signed: whether some weights are negative; then there may be further eigenvectors.
    """
    eligible, place = column >= 0, np.maximum(column, 0)
    entry, least = entry * eligible, max(1, count)

    def norms(values: np.ndarray) -> np.ndarray:
        sums = total(np.bincount(place, (values * eligible) ** 2, minlength=least))
        return np.asarray(np.sqrt(sums))

    lengths = norms(entry)
    entry = entry / np.where(lengths > 0, lengths, 1.0)[place]
    exact = norms(product(entry) - sign * entry) <= _EXACT
    exact[count:] = False
    eligible &= exact[place]
    found = int(exact.sum())
    kept = np.where(eligible, np.cumsum(exact)[place] - 1, -1)
    return KnownVectors(kept, entry * eligible, found, complete=found == count and not signed)
