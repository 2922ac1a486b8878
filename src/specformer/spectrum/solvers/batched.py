r"""Every eigenpair of a batch of small matrices of one size, on any device."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.spectrum.eigenpairs import refined


def dense_blocks(
    matrix: sp.csr_array, first: int, count: int, n: int, device: torch.device
) -> Tensor:
    """Diagonal blocks ``[count, n, n]`` of a block-diagonal matrix, from row ``first`` on.

    Example:
        >>> blocks = sp.block_diag([[[5.0]], [[0.0, 1.0], [1.0, 0.0]]], format="csr")
        >>> dense_blocks(blocks, 1, 1, 2, torch.device("cpu")).tolist()
        [[[0.0, 1.0], [1.0, 0.0]]]
    """
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

    What is stored is float32, so that is what the checks afterwards should see.
    """
    values, vectors = torch.linalg.eigh(operator.to(precision))
    rounded = vectors.float().double()
    return (values, rounded) if precision == torch.float64 else refined(operator, rounded)
