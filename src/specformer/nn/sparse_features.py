r"""Node features of which most are zero, such as bags of words, multiplied as sparse."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from specformer.spectrum.sparse import compressed_rows


@dataclass(frozen=True)
class SparseFeatures:
    r"""Features ``[n, in]`` by their non-zero entries, to be given to a model in place of a tensor.

    Dropout draws for the entries alone, since zeros stay zeros, and the first linear map multiplies
    only them: on Cora, one entry in eighty, that was a third of an epoch's time on a CPU.

    Args:
        starts, columns, values: rows in compressed form (CSR).
        transposed_starts, transposed_columns: the transposed matrix in the same form.
        order: ``[entries]`` place of the transposed matrix's entries among ``values``.
        in_channels: features.

    Example:
        >>> x = SparseFeatures.from_scipy(sp.csr_array(np.array([[0.0, 2.0], [1.0, 0.0]])))
        >>> x.linear(torch.tensor([[1.0, 10.0]]), None)
        tensor([[20.],
                [ 1.]])
    """

    starts: Tensor
    columns: Tensor
    values: Tensor
    transposed_starts: Tensor
    transposed_columns: Tensor
    order: Tensor
    in_channels: int

    @classmethod
    def from_scipy(
        cls, matrix: sp.csr_array, *, dtype: torch.dtype = torch.float32
    ) -> SparseFeatures:
        """From a SciPy matrix of compressed rows."""
        places = sp.csr_array(
            (np.arange(1, matrix.nnz + 1), matrix.indices, matrix.indptr), shape=matrix.shape
        )
        flipped = sp.csr_array(places.T)
        index = [
            torch.as_tensor(np.asarray(array, dtype=np.int64))
            for array in (
                matrix.indptr,
                matrix.indices,
                flipped.indptr,
                flipped.indices,
                flipped.data - 1,
            )
        ]
        values = torch.as_tensor(np.asarray(matrix.data)).to(dtype)
        return cls(index[0], index[1], values, index[2], index[3], index[4], int(matrix.shape[1]))

    @property
    def num_nodes(self) -> int:
        return len(self.starts) - 1

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def to(self, device: torch.device | str) -> SparseFeatures:
        """On another device."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {
            name: part.to(device) if isinstance(part, Tensor) else part
            for name, part in content.items()
        }
        return SparseFeatures(**moved)

    def linear(self, weight: Tensor, bias: Tensor | None, dropout: float = 0.0) -> Tensor:
        r"""The affine map :math:`\mathrm{dropout}(X) W^\top + b`.

        Shapes: weight ``[out, in]`` or ``[runs, out, in]``, bias accordingly; ``[..., n, out]``.
        """
        values = self.values
        if dropout > 0:
            values = nn.functional.dropout(values.expand(*weight.shape[:-2], -1), dropout)
        out = cast(Tensor, _SparseLinear.apply(values, weight, self))
        return out if bias is None else out + bias.unsqueeze(-2)

    def product(self, values: Tensor, dense: Tensor) -> Tensor:
        """``X @ dense`` with other values at the same places, ``[in, c]`` to ``[n, c]``."""
        shape = (self.num_nodes, self.in_channels)
        return compressed_rows(self.starts, self.columns, values, shape) @ dense

    def transposed_product(self, values: Tensor, dense: Tensor) -> Tensor:
        """``Xᵀ @ dense``, ``[n, c]`` to ``[in, c]``."""
        shape = (self.in_channels, self.num_nodes)
        ordered = values.index_select(-1, self.order)
        flipped = compressed_rows(self.transposed_starts, self.transposed_columns, ordered, shape)
        return flipped @ dense


class _SparseLinear(torch.autograd.Function):
    """``X Wᵀ``, run by run where dropout has left each its own values, else all runs at once."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, features: SparseFeatures) -> Tensor:
        ctx.features = features
        ctx.save_for_backward(values)
        if weight.dim() == 2:
            return features.product(values, weight.mT.contiguous())
        if values.dim() == 1:
            runs, out = weight.shape[:2]
            joined = features.product(values, weight.flatten(0, 1).mT.contiguous())
            return joined.view(-1, runs, out).transpose(0, 1)
        columns = weight.mT.contiguous()
        parts = [features.product(v, w) for v, w in zip(values, columns, strict=True)]
        return torch.stack(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        (values,) = ctx.saved_tensors
        gradient, features = gradients[0].contiguous(), ctx.features
        if gradient.dim() == 2:
            return None, features.transposed_product(values, gradient).mT, None
        each = values if values.dim() == 2 else values.expand(len(gradient), -1)
        parts = [features.transposed_product(v, g).mT for v, g in zip(each, gradient, strict=True)]
        return None, torch.stack(parts), None
