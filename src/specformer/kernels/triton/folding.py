r"""Batch normalisation folded into the linear map before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specformer.kernels.norms import Averages
from specformer.kernels.tracing import first_order
from specformer.kernels.triton.columns import update_averages
from specformer.kernels.triton.language import jit, power_of_two, tl


def folded_norm(
    weight: Tensor,
    mean: Tensor,
    covariance: Tensor,
    scale: Tensor,
    shift: Tensor,
    number: Tensor,
    averages: Averages,
    eps: float,
) -> tuple[Tensor, Tensor]:
    r"""Fold batch norm into a linear map, for inputs with mean m and covariance C.

    .. math::
        W'_c = s_c W_c, \quad b'_c = \beta_c - s_c W_c m, \qquad
        s_c = \gamma_c / \sqrt{W_c C W_c^\top + \varepsilon}

    Updates the running averages. Their ``shift`` is the bias of the linear map, which changes
    nothing else, so that its gradient is zero.

    Shapes: weight ``[out, in]``, mean ``[in]``, covariance ``[in, in]``, scale and shift ``[out]``
    (γ, β), number of rows ``[]``; output ``[out, in]``, ``[out]``.
    """
    arguments = (weight, mean, covariance, scale, shift, number, averages.shift, averages, eps)
    return _Folded.apply(*arguments)


class _Folded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        mean: Tensor,
        covariance: Tensor,
        scale: Tensor,
        shift: Tensor,
        number: Tensor,
        bias: Tensor,
        averages: Averages,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        weight, covariance = weight.contiguous(), covariance.contiguous()
        ctx.save_for_backward(weight, mean, covariance, scale)
        ctx.eps = eps
        folded, low = torch.empty_like(weight), torch.empty_like(scale)
        given = (weight, mean, covariance, scale, shift, number, *averages[:2], bias)
        sizes = _sizes(weight)
        _fold_forward[(1,)](*given, folded, low, len(weight), averages.momentum, eps, **sizes)
        return folded, low

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, mean, covariance, scale = ctx.saved_tensors
        of_weight, of_mean = torch.empty_like(weight), torch.empty_like(mean)
        of_covariance = torch.empty_like(covariance)
        of_scale, of_bias = weight.new_empty(2, len(weight))
        of_folded, of_low = (gradient.contiguous() for gradient in gradients)
        given = (of_folded, of_low, weight, mean, covariance, scale)
        found = (of_weight, of_mean, of_covariance, of_scale, of_bias)
        _fold_backward[(1,)](*given, *found, len(weight), ctx.eps, **_sizes(weight))
        return of_weight, of_mean, of_covariance, of_scale, of_low, None, of_bias, None, None


def _sizes(weight: Tensor) -> dict[str, int]:
    wide, narrow = weight.shape
    return {"NARROW": narrow, "WIDTH": power_of_two(narrow), "WIDE": power_of_two(wide)}


@jit
def _variances(weight, covariance, w, row, entry, rows, NARROW: tl.constexpr):
    """W C and the diagonal of W C Wᵀ."""
    known = entry < NARROW
    product = tl.zeros_like(w)
    for i in tl.static_range(NARROW):
        line = tl.load(covariance + i * NARROW + entry, mask=known, other=0.0)
        column = tl.load(weight + row * NARROW + i, mask=row < rows, other=0.0)
        product += column[:, None] * line[None, :]
    var = tl.sum(product * w, axis=1)
    return product, tl.where(var < 0.0, 0.0, var)  # a maximum would turn NaN into zero


@jit
def _fold_forward(
    weight,
    mean,
    covariance,
    scale,
    shift,
    number,
    average_mean,
    average_var,
    bias,
    folded,
    low,
    rows,
    momentum,
    eps,
    NARROW: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
):
    row, entry = tl.arange(0, WIDE), tl.arange(0, WIDTH)
    there, known = row < rows, entry < NARROW
    mask = there[:, None] & known[None, :]
    place = row[:, None] * NARROW + entry[None, :]
    w = tl.load(weight + place, mask=mask, other=0.0)
    m = tl.load(mean + entry, mask=known, other=0.0)
    _, var = _variances(weight, covariance, w, row, entry, rows, NARROW)
    middle = tl.sum(w * m[None, :], axis=1)
    s = tl.load(scale + row, mask=there, other=0.0) * tl.rsqrt(var + eps)
    tl.store(folded + place, w * s[:, None], mask=mask)
    tl.store(low + row, tl.load(shift + row, mask=there, other=0.0) - s * middle, mask=there)
    n = tl.load(number)
    update_averages(average_mean, average_var, bias, middle, var, n, momentum, row, there)


@jit
def _fold_backward(
    of_folded,
    of_low,
    weight,
    mean,
    covariance,
    scale,
    of_weight,
    of_mean,
    of_covariance,
    of_scale,
    of_bias,
    rows,
    eps,
    NARROW: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
):
    row, entry = tl.arange(0, WIDE), tl.arange(0, WIDTH)
    there, known = row < rows, entry < NARROW
    mask = there[:, None] & known[None, :]
    place = row[:, None] * NARROW + entry[None, :]
    w = tl.load(weight + place, mask=mask, other=0.0)
    m = tl.load(mean + entry, mask=known, other=0.0)
    g = tl.load(of_folded + place, mask=mask, other=0.0)
    g_low = tl.load(of_low + row, mask=there, other=0.0)
    gamma = tl.load(scale + row, mask=there, other=0.0)
    product, var = _variances(weight, covariance, w, row, entry, rows, NARROW)
    inverse = tl.rsqrt(var + eps)
    s = gamma * inverse
    of_s = tl.sum(g * w, axis=1) - g_low * tl.sum(w * m[None, :], axis=1)
    of_var = -0.5 * of_s * s * inverse * inverse
    of_var = tl.where(there, of_var, 0.0)
    of_w = s[:, None] * (g - g_low[:, None] * m[None, :]) + 2.0 * of_var[:, None] * product
    tl.store(of_weight + place, of_w, mask=mask)
    tl.store(of_scale + row, of_s * inverse, mask=there)
    tl.store(of_bias + row, tl.zeros([WIDE], tl.float32), mask=there)
    tl.store(of_mean + entry, -tl.sum((g_low * s)[:, None] * w, axis=0), mask=known)
    for i in tl.static_range(NARROW):
        column = tl.load(weight + row * NARROW + i, mask=there, other=0.0)
        line = tl.sum((of_var * column)[:, None] * w, axis=0)
        tl.store(of_covariance + i * NARROW + entry, line, mask=known)
