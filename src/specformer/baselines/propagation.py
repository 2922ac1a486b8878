r"""Sparse products with a graph's matrices: what spatial and polynomial models are made of."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


class _SymmetricProduct(torch.autograd.Function):
    """``matrix @ dense`` for a constant symmetric matrix: its own backward, with no transpose."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradients[0]


def _symmetric_product(matrix: Tensor, h: Tensor) -> Tensor:
    """Apply an [n, n] sparse matrix to [..., n, channels], every leading axis in one product.

    The result keeps the product's node-major memory, so of a chain of products (a polynomial) only
    the first one copies.
    """
    n, channels = h.shape[-2:]
    columns = h.reshape(-1, n, channels).transpose(0, 1).reshape(n, -1)
    out: Tensor = _SymmetricProduct.apply(matrix, columns)
    return out.reshape(n, -1, channels).transpose(0, 1).reshape(h.shape)


class Propagation:
    r"""A graph as message-passing models see it.

    ``adjacency`` is a symmetric SciPy matrix of non-negative weights. Degree 0 counts as 1, as in
    :func:`specformer.graphs.normalised_laplacian`.

    Example:
        >>> path = sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> Propagation(path).laplacian(torch.tensor([[1.0], [0.0]])).flatten().tolist()
        [1.0, -1.0]
    """

    def __init__(
        self,
        adjacency: sp.csr_array,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._adjacency = sp.csr_array(adjacency)
        self.device = torch.device(device or "cpu")
        self.dtype = dtype
        self.num_nodes = int(self._adjacency.shape[0])

    def adjacency(self, h: Tensor) -> Tensor:
        r""":math:`D^{-1/2} A D^{-1/2} h` for ``h`` of shape [..., n, channels]."""
        return _symmetric_product(self._plain, h)

    def laplacian(self, h: Tensor) -> Tensor:
        r""":math:`h - D^{-1/2} A D^{-1/2} h`."""
        return h - self.adjacency(h)

    def adjacency_with_loops(self, h: Tensor) -> Tensor:
        r""":math:`\tilde D^{-1/2} (A + I) \tilde D^{-1/2} h`, the matrix of GCN."""
        return _symmetric_product(self._looped, h)

    @cached_property
    def edge_index(self) -> Tensor:
        """Every directed edge once, [2, edges], without self-loops."""
        coo = self._adjacency.tocoo()
        rows, cols = coo.coords
        keep = rows != cols
        return torch.as_tensor(np.stack([rows[keep], cols[keep]]).astype(np.int64)).to(self.device)

    @cached_property
    def edge_index_with_loops(self) -> Tensor:
        """:attr:`edge_index` followed by a self-loop at every node, [2, edges + n]."""
        loops = torch.arange(self.num_nodes, device=self.device).expand(2, -1)
        return torch.cat([self.edge_index, loops], dim=1)

    @cached_property
    def _plain(self) -> Tensor:
        return self._normalised(self._adjacency)

    @cached_property
    def _looped(self) -> Tensor:
        return self._normalised(self._adjacency + sp.eye_array(self.num_nodes, format="csr"))

    def _normalised(self, adjacency: sp.csr_array) -> Tensor:
        degree = np.asarray(adjacency.sum(axis=1)).ravel()
        scale = sp.diags_array(1.0 / np.sqrt(np.where(degree > 0, degree, 1.0)))
        matrix = sp.csr_array(scale @ adjacency @ scale)
        matrix.sort_indices()
        return _to_torch(matrix, self.device, self.dtype)


def _to_torch(matrix: sp.csr_array, device: torch.device, dtype: torch.dtype) -> Tensor:
    with warnings.catch_warnings():  # "in beta" since 2021, "invariants": not the user's concern
        warnings.filterwarnings("ignore", message="Sparse (CSR|invariant)")
        return torch.sparse_csr_tensor(
            torch.as_tensor(matrix.indptr.astype(np.int64)),
            torch.as_tensor(matrix.indices.astype(np.int64)),
            torch.as_tensor(matrix.data),
            size=matrix.shape,
            dtype=dtype,
            device=device,
            check_invariants=False,
        )
