r"""Groups of rows: their sums, maxima and softmaxes, messages, and batches cut from a data set.

Rows of one node or of one graph form a segment. Shapes never depend on values, so that a step made
of these can be captured once and replayed, and sums are taken in the same order each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from specformer import kernels
from specformer.kernels import usable
from specformer.kernels.tracing import first_order


@dataclass(frozen=True)
class Segments:
    """Which of S segments each of P rows belongs to.

    Args:
        index: ``[P]`` a row's segment; S for a row of none, as padding is.
        offsets: ``[S + 1]`` where each segment begins among the rows, or among ``order``.
        order: ``[P]`` rows sorted by segment; None where they lie so.

    Example:
        >>> segments = contiguous_segments(torch.tensor([2, 1]), num_rows=4)
        >>> segments.index.tolist()
        [0, 0, 1, 2]
        >>> segment_sum(torch.tensor([[1.0], [2.0], [3.0], [9.0]]), segments)
        tensor([[3.],
                [3.]])
    """

    index: Tensor
    offsets: Tensor
    order: Tensor | None = None

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def is_empty(self) -> Tensor:
        """``[S]`` true for a segment without rows."""
        return self.offsets.diff() == 0

    def sum(self, rows: Tensor) -> Tensor:
        """The sums ``[S, channels]`` of rows ``[P, channels]``, in float32 or better."""
        rows = widened(rows)
        plain = rows.device.type == "cpu" or torch.compiler.is_compiling()
        return sum_by_index(rows, self) if plain else sum_by_offsets(rows, self)

    def max(self, rows: Tensor) -> Tensor:
        """The largest of each segment's rows, which lie in order; 0 without any."""
        if torch.compiler.is_compiling():  # of which every compiler knows an equal
            lowest = rows.new_full((self.count + 1, rows.shape[1]), -torch.inf)
            index = self.index.unsqueeze(-1).expand_as(rows)
            largest = lowest.scatter_reduce(0, index, rows, "amax")[:-1]
            return largest.masked_fill(self.is_empty.unsqueeze(-1), 0.0)
        largest = torch.segment_reduce(rows, "max", offsets=self.offsets, axis=0, unsafe=True)
        return largest.masked_fill(self.is_empty.unsqueeze(-1), 0.0)

    def spread(self, values: Tensor, outside: float = 0.0) -> Tensor:
        """Each row's own of the values ``[S, channels]``; ``outside`` for a row of no segment."""
        padded = nn.functional.pad(values, (0, 0, 0, 1), value=outside)
        return padded.index_select(0, self.index)


def widened(x: Tensor) -> Tensor:
    """The tensor in float32 if it has less: sums and statistics need the digits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def signed_root(x: Tensor) -> Tensor:
    r""":math:`\rho(x) = x / \sqrt{1 + |x|}`: the number if it is small, the root of a large one.

    A product of two states grows with both. Layer after layer of products, what is ten times the
    usual would soon be beyond all bounds, were it not for the root.
    """
    return x * (1.0 + x.abs()).rsqrt()


def contiguous_segments(lengths: Tensor, num_rows: int) -> Segments:
    """Segments of these lengths one after another; what remains of the rows is in none."""
    ends = lengths.cumsum(0)
    rows = torch.arange(num_rows, device=lengths.device)
    index = torch.searchsorted(ends, rows, right=True)
    return Segments(index, nn.functional.pad(ends, (1, 0)))


def scattered_segments(index: Tensor, count: int) -> Segments:
    """Segments of rows in any order; an index of ``count`` means none."""
    ordered, order = torch.sort(index, stable=True)
    starts = torch.arange(count + 1, device=index.device)
    return Segments(index, torch.searchsorted(ordered, starts), order)


def sum_by_index(rows: Tensor, segments: Segments) -> Tensor:
    """Add row after row: four times faster than :func:`sum_by_offsets` on a CPU."""
    sums = rows.new_zeros(segments.count + 1, rows.shape[1])
    return sums.index_add_(0, segments.index, rows)[:-1]


def sum_by_offsets(rows: Tensor, segments: Segments) -> Tensor:
    """One thread per segment and channel: on a GPU, without atomic additions, so repeatable."""
    if segments.order is not None:
        rows = rows.index_select(0, segments.order)
    # Checks would wait for the host.
    return torch.segment_reduce(rows, "sum", offsets=segments.offsets, axis=0, unsafe=True)


def segment_sum(rows: Tensor, segments: Segments) -> Tensor:
    """The sum of each segment's rows, ``[P, channels]`` to ``[S, channels]``."""
    return _SegmentSum.apply(rows, segments)


def segment_softmax(rows: Tensor, segments: Segments) -> Tensor:
    r"""Each channel's shares within a segment, :math:`e^{x_p} / \sum_{q \sim p} e^{x_q}`.

    Segments are contiguous. Rows of no segment become zeros.
    """
    return _SegmentSoftmax.apply(rows, segments)


def spread(values: Tensor, segments: Segments) -> Tensor:
    """Each row's own of the values ``[S, channels]``, zeros for a row of no segment.

    Gradients are summed segment by segment, in the same order each time.
    """
    return _Spread.apply(values, segments)


class _SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return segments.sum(rows)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.segments.spread(gradients[0]), None


class _SegmentSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, segments: Segments) -> Tensor:
        exact = widened(rows)
        # Minus infinity outside of segments, so that padding has no share.
        powers = (exact - segments.spread(segments.max(exact), outside=torch.inf)).exp_()
        shares = powers.div_(segments.spread(segments.sum(powers), outside=1.0)).to(rows.dtype)
        ctx.segments = segments
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (shares,) = ctx.saved_tensors
        weighted = gradients[0] * shares
        mean = ctx.segments.spread(ctx.segments.sum(weighted))
        return weighted.sub_(mean.mul_(shares)), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return segments.spread(values)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.segments.sum(gradients[0]).to(gradients[0].dtype), None


def cut(
    index: Tensor,
    sizes: Tensor,
    starts: tuple[Tensor, Tensor],
    of_rows: tuple[Tensor, Tensor],
    of_pairs: tuple[Tensor, Tensor],
    num_nodes: int,
    num_pairs: int,
) -> dict[str, Tensor]:
    """The arrays of these graphs one after another, then zeros, by name.

    Shapes: index ``[B]``; of all G graphs, sizes ``[G]``, starts of rows and of pairs ``[G + 1]``;
    of_rows ``[ΣN, columns]`` integers and ``[ΣN]``, of_pairs ``[ΣN²]`` integers and ``[ΣN²]``.
    """
    if kernels.runs_on(index.device, "batch_cut"):  # one kernel instead of some thirty
        from specformer.kernels.triton.cutting import batch_cut

        return batch_cut(index, sizes, starts, of_rows, of_pairs, num_nodes, num_pairs)
    (nodes, values), (bond, vectors) = of_rows, of_pairs
    chosen = sizes.index_select(0, index)
    node, is_node = stretches(starts[0].index_select(0, index), chosen, num_nodes)
    pair, is_pair = stretches(starts[1].index_select(0, index), chosen * chosen, num_pairs)
    return {
        "sizes": chosen,
        "nodes": nodes.index_select(0, node).long() * is_node.unsqueeze(1),
        "eigenvalues": values.index_select(0, node) * is_node,
        "bond": bond.index_select(0, pair).long() * is_pair,
        "eigenvectors": vectors.index_select(0, pair) * is_pair,
    }


def stretches(start: Tensor, length: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The stretches of these starts and lengths one after another, and what is one of them.

    Shapes: start and length ``[B]``, output ``[count]``; what remains points to 0.

    Example:
        >>> place, real = stretches(torch.tensor([10, 30]), torch.tensor([2, 1]), 4)
        >>> place.tolist(), real.tolist()
        ([10, 11, 30, 0], [True, True, True, False])
    """
    end = length.cumsum(0)
    number = torch.arange(count, device=start.device)
    of = torch.searchsorted(end, number, right=True)
    real = of < len(start)
    shift = (start - end + length).index_select(0, of.clamp(max=len(start) - 1))
    return (number + shift) * real, real


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


class Logits(NamedTuple):
    """Values ``[P, channels]`` whose softmax the kernel that sums messages will take."""

    values: Tensor


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
