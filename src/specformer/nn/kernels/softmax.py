r"""Messages weighted by a softmax over their sources, perhaps of normalised logits, and summed."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from specformer.nn.kernels import pair_kernels, pairs
from specformer.nn.kernels.columns import column_sum
from specformer.nn.kernels.language import LOG2_E, clear_padding, jit, messages, tl
from specformer.nn.kernels.pair_kernels import scaling
from specformer.nn.kernels.statistics import Standard
from specformer.nn.segments import PairIndex


def softmax_sum(
    node: Tensor,
    kind: Tensor,
    values: Tensor,
    index: PairIndex,
    scale: Tensor | None = None,
    standard: Standard | None = None,
    idle: tuple[Tensor, ...] = (),
) -> Tensor:
    r"""What all nodes of a graph send to each, in shares that add up to one.

    .. math::
        y_i = \sum_j p_{ij} \odot \mathrm{GELU}(a_j + b_{k(i, j)}), \qquad
        p_{ij} = e^{x_{ij} - \ell_i}, \quad \ell_i = \log \sum_j e^{x_{ij}}

    with logits x the values, or those normalised over all pairs, :math:`x = w (v - \mu) / \sigma`;
    a shift of all logits changes no share, so biases that do no more (``idle``) get gradients of
    zero. Only the ℓ are kept, not the shares. Backward,
    :math:`\partial x_{ij} = p_{ij}\, g_i (m_{ij} - y_i)`, for :math:`y_i` is the mean message.

    Shapes: node ``[N, channels]`` (a), kind ``[kinds, channels]`` (b), values ``[P, channels]``,
    scale and idle ``[channels]`` (w), output as node.
    """
    return cast(Tensor, _SoftmaxSum.apply(node, kind, values, index, scale, standard, *idle))


class _SoftmaxSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        node: Tensor,
        kind: Tensor,
        values: Tensor,
        index: PairIndex,
        scale: Tensor | None,
        standard: Standard | None,
        *idle: Tensor,
    ) -> Tensor:
        node, kind, values = node.contiguous(), kind.contiguous(), values.contiguous()
        out, lse = torch.empty_like(node), torch.empty_like(node)
        centre = gain = inverse = joint = out  # not looked at
        if scale is not None and standard is not None:
            centre, inverse = standard.mean, standard.inverse
            gain, joint = scale * inverse, torch.empty_like(node)
        pair_kernels.forward[pairs.FORWARD.grid(node)](
            node,
            kind,
            values,
            centre,
            gain,
            inverse,
            out,
            lse,
            joint,
            *index,
            node.shape[1],
            SOFTMAX=True,
            GAIN=standard is not None,
            **pairs.FORWARD.options(node),
        )
        ctx.save_for_backward(node, kind, values, out, lse, centre, gain, joint)
        ctx.index, ctx.standard, ctx.idle = index, standard, len(idle)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        node, kind, values, out, lse, centre, gain, joint = ctx.saved_tensors
        index, standard = ctx.index, ctx.standard
        gradient = gradients[0].contiguous()
        given = (index, centre, gain, lse, standard is not None)
        of_node, of_kind = pairs.message_gradients(node, kind, values, gradient, *given)
        of_scale, norm = None, (out, out, out)
        if standard is not None:
            of_scale = column_sum(gradient * joint)
            norm = (standard.inverse, of_scale, standard.number)
        of_values = torch.empty_like(values)
        _slopes_of_values[pairs.BACKWARD.grid(node)](
            node,
            kind,
            values,
            out,
            lse,
            gradient,
            centre,
            gain,
            *norm,
            of_values,
            *index,
            *node.shape,
            len(values),
            GAIN=standard is not None,
            **pairs.BACKWARD.options(node),
        )
        still = node.new_zeros(ctx.idle, node.shape[1])
        return of_node, of_kind, of_values, None, of_scale, None, *still


@jit
def _slopes_of_values(
    node,
    kind,
    values,
    out,
    lse,
    gradient,
    centre,
    gain,
    inverse,
    total,
    number,
    of_values,
    offsets,
    first,
    bond,
    targets,
    channels,
    pairs,
    GAIN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradients in the values of one target and block of columns, and zeros for padding."""
    target = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    place = target * channels + column
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    source = tl.load(first + target)
    y = tl.load(out + place, mask=inside, other=0.0)
    level = tl.load(lse + place, mask=inside, other=0.0)
    g = tl.load(gradient + place, mask=inside, other=0.0)
    middle, scale = scaling(centre, gain, column, inside, COLUMNS, GAIN)
    back = tl.zeros([COLUMNS], tl.float32)
    if GAIN:
        # What every pair adds through the variance. Through the mean none does: a shift of all
        # logits changes nothing.
        back = tl.load(total + column, mask=inside, other=0.0) / tl.load(number)
        back *= tl.load(inverse + column, mask=inside, other=0.0)
    for start in range(begin, end, ROWS):
        pair = start + tl.arange(0, ROWS)
        real = pair < end
        mask = real[:, None] & inside[None, :]
        k = tl.load(bond + pair, mask=real, other=0)
        at = pair[:, None] * channels + column[None, :]
        off = tl.load(values + at, mask=mask, other=0.0) - middle[None, :]
        message = messages(node, kind, k, source + pair - begin, column, mask, channels)
        share = tl.exp2(off * (scale * LOG2_E)[None, :] - level[None, :])
        slope = share * g[None, :] * (message - y[None, :]) - back[None, :] * off
        tl.store(of_values + at, scale[None, :] * slope, mask=mask)
    clear_padding(of_values, offsets, target, targets, pairs, column, channels, ROWS)
