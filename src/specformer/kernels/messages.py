r"""Messages over all pairs of nodes of many small graphs, weighted and summed at their targets."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from specformer.kernels import usable
from specformer.kernels.segments import Segments, segment_softmax, segment_sum, widened
from specformer.kernels.tracing import first_order

#: Most kinds of bonds that the kernels support: they hold a sum per kind.
_MOST_KINDS = 128


class PairIndex(NamedTuple):
    """Where the pairs (i, j) of all nodes of each graph lie, those of a target i in order of j.

    Args:
        offsets: ``[N + 1]`` where each target's pairs begin: as many as its graph has nodes.
        first: ``[N]`` the first row of a node's graph.
        bond: ``[P]`` kind of bond of each pair.
    """

    offsets: Tensor
    first: Tensor
    bond: Tensor


class Pairs(Protocol):
    """What sums over pairs need to know of a batch: one form for kernels, one for the twin."""

    @property
    def kinds(self) -> int:
        """How many kinds of bonds there are."""

    @property
    def pair_index(self) -> PairIndex:
        """Where pairs lie."""

    @property
    def is_measured(self) -> bool:
        """Whether hardly any two bonds are alike."""

    @property
    def source(self) -> Tensor:
        """The source of every pair."""

    @property
    def by_message(self) -> Segments:
        """Pairs by source and kind of bond."""

    @property
    def by_target(self) -> Segments:
        """Pairs by target."""


class Logits(NamedTuple):
    """Values ``[P, channels]`` whose softmax the kernel that sums messages will take."""

    values: Tensor


def softmax_over_sources(values: Tensor, pairs: Pairs) -> Tensor | Logits:
    """Shares ``[P, channels]`` that add up to one over the sources of each target."""
    if usable("softmax_sum", values) and pairs.kinds <= _MOST_KINDS:
        return Logits(values)
    return segment_softmax(values, pairs.by_target)


def message_sum(
    nodes: Tensor, bonds: Tensor, linear: nn.Linear, weights: Tensor | Logits, pairs: Pairs
) -> Tensor:
    r"""What all nodes of a graph send to each, weighted channel by channel.

    .. math::
        y_i = \sum_j S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b)

    Bonds are mostly of few kinds, so W h is computed for every node, W e for every kind, and a
    message for every node and kind; one for every pair only where they are measured.

    Shapes: nodes ``[N, channels]`` (h), bonds ``[kinds, channels]`` (e), weights ``[P, channels]``
    (S), output as nodes.
    """
    given = weights.values if isinstance(weights, Logits) else weights
    fused = isinstance(weights, Logits) or usable("pair_sum", nodes, given)
    if not fused or pairs.kinds > _MOST_KINDS:
        if pairs.is_measured:
            return segment_sum(_pair_messages(nodes, bonds, linear, pairs) * given, pairs.by_target)
        messages = _every_message(nodes, bonds, linear)
        return filtered_sum(messages, given, pairs.by_message, pairs.by_target)
    # The bias goes to the kinds: its gradient is then a sum over few rows.
    node = nn.functional.linear(nodes, linear.weight)
    kind = nn.functional.linear(bonds, linear.weight, linear.bias)
    from specformer.kernels.triton.pair_sum import pair_sum

    return pair_sum(node, kind, given, pairs.pair_index, softmax=isinstance(weights, Logits))


def _every_message(nodes: Tensor, bonds: Tensor, linear: nn.Linear) -> Tensor:
    """What every node would send over every kind of bond, ``[N * kinds, channels]``."""
    of_nodes = widened(linear(nodes)).unsqueeze(1)
    of_bonds = widened(nn.functional.linear(bonds, linear.weight))
    return nn.functional.gelu(of_nodes + of_bonds).flatten(0, 1)


def _pair_messages(nodes: Tensor, bonds: Tensor, linear: nn.Linear, pairs: Pairs) -> Tensor:
    """What every pair's source sends, ``[P, channels]``."""
    of_nodes = widened(linear(nodes)).index_select(0, pairs.source)
    of_bonds = widened(nn.functional.linear(bonds, linear.weight))
    return nn.functional.gelu(of_nodes + of_bonds.index_select(0, pairs.pair_index.bond))


def filtered_sum(
    messages: Tensor, bases: Tensor, by_message: Segments, by_target: Segments
) -> Tensor:
    r"""The messages of all sources, weighted channel by channel and summed at their targets.

    .. math::
        y_i = \sum_{p:\, t(p) = i} S_p \odot m_{s(p)}

    Three passes over ``[P, channels]`` forward and six backward; only the arguments are kept.

    Shapes: messages ``[rows, channels]``, bases ``[P, channels]``, output ``[N, channels]``.
    """
    return _FilteredSum.apply(messages, bases, by_message, by_target)


class _FilteredSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, messages: Tensor, bases: Tensor, by_message: Segments, by_target: Segments
    ) -> Tensor:
        ctx.save_for_backward(messages, bases)
        ctx.by_message, ctx.by_target = by_message, by_target
        return by_target.sum(messages.index_select(0, by_message.index).mul_(bases))

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        messages, bases = ctx.saved_tensors
        at_pairs = ctx.by_target.spread(gradients[0])
        of_bases = messages.index_select(0, ctx.by_message.index).mul_(at_pairs)
        of_messages = ctx.by_message.sum(at_pairs.mul_(bases))
        return of_messages, of_bases, None, None


def gelu_lift(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r""":math:`\mathrm{GELU}(x W^\top + b)` for x much narrower than the output.

    Shapes: x ``[rows, in]``, weight ``[out, in]``, bias ``[out]``, output ``[rows, out]``.
    """
    if usable("gelu_lift", x, weight):
        from specformer.kernels.triton import lift

        return lift.gelu_lift(x, weight, bias)
    return nn.functional.gelu(nn.functional.linear(x, weight, bias))
