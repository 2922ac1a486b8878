"""The normalised Laplacian, of one graph and of many."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, sparray, spmatrix

from specformer.errors import ConfigError
from specformer.graphs.checks import check_adjacency
from specformer.graphs.graph import Graph

#: The eigenvalue that a node without edges adds to the spectrum.
Isolated = Literal["one", "zero"]
#: float64 keeps fewer digits of smaller products of roots; then both sides are scaled up, exactly.
_SMALL = 1e-290


def normalised_laplacian(
    graph: Graph | sparray | spmatrix, isolated: Isolated = "one"
) -> csr_array[np.float64]:
    r"""Return the symmetric normalised Laplacian [n, n]; its eigenvalues lie in [0, 2].

    .. math::
        L = I - D^{-1/2} A D^{-1/2}, \qquad D_{ii} = \sum_j A_{ij}

    A self-loop counts once in its node's degree.

    Args:
        graph: a :class:`Graph`, or a symmetric SciPy sparse adjacency matrix A [n, n].
        isolated: how to treat a node of degree 0. ``"one"``: its degree counts as 1, so it adds an
            eigenvalue 1 (the Specformer paper). ``"zero"``: its row is zero, so it adds an
            eigenvalue 0 and the null space counts the components (PyGSP, SciPy, NetworkX).

    Example:
        >>> star = csr_array(np.array([[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]))
        >>> normalised_laplacian(star).toarray().round(3)
        array([[ 1.   , -0.707, -0.707,  0.   ],
               [-0.707,  1.   ,  0.   ,  0.   ],
               [-0.707,  0.   ,  1.   ,  0.   ],
               [ 0.   ,  0.   ,  0.   ,  1.   ]])
        >>> normalised_laplacian(star, isolated="zero").diagonal()
        array([1., 1., 1., 0.])
    """
    adjacency = graph.adjacency if isinstance(graph, Graph) else check_adjacency(graph)
    return laplacian_of(adjacency, isolated)


def laplacian_of(adjacency: csr_array[np.float64], isolated: Isolated) -> csr_array[np.float64]:
    """Return the Laplacian of an adjacency matrix that was checked before.

    Weights may be negative: degrees are then sums of absolute values, and L is the signed
    Laplacian. The Laplacians of many graphs are the diagonal blocks of that of
    :meth:`~specformer.graphs.GraphSet.joined`.
    """
    if isolated not in ("one", "zero"):
        raise ConfigError(f"isolated must be 'one' or 'zero', not {isolated!r}")
    degree: NDArray[np.float64] = abs(adjacency).sum(axis=1)
    diagonal = np.ones(len(degree)) if isolated == "one" else (degree > 0).astype(np.float64)
    return diags_array(diagonal, format="csr") - normalised_adjacency(adjacency)


def normalised_adjacency(adjacency: csr_array[np.float64]) -> csr_array[np.float64]:
    """Return :math:`D^{-1/2} A D^{-1/2}` of a symmetric matrix that was checked before."""
    root = np.sqrt(abs(adjacency).sum(axis=1))
    of_rows, of_columns = np.repeat(root, np.diff(adjacency.indptr)), root[adjacency.indices]
    entries = over_roots(adjacency.data, of_rows, of_columns)
    return csr_array((entries, adjacency.indices, adjacency.indptr), shape=adjacency.shape)


def over_roots(
    entries: NDArray[np.float64], of_rows: NDArray[np.float64], of_columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return entries of A divided by the roots of the degrees of their row and column."""
    # One product of roots instead of two divisions: the result is symmetric to the last bit.
    product = of_rows * of_columns
    small = np.flatnonzero(product < _SMALL)
    exact = np.ldexp(entries[small], 600)
    roots = np.ldexp(of_rows[small], 300) * np.ldexp(of_columns[small], 300)
    scaled = entries / product
    scaled[small] = exact / roots
    return scaled
