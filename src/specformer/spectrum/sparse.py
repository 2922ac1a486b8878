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
