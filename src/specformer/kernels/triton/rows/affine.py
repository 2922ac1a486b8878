r"""A linear map whose bias gets its gradient from a fast column sum."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from specformer.kernels.first_order import first_order
from specformer.kernels.triton.rows.columns import column_sum


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r"""``torch.nn.functional.linear``, :math:`x W^\top + b`.

    Shapes: x ``[rows, in]``, weight ``[out, in]``, bias ``[out]``, output ``[rows, out]``.
    """
    return cast(Tensor, _Linear.apply(x, weight, bias))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.mT)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        return gradient @ weight, gradient.mT @ x, column_sum(gradient)
