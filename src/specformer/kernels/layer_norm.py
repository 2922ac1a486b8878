r"""Layer normalisation whose scale and shift may differ from run to run."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.kernels import usable
from specformer.kernels.column_sums import column_sums


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Rows with mean 0 and variance 1, then scale and shift.

    Shapes: x ``[..., n, channels]``, or ``[n, channels]`` the same for all runs; weight and bias
    ``[channels]`` or ``[runs, channels]``; output ``[..., n, channels]`` with an axis of runs
    before the last two if weight has one.
    """
    # A compiler fuses the plain operations itself.
    if not torch.compiler.is_compiling() and usable("layer_norm", x, weight, bias):
        from specformer.kernels.triton.rows.row_norm import normalised_rows

        return normalised_rows(x, weight, bias, eps)
    channels = weight.shape[-1]
    if weight.numel() == channels:  # one run: scale and shift in the same kernel
        out = nn.functional.layer_norm(x, (channels,), weight.view(-1), bias.view(-1), eps)
        return out.unsqueeze(0) if x.dim() < weight.dim() + 1 else out
    normal = nn.functional.layer_norm(x, (channels,), eps=eps)
    return cast(Tensor, _Scaled.apply(normal, weight, bias))


class _Scaled(torch.autograd.Function):
    """Every run's rows by its scale, plus its shift: ``[..., runs, n, c]`` and ``[runs, c]``."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        ctx.save_for_backward(rows, scale)
        return torch.addcmul(shift.unsqueeze(-2), rows, scale.unsqueeze(-2))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (gradient,), (rows, scale) = gradients, ctx.saved_tensors
        to_rows = (gradient * scale.unsqueeze(-2)).sum_to_size(rows.shape)
        to_scale = column_sums(gradient * rows).squeeze(-2).sum_to_size(scale.shape)
        return to_rows, to_scale, column_sums(gradient).squeeze(-2).sum_to_size(scale.shape)
