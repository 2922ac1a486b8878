r"""Copies of a signal, weighted and summed."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from specformer.kernels.column_sums import column_sums


def weighted_sum(copies: Tensor, weight: Tensor) -> Tensor:
    """Copies ``[..., n, M, channels]`` times weights ``[..., M, channels]``, summed over M."""
    return cast(Tensor, _WeightedSum.apply(copies, weight))


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, copies: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(copies, weight)
        return (copies * weight.unsqueeze(-3)).sum(dim=-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gradient, (copies, weight) = gradients[0].unsqueeze(-2), ctx.saved_tensors
        sums = column_sums((gradient * copies).flatten(-2))
        # One weight of many signals collects all their gradients.
        to_weight = sums.unflatten(-1, weight.shape[-2:]).squeeze(-3).sum_to_size(weight.shape)
        return gradient * weight.unsqueeze(-3), to_weight
