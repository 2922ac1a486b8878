r"""A graph for message-passing models: sparse products with its matrices, and distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from specformer.errors import ConfigError
from specformer.kernels.tracing import keeping, kept_property
from specformer.spectrum.sparse import sparse_product, to_torch

#: Lanczos directions shorter than this are rounding errors.
_BREAKDOWN = 1e-10


class _SymmetricProduct(torch.autograd.Function):
    """``matrix @ dense`` for a constant symmetric matrix; its backward pass needs no transpose."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return sparse_product(matrix, dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, sparse_product(ctx.matrix, gradients[0])


def _symmetric_product(matrix: Tensor, h: Tensor) -> Tensor:
    """Multiply [..., n, channels] by a sparse matrix [n, n], with all leading axes in one product.

    The result keeps the node-major memory layout of the product, so that in a chain of products
    only the first one copies.
    """
    if h.dtype != matrix.dtype and not torch.is_autocast_enabled(h.device.type):
        raise ConfigError(
            f"the signal is {h.dtype}, but the graph is {matrix.dtype}: use "
            f"Propagation(…, dtype={h.dtype})."
        )
    n, channels = h.shape[-2:]
    columns = h.reshape(-1, n, channels).transpose(0, 1).reshape(n, -1)
    out: Tensor = _SymmetricProduct.apply(matrix, columns).to(h.dtype)  # differs under autocast
    return out.reshape(n, -1, channels).transpose(0, 1).reshape(h.shape)


class Propagation:
    r"""A graph for message-passing models; matrices are computed when they are first used.

    ``adjacency`` is a symmetric SciPy matrix of non-negative weights. A degree of 0 counts as 1, as
    in :func:`specformer.graphs.normalised_laplacian`.

    Example:
        >>> path = sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> Propagation(path).adjacency(torch.tensor([[1.0], [0.0]])).flatten().tolist()
        [0.0, 1.0]
    """

    def __init__(
        self,
        adjacency: sp.csr_array,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._adjacency = _checked(adjacency)
        self.device = torch.device(device or "cpu")
        self.dtype = dtype
        self.num_nodes = int(self._adjacency.shape[0])
        self._ritz_pairs: dict[int, tuple[Tensor, Tensor]] = {}
        self._distances: dict[int, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state without cached matrices, because PyTorch cannot copy CSR matrices."""
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), kept_property)
        }

    def check(self, x: Tensor) -> None:
        """Refuse features whose number of rows is not the number of nodes."""
        if x.dim() < 2 or x.shape[-2] != self.num_nodes:
            shape = list(x.shape)
            raise ConfigError(f"x has shape {shape}, but the graph has {self.num_nodes} nodes.")

    def adjacency(self, h: Tensor) -> Tensor:
        r""":math:`D^{-1/2} A D^{-1/2} h` for ``h`` of shape [..., n, channels]."""
        return _symmetric_product(self._plain, h)

    def adjacency_with_loops(self, h: Tensor) -> Tensor:
        r""":math:`\tilde D^{-1/2} (A + I) \tilde D^{-1/2} h`, the matrix of GCN."""
        return _symmetric_product(self._looped, h)

    def one_hop(self, h: Tensor) -> Tensor:
        r""":math:`D_1^{-1/2} A_1 D_1^{-1/2} h`, :math:`A_1` the adjacency without self-loops."""
        return _symmetric_product(self._one_hop, h)

    def two_hop(self, h: Tensor) -> Tensor:
        r""":math:`D_2^{-1/2} A_2 D_2^{-1/2} h`, :math:`A_2` 1 for nodes exactly two edges apart.

        Built at the first call, see :func:`specformer.baselines.nodes.propagation.two_hop_pattern`.
        """
        return _symmetric_product(self._two_hop, h)

    def lanczos(self, steps: int) -> tuple[Tensor, Tensor]:
        r"""Ritz values [k] and vectors [n, k] of :math:`D^{-1/2} A D^{-1/2}`, computed once.

        See :func:`specformer.baselines.nodes.propagation.ritz_pairs`.
        """
        if steps not in self._ritz_pairs:
            found = ritz_pairs(_normalised(self._adjacency), steps)
            with keeping():
                values, vectors = (torch.as_tensor(x).to(self.device, self.dtype) for x in found)
                self._ritz_pairs[steps] = values, vectors
        return self._ritz_pairs[steps]

    def distances(self, limit: int) -> Tensor:
        r"""Edges between every two nodes, [n, n] uint8, or int32 for large limits, computed once.

        More than ``limit`` count as ``limit``, no path at all as ``limit + 1``. See
        :func:`specformer.baselines.nodes.propagation.hop_distances`.
        """
        if limit not in self._distances:
            distances = hop_distances(self._adjacency, limit)
            kind = torch.uint8 if limit < 255 else torch.int32
            with keeping():
                self._distances[limit] = torch.as_tensor(distances).to(self.device, kind)
        return self._distances[limit]

    @kept_property
    def degrees(self) -> Tensor:
        """Number of neighbours of each node without itself, [n] int64."""
        degrees = np.diff(neighbour_pattern(self._adjacency).indptr).astype(np.int64)
        return torch.as_tensor(degrees).to(self.device)

    @kept_property
    def edge_index(self) -> Tensor:
        """All edges in both directions, [2, edges], without self-loops."""
        edges = np.stack(neighbour_pattern(self._adjacency).tocoo().coords)
        return torch.as_tensor(edges.astype(np.int64)).to(self.device)

    @kept_property
    def edge_index_with_loops(self) -> Tensor:
        """:attr:`edge_index` followed by a self-loop at every node, [2, edges + n]."""
        loops = torch.arange(self.num_nodes, device=self.device).expand(2, -1)
        return torch.cat([self.edge_index, loops], dim=1)

    @kept_property
    def _plain(self) -> Tensor:
        return self._sparse(_normalised(self._adjacency))

    @kept_property
    def _looped(self) -> Tensor:
        loops = sp.eye_array(self.num_nodes, format="csr")
        return self._sparse(_normalised(self._adjacency + loops))

    @kept_property
    def _one_hop(self) -> Tensor:
        if not self._adjacency.diagonal().any():
            return self._plain
        loops = sp.diags_array(self._adjacency.diagonal(), format="csr")
        return self._sparse(_normalised(sp.csr_array(self._adjacency - loops)))

    @kept_property
    def _two_hop(self) -> Tensor:
        return self._sparse(_normalised(two_hop_pattern(self._adjacency).astype(np.float64)))

    def _sparse(self, matrix: sp.csr_array) -> Tensor:
        return to_torch(matrix, self.device, self.dtype)


def _checked(given: Any) -> sp.csr_array:
    """The matrix without duplicates and stored zeros; refuse one that is not an adjacency."""
    adjacency = sp.csr_array(given, dtype=np.float64, copy=True)
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise ConfigError(f"adjacency must be square, but its shape is {list(adjacency.shape)}.")
    adjacency.sum_duplicates()
    adjacency.eliminate_zeros()
    if not (np.isfinite(adjacency.data).all() and (adjacency.data >= 0).all()):
        raise ConfigError("adjacency has weights that are negative or not finite.")
    if (adjacency - adjacency.T).count_nonzero():
        raise ConfigError("adjacency must be symmetric: use adjacency.maximum(adjacency.T).")
    return adjacency


def _normalised(adjacency: sp.csr_array) -> sp.csr_array:
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    scale = sp.diags_array(1.0 / np.sqrt(np.where(degree > 0, degree, 1.0)))
    matrix = sp.csr_array(scale @ adjacency @ scale)
    matrix.sort_indices()
    return matrix


def ritz_pairs(matrix: sp.csr_array, steps: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    r"""Ritz values [k], ascending, and vectors [n, k] after k Lanczos steps from a random vector.

    .. math::
        Q = \mathrm{orth}(q, M q, \dots, M^{k-1} q), \qquad
        Q^\top M Q = W \, \mathrm{diag}(r) \, W^\top, \qquad V = Q W

    k is the smaller of ``steps`` and n. Every new direction is orthogonalised twice against all
    previous ones. If the Krylov space is exhausted, the next direction is random, so that n steps
    give all eigenpairs. The norm of ``matrix`` is assumed to be about 1.
    """
    num_nodes = matrix.shape[0]
    rng = np.random.default_rng(seed)
    basis = np.zeros((num_nodes, min(steps, num_nodes)))
    for step in range(basis.shape[1]):
        before = basis[:, :step]
        if step:
            direction = _orthogonal(matrix @ basis[:, step - 1], before)
        if not step or np.linalg.norm(direction) < _BREAKDOWN:
            direction = _orthogonal(rng.standard_normal(num_nodes), before)
        basis[:, step] = direction / np.linalg.norm(direction)
    values, mix = np.linalg.eigh(basis.T @ (matrix @ basis))
    return values, basis @ mix


def _orthogonal(direction: np.ndarray, basis: np.ndarray) -> np.ndarray:
    for _ in range(2):
        direction = direction - basis @ (basis.T @ direction)
    return direction


#: Most entries of a two-hop matrix: 3 GiB as float32 with int64 columns.
MAX_TWO_HOP_ENTRIES = 2**28
#: Most nodes for which the distances of all pairs are stored: 1.5 GiB as int32.
MAX_PAIRED_NODES = 20_000
_COLUMNS = 1024


def neighbour_pattern(adjacency: sp.csr_array) -> sp.csr_array:
    """1 where two different nodes share an edge."""
    coo = adjacency.tocoo()
    rows, columns = coo.coords
    keep = (rows != columns) & (coo.data != 0)
    ones = np.ones(int(keep.sum()), dtype=np.float32)
    return sp.csr_array((ones, (rows[keep], columns[keep])), shape=adjacency.shape)


def two_hop_pattern(adjacency: sp.csr_array) -> sp.csr_array:
    """1 where two nodes are exactly two edges apart.

    Raises:
        ConfigError: if there may be too many such pairs.
    """
    near = neighbour_pattern(adjacency)
    degree = np.diff(near.indptr).astype(np.int64)
    entries = min(int(degree @ degree), near.shape[0] ** 2)
    if entries > MAX_TWO_HOP_ENTRIES:
        raise ConfigError(
            f"the two-hop neighbourhoods of this graph may have {entries:,} entries, more than "
            f"{MAX_TWO_HOP_ENTRIES:,}; use a model that only needs direct neighbours, such as gcn."
        )
    within = near @ near
    within.data[:] = 1
    nearer = near + sp.eye_array(near.shape[0], dtype=np.float32, format="csr")
    exact = sp.csr_array(within - within.multiply(nearer))
    exact.eliminate_zeros()
    return exact


def hop_distances(adjacency: sp.csr_array, limit: int) -> np.ndarray:
    """Number of edges on a shortest path between every two nodes, [n, n].

    Longer paths count as ``limit``, and pairs without a path as ``limit + 1``.

    Raises:
        ConfigError: for more than 20,000 nodes.
    """
    num_nodes = adjacency.shape[0]
    if num_nodes > MAX_PAIRED_NODES:
        raise ConfigError(
            f"the distances of all pairs of {num_nodes:,} nodes would be {num_nodes**2:,} numbers; "
            f"use at most {MAX_PAIRED_NODES:,} nodes, or a model without distances."
        )
    closed = neighbour_pattern(adjacency) + sp.eye_array(num_nodes, dtype=np.float32, format="csr")
    _, component = connected_components(closed, directed=False)
    distances = np.empty((num_nodes, num_nodes), dtype=np.int32)
    for start in range(0, num_nodes, _COLUMNS):
        columns = slice(start, min(start + _COLUMNS, num_nodes))
        apart = component[:, None] != component[None, columns]
        distances[:, columns] = np.where(apart, limit + 1, _steps_to(closed, columns, limit))
    return distances


def _steps_to(closed: sp.csr_array, columns: slice, limit: int) -> np.ndarray:
    """Number of steps from each node to those of ``columns``, at most ``limit``.

    All searches run together, with one bit per pair: on Photo this takes 3.7 s, sparse products of
    zeros and ones take 18.6 s.
    """
    width = columns.stop - columns.start
    start = np.zeros((closed.shape[0], _COLUMNS), dtype=np.uint8)
    start[columns] = np.eye(width, _COLUMNS, dtype=np.uint8)
    reached = np.packbits(start, axis=1).view(np.uint64)
    steps = np.zeros((closed.shape[0], width), dtype=np.int32)
    for _ in range(limit):
        steps += 1 - np.unpackbits(reached.view(np.uint8), axis=1, count=width)
        before = reached
        reached = np.bitwise_or.reduceat(before[closed.indices], closed.indptr[:-1], axis=0)
        if np.array_equal(before, reached):
            break
    return steps
