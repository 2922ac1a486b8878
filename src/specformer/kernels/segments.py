r"""Sums, maxima and softmaxes over segments of rows, message sums, and batches from a data set.

The rows of one node or of one graph form a segment. Shapes never depend on values and sums are
always taken in the same order, so that a training step can be captured once and replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from specformer import kernels
from specformer.kernels import usable
from specformer.kernels.tracing import first_order, lazy_property


@dataclass(frozen=True)
class Segments:
    """Assignment of P rows to S segments.

    Args:
        index: ``[P]`` the segment of each row; S for a row without a segment, such as padding.
        offsets: ``[S + 1]`` where each segment starts among the rows, or among ``order``.
        order: ``[P]`` rows sorted by segment; None if the rows are sorted already.

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

    @lazy_property
    def is_empty(self) -> Tensor:
        """``[S]`` true for a segment without rows."""
        return self.offsets.diff() == 0

    def sum(self, rows: Tensor) -> Tensor:
        """The sums ``[S, channels]`` of rows ``[P, channels]``, in float32 or better."""
        rows = at_least_float32(rows)
        if _fused(rows):
            from specformer.kernels.triton.segment_rows import segment_sums

            return segment_sums(rows, self.offsets, self.order)
        plain = rows.device.type == "cpu" or torch.compiler.is_compiling()
        return sum_by_index(rows, self) if plain else sum_by_offsets(rows, self)

    def max(self, rows: Tensor) -> Tensor:
        """The maximum of each segment's rows; 0 for an empty segment.

        For gradients use :func:`segment_max`.
        """
        if torch.compiler.is_compiling():  # compilers do not know segment_reduce
            lowest = rows.new_full((self.count + 1, rows.shape[1]), -torch.inf)
            index = self.index.unsqueeze(-1).expand_as(rows)
            largest = lowest.scatter_reduce(0, index, rows, "amax")[:-1]
        else:
            rows = rows if self.order is None else rows.index_select(0, self.order)
            largest = torch.segment_reduce(rows, "max", offsets=self.offsets, axis=0, unsafe=True)
        return largest.masked_fill(self.is_empty.unsqueeze(-1), 0.0)

    def gather(self, values: Tensor, outside: float = 0.0) -> Tensor:
        """The value of each row's segment, ``[S, channels]`` to ``[P, channels]``.

        Rows without a segment get ``outside``.
        """
        return _taken(values, self.index, outside)


def _taken(values: Tensor, index: Tensor, outside: float = 0.0) -> Tensor:
    """Rows of ``values`` by their number; ``outside`` where the number is one past the end."""
    if _fused(values):
        from specformer.kernels.triton.segment_rows import gathered

        return gathered(values, index, outside)
    return nn.functional.pad(values, (0, 0, 0, 1), value=outside).index_select(0, index)


def _fused(rows: Tensor) -> bool:
    """Whether kernels may take these rows; they give no gradients."""
    learned = torch.is_grad_enabled() and rows.requires_grad
    return not learned and rows.dim() == 2 and usable("segments", rows)


@dataclass(frozen=True)
class Slots:
    """The places of P rows in a dense tensor with S places, at most one row at each.

    Args:
        index: ``[P]`` the place of each row; S for a row without a place, such as padding.
        size: number S of places.

    Example:
        >>> slots = Slots(torch.tensor([2, 0, 4]), size=4)
        >>> dense = slots.scatter(torch.tensor([[1.0], [2.0], [3.0]]))
        >>> dense.flatten().tolist(), slots.gather(dense).flatten().tolist()
        ([2.0, 0.0, 1.0, 0.0], [1.0, 2.0, 0.0])
    """

    index: Tensor
    size: int

    @lazy_property
    def row(self) -> Tensor:
        """``[S]`` the row at each place; P for an empty place."""
        rows = len(self.index)
        found = self.index.new_full((self.size + 1,), rows)
        numbers = torch.arange(rows, device=self.index.device)
        return found.index_copy_(0, self.index, numbers)[:-1]

    def scatter(self, rows: Tensor) -> Tensor:
        """Each row at its place, ``[P, channels]`` to ``[S, channels]``, zeros elsewhere."""
        return _Placed.apply(rows, self.row, self.index)

    def gather(self, dense: Tensor) -> Tensor:
        """The inverse of :meth:`scatter`; zeros for rows without a place."""
        return _Placed.apply(dense, self.index, self.row)


class _Placed(torch.autograd.Function):
    """Take rows by their number. Since none is taken twice, gradients are taken back likewise."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.there, ctx.back = there, back
        return _taken(values, there)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Placed.apply(gradients[0], ctx.back, ctx.there), None, None


def at_least_float32(x: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is: sums and statistics need the precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def signed_root(x: Tensor) -> Tensor:
    r""":math:`\rho(x) = x / \sqrt{1 + |x|}`: about x if x is small, about its root if x is large.

    It keeps products of two states bounded: without it, large states would grow without limit over
    many layers.
    """
    return x * (1.0 + x.abs()).rsqrt()


def contiguous_segments(lengths: Tensor, num_rows: int) -> Segments:
    """Segments of these lengths one after another; the remaining rows have no segment."""
    ends = lengths.cumsum(0)
    rows = torch.arange(num_rows, device=lengths.device)
    index = torch.searchsorted(ends, rows, right=True)
    return Segments(index, nn.functional.pad(ends, (1, 0)))


def scattered_segments(index: Tensor, count: int) -> Segments:
    """Segments of rows in any order; a row with the index ``count`` has no segment."""
    ordered, order = torch.sort(index, stable=True)
    starts = torch.arange(count + 1, device=index.device)
    return Segments(index, torch.searchsorted(ordered, starts), order)


def sum_by_index(rows: Tensor, segments: Segments) -> Tensor:
    """Sums by adding row after row: four times faster than :func:`sum_by_offsets` on a CPU."""
    sums = rows.new_zeros(segments.count + 1, rows.shape[1])
    return sums.index_add_(0, segments.index, rows)[:-1]


def sum_by_offsets(rows: Tensor, segments: Segments) -> Tensor:
    """Sums for a GPU: one thread per segment and channel, no atomic additions, so repeatable."""
    if segments.order is not None:
        rows = rows.index_select(0, segments.order)
    # Checks would wait for the host.
    return torch.segment_reduce(rows, "sum", offsets=segments.offsets, axis=0, unsafe=True)


def segment_sum(rows: Tensor, segments: Segments) -> Tensor:
    """The sum of each segment's rows, ``[P, channels]`` to ``[S, channels]``."""
    return _SegmentSum.apply(rows, segments)


def segment_max(rows: Tensor, segments: Segments) -> Tensor:
    """The maximum of each segment's rows, ``[P, channels]`` to ``[S, channels]``.

    An empty segment has 0. Rows that are equally large share the gradient. PyTorch's own gives each
    of them all of it where it is negative (``segment_reduce`` of 2.11 and 2.13).
    """
    return _SegmentMax.apply(rows, segments)


def segment_softmax(rows: Tensor, segments: Segments) -> Tensor:
    r"""Softmax over each segment, :math:`e^{x_p} / \sum_{q \sim p} e^{x_q}`, for every channel.

    Rows without a segment become zeros.
    """
    return _SegmentSoftmax.apply(rows, segments)


def segment_gather(values: Tensor, segments: Segments) -> Tensor:
    """The value of each row's segment, ``[S, channels]`` to ``[P, channels]``.

    Rows without a segment get zeros. Gradients are summed by segment, always in the same order.
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
        return ctx.segments.gather(gradients[0]), None


class _SegmentMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, segments: Segments) -> Tensor:
        largest = segments.max(rows)
        ctx.segments = segments
        ctx.save_for_backward(rows, largest)
        return largest

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        rows, largest = ctx.saved_tensors
        segments: Segments = ctx.segments
        is_largest = (rows == segments.gather(largest, outside=torch.nan)).to(rows.dtype)
        share = gradients[0] / segments.sum(is_largest).clamp_min(1.0)
        return is_largest * segments.gather(share.to(rows.dtype)), None


class _SegmentSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, segments: Segments) -> Tensor:
        exact = at_least_float32(rows)
        # Rows without a segment become exp(-inf) = 0.
        powers = (exact - segments.gather(segments.max(exact), outside=torch.inf)).exp_()
        shares = powers.div_(segments.gather(segments.sum(powers), outside=1.0)).to(rows.dtype)
        ctx.segments = segments
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (shares,) = ctx.saved_tensors
        weighted = gradients[0] * shares
        mean = ctx.segments.gather(ctx.segments.sum(weighted))
        return weighted.sub_(mean.mul_(shares)), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return segments.gather(values)

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
    """Copy the arrays of some graphs out of a data set, one graph after another, then zeros.

    Args:
        index: ``[B]`` which graphs.
        sizes: ``[G]`` nodes of every graph of the data set.
        starts: ``[G + 1]`` where each graph starts among the rows, and among the pairs.
        of_rows: categories ``[ΣN, columns]`` and eigenvalues ``[ΣN]`` of all nodes.
        of_pairs: kinds of bonds ``[ΣN²]`` and eigenvectors ``[ΣN²]`` of all pairs of nodes.
        num_nodes: rows of the result, with padding.
        num_pairs: pairs of the result, with padding.
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
    """Concatenated ranges of these starts and lengths, and a mask of what belongs to one.

    Shapes: start and length ``[B]``, outputs ``[count]``; the rest of the first output is 0.

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
    """Positions of all pairs (i, j) of nodes of a graph, sorted by target i and then by source j.

    Args:
        offsets: ``[N + 1]`` where each target's pairs start; each has one per node of its graph.
        first: ``[N]`` the first row of each node's graph.
        bond: ``[P]`` the kind of bond of each pair.
    """

    offsets: Tensor
    first: Tensor
    bond: Tensor


class Logits(NamedTuple):
    """Values ``[P, channels]`` before their softmax, which the kernel that sums messages takes."""

    values: Tensor


def filtered_sum(
    messages: Tensor, bases: Tensor, by_message: Segments, by_target: Segments
) -> Tensor:
    r"""Sum of messages at each target, weighted for every pair and channel.

    .. math::
        y_i = \sum_{p:\, t(p) = i} S_p \odot m_{s(p)}

    It takes three passes over ``[P, channels]`` forward and six backward, and stores only the
    arguments for the backward pass.

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
        at_pairs = ctx.by_target.gather(gradients[0])
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
