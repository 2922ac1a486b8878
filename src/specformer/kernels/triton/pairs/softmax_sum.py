r"""Messages weighted by a softmax over their sources, and summed."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from specformer.kernels.first_order import first_order
from specformer.kernels.messages import PairIndex
from specformer.kernels.triton.language import LOG2_E, clear_padding, jit, messages, tl
from specformer.kernels.triton.pairs import pair_sum, passes


def softmax_sum(node: Tensor, kind: Tensor, values: Tensor, index: PairIndex) -> Tensor:
    r"""What all nodes of a graph send to each, in shares that add up to one.

    .. math::
        y_i = \sum_j p_{ij} \odot \mathrm{GELU}(a_j + b_{k(i, j)}), \qquad
        p_{ij} = e^{x_{ij} - \ell_i}, \quad \ell_i = \log \sum_j e^{x_{ij}}

    Only the ℓ are kept, not the shares. Backward,
    :math:`\partial x_{ij} = p_{ij}\, g_i (m_{ij} - y_i)`, for :math:`y_i` is the mean message.

    Shapes: node ``[N, channels]`` (a), kind ``[kinds, channels]`` (b), values ``[P, channels]``
    (x), output as node.
    """
    return cast(Tensor, _SoftmaxSum.apply(node, kind, values, index))


class _SoftmaxSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, node: Tensor, kind: Tensor, values: Tensor, index: PairIndex) -> Tensor:
        node, kind, values = node.contiguous(), kind.contiguous(), values.contiguous()
        out, lse = torch.empty_like(node), torch.empty_like(node)
        passes.forward[pair_sum.FORWARD.grid(node)](
            node,
            kind,
            values,
            out,
            lse,
            *index,
            node.shape[1],
            SOFTMAX=True,
            **pair_sum.FORWARD.options(node),
        )
        ctx.save_for_backward(node, kind, values, out, lse)
        ctx.index = index
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        node, kind, values, out, lse = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_values = torch.empty_like(values)
        _slopes_of_values[pair_sum.BACKWARD.grid(node)](
            node,
            kind,
            values,
            out,
            lse,
            gradient,
            of_values,
            *ctx.index,
            *node.shape,
            len(values),
            **pair_sum.BACKWARD.options(node),
        )
        return (
            *pair_sum.message_gradients(node, kind, values, gradient, ctx.index, lse),
            of_values,
            None,
        )


@jit
def _slopes_of_values(
    node,
    kind,
    values,
    out,
    lse,
    gradient,
    of_values,
    offsets,
    first,
    bond,
    targets,
    channels,
    pairs,
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
    for start in range(begin, end, ROWS):
        pair = start + tl.arange(0, ROWS)
        real = pair < end
        mask = real[:, None] & inside[None, :]
        k = tl.load(bond + pair, mask=real, other=0)
        at = pair[:, None] * channels + column[None, :]
        x = tl.load(values + at, mask=mask, other=0.0)
        message = messages(node, kind, k, source + pair - begin, column, mask, channels)
        share = tl.exp2(x * LOG2_E - level[None, :])
        tl.store(of_values + at, share * g[None, :] * (message - y[None, :]), mask=mask)
    clear_padding(of_values, offsets, target, targets, pairs, column, channels, ROWS)
