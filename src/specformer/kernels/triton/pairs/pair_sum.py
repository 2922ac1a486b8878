r"""Messages made, weighted and summed at their targets, in one pass."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from specformer.kernels.first_order import first_order
from specformer.kernels.messages import PairIndex
from specformer.kernels.triton.language import COLUMNS, blocks, power_of_two
from specformer.kernels.triton.pairs import passes
from specformer.kernels.triton.rows.columns import column_sum


class Tile(NamedTuple):
    """Pairs and channels that a program takes at once, and its warps."""

    rows: int
    columns: int
    warps: int

    def fitted(self, channels: int) -> Tile:
        """With fewer columns where these would be of more channels than there are."""
        return self if channels % self.columns == 0 else self._replace(columns=COLUMNS)

    def grid(self, node: Tensor) -> tuple[int, int]:
        """One program per row and block of columns."""
        rows, channels = node.shape
        return rows, blocks(channels, self.fitted(channels).columns)

    def options(self, node: Tensor) -> dict[str, int]:
        """What kernels are told of it."""
        rows, columns, warps = self.fitted(node.shape[1])
        return {"ROWS": rows, "COLUMNS": columns, "num_warps": warps}


#: Of the kernels over a target's pairs, forward and backward: one warp, so that sums stay within.
FORWARD, BACKWARD = Tile(8, 64, 1), Tile(8, 128, 1)
#: Of that over the pairs of a group of sources, whose products take no fewer rows than 16.
SOURCES = Tile(16, COLUMNS, 2)
#: Programs of that kernel: a few for every place on a GPU of 132 multiprocessors.
_PROGRAMS = 8192


def pair_sum(
    node: Tensor, kind: Tensor, weight: Tensor, index: PairIndex, softmax: bool = False
) -> Tensor:
    r"""What all nodes of a graph send to each, weighted channel by channel.

    .. math::
        y_i = \sum_j w_{ij} \odot \mathrm{GELU}(a_j + b_{k(i, j)}), \qquad w_{ij} = S_{ij}
        \quad\text{or}\quad w_{ij} = e^{S_{ij} - \ell_i}, \; \ell_i = \log \sum_j e^{S_{ij}}

    With ``softmax`` weights are shares that add up to one, of which only the ℓ are kept. One pass
    over ``[P, channels]`` forward and two backward; messages are never held.

    Shapes: node ``[N, channels]`` (a), kind ``[kinds, channels]`` (b), weight ``[P, channels]``
    (S), output as node.
    """
    return cast(Tensor, _PairSum.apply(node, kind, weight, index, softmax))


class _PairSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, node: Tensor, kind: Tensor, weight: Tensor, index: PairIndex, softmax: bool
    ) -> Tensor:
        node, kind, weight = node.contiguous(), kind.contiguous(), weight.contiguous()
        out = torch.empty_like(node)
        lse = torch.empty_like(node) if softmax else out  # then unused
        passes.forward[FORWARD.grid(node)](
            node,
            kind,
            weight,
            out,
            lse,
            *index,
            node.shape[1],
            SOFTMAX=softmax,
            **FORWARD.options(node),
        )
        ctx.save_for_backward(node, kind, weight, *((out, lse) if softmax else ()))
        ctx.index = index
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        node, kind, weight, *shares = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_weight = torch.empty_like(weight)
        out, lse = shares or (gradient, None)
        passes.of_weights[BACKWARD.grid(node)](
            node,
            kind,
            weight,
            out,
            gradient if lse is None else lse,
            gradient,
            of_weight,
            *ctx.index,
            len(node),
            len(weight),
            node.shape[1],
            SOFTMAX=lse is not None,
            **BACKWARD.options(node),
        )
        of_messages = message_gradients(node, kind, weight, gradient, ctx.index, lse)
        return *of_messages, of_weight, None, None


def message_gradients(
    node: Tensor,
    kind: Tensor,
    weight: Tensor,
    gradient: Tensor,
    index: PairIndex,
    lse: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients in ``node`` and in ``kind``; with ``lse`` weights are logits."""
    rows, channels = node.shape
    wide = SOURCES.grid(node)[1]
    # Small groups leave many parts of the kinds' sums to add, large ones few programs.
    group = power_of_two(rows * wide // _PROGRAMS)
    parts = blocks(rows, group)
    of_node = torch.empty_like(node)
    of_kind = kind.new_empty(parts, *kind.shape)
    passes.of_messages[(parts, wide)](
        node,
        kind,
        weight,
        node if lse is None else lse,
        gradient,
        of_node,
        of_kind,
        *index,
        rows,
        len(kind),
        channels,
        SOFTMAX=lse is not None,
        GROUP=group,
        KINDS=power_of_two(len(kind), least=16),  # the least that products take
        **SOURCES.options(node),
        num_stages=1,  # most sources have one block of pairs: nothing to read ahead
    )
    return of_node, column_sum(of_kind.flatten(1)).view_as(kind)
