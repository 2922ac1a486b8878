r"""SciPy's sparse matrices as PyTorch's."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def to_torch(matrix: sp.csr_array, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The same matrix as a PyTorch CSR tensor.

    Example:
        >>> to_torch(sp.csr_array(np.eye(2)), torch.device("cpu"), torch.float32) @ torch.ones(2)
        tensor([1., 1.])
    """
    return compressed_rows(
        torch.as_tensor(matrix.indptr.astype(np.int64)).to(device),
        torch.as_tensor(matrix.indices.astype(np.int64)).to(device),
        torch.as_tensor(matrix.data).to(device, dtype),
        (int(matrix.shape[0]), int(matrix.shape[1])),
    )


def compressed_rows(
    starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """A CSR tensor of parts that are known to be right, without a check and without a wait."""
    with warnings.catch_warnings():  # "in beta" since 2021, "invariants": not the user's concern
        warnings.filterwarnings("ignore", message="Sparse (CSR|invariant)")
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


def sparse_product(matrix: Tensor, dense: Tensor) -> Tensor:
    """``matrix @ dense`` in the matrix's precision, autocast or not: a CPU has no shorter one."""
    kind = dense.device.type
    if not torch.is_autocast_enabled(kind):
        return matrix @ dense
    with torch.autocast(kind, enabled=False):
        return matrix @ dense.to(matrix.dtype)
