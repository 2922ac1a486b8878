r"""Figures of merit of many runs at once, computed where the outputs are.

Nothing here waits for the device, so that an epoch with any of them can be captured. Shapes:
``R`` runs, ``t`` targets, ``n`` nodes; a weight of 1 counts a node, 0 leaves it out. Tests compare
each with scikit-learn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specformer.training.engine.distributed import Share


class Ranks:
    """The nodes in the order of their scores ``[..., n]``, the highest first.

    Nodes of equal scores are ranked together: sums are over all nodes that rank as high or higher.
    """

    def __init__(self, scores: Tensor) -> None:
        ordered, self.order = scores.sort(dim=-1, descending=True, stable=True)
        size = scores.shape[-1]
        places = torch.arange(size, device=scores.device)
        last = torch.ones_like(ordered, dtype=torch.bool)
        torch.ne(ordered[..., 1:], ordered[..., :-1], out=last[..., :-1])
        ends = torch.where(last, places, size - 1)
        #: The place of the last node that has the same score.
        self.last = ends.flip(-1).cummin(dim=-1).values.flip(-1)

    def ordered(self, weights: Tensor) -> Tensor:
        """Weights ``[..., n]`` in this order, in float64, whose sums of whole numbers are exact."""
        return weights.double().gather(-1, self.order.expand(weights.shape))

    def up_to(self, ordered: Tensor) -> Tensor:
        """At every place, the sum over all nodes that rank as high or higher."""
        return ordered.cumsum(dim=-1).gather(-1, self.last.expand(ordered.shape))


def rocauc(scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    r"""Area under the receiver operating characteristic; NaN without both classes.

    The share of pairs of a positive and a negative node in which the positive one scores higher;
    equal scores count half.

    Shapes: scores ``[R, t, n]``, weights ``[parts, R, t, n]`` to ``[parts, R, t]``.
    """
    ranks = Ranks(scores)
    ones, zeros = ranks.ordered(positive), ranks.ordered(negative)
    all_pairs = ones.sum(dim=-1) * zeros.sum(dim=-1)
    not_below = (zeros * ranks.up_to(ones)).sum(dim=-1)
    not_above = (ones * ranks.up_to(zeros)).sum(dim=-1)
    return (not_below + all_pairs - not_above) / (2 * all_pairs)


def average_precision(scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    r"""Mean precision at the positive nodes, :math:`\sum_k (R_k - R_{k-1}) P_k`.

    NaN without both classes. Shapes as in :func:`rocauc`.
    """
    ranks = Ranks(scores)
    ones, zeros = ranks.ordered(positive), ranks.ordered(negative)
    above = ranks.up_to(ones)
    precision = above / (above + ranks.up_to(zeros)).clamp_min(1.0)
    mean = (ones * precision).sum(dim=-1) / ones.sum(dim=-1)
    return mean.where(zeros.any(dim=-1), torch.nan)


def macro_f1(
    predicted: Tensor, true: Tensor, weights: Tensor, classes: int, share: Share
) -> Tensor:
    r"""Mean over classes of :math:`2 TP / (2 TP + FP + FN)`.

    Classes that are neither predicted nor there do not count.

    Shapes: classes ``[R, t, n]`` and ``[t, n]``, weights ``[parts, R, t, n]`` to ``[parts, R, t]``.
    """
    pairs = (classes * true + predicted).expand(weights.shape)
    counts = weights.new_zeros(*weights.shape[:-1], classes**2, dtype=torch.float64)
    counts = share.sum(counts.scatter_add(-1, pairs, weights.double()))
    counts = counts.unflatten(-1, (classes, classes))
    right = counts.diagonal(dim1=-2, dim2=-1)
    both = counts.sum(dim=-1) + counts.sum(dim=-2)
    scores: Tensor = 2 * right / both.clamp_min(1.0)
    present: Tensor = (both > 0).sum(dim=-1)
    return scores.sum(dim=-1) / present


def mean_over(weights: Tensor, values: Tensor, share: Share) -> Tensor:
    """Means ``[..., n]`` to ``[...]`` over all workers' nodes; NaN where nothing counts."""
    return share.sum((weights * values).sum(dim=-1)) / share.sum(weights.sum(dim=-1))
