r"""What is learned on nodes: features, targets, loss and evaluation, for all runs at once.

Nothing here waits for the device, so that an epoch can be captured. Shapes: ``R`` runs, ``t``
targets, ``n`` nodes. Nodes with a weight of 0 do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from specformer.datasets.splits import Split
from specformer.nn.layers.sparse_features import SparseFeatures
from specformer.training.engine.distributed import WHOLE, Share
from specformer.training.evaluation.graph_metrics import Loss, Scale, predictions


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


class BestEpochs:
    """The figures of every run at the epochs two rules pick, updated on the device.

    The rules, in this order: the lowest validation loss, the best validation figure.

    Shapes: score and epoch ``[rules, runs]``; figure ``[rules, validation and test, runs]``.
    """

    def __init__(self, runs: int, dtype: torch.dtype, device: torch.device) -> None:
        self.score = torch.full((2, runs), float("inf"), dtype=dtype, device=device)
        self.figure = torch.zeros(2, 2, runs, dtype=dtype, device=device)
        self.epoch = torch.zeros(2, runs, dtype=torch.long, device=device)

    @torch.no_grad()
    def update(self, scores: Tensor, figures: Tensor, active: Tensor, epoch: Tensor) -> None:
        """Take an epoch's scores ``[rules, runs]``, lower is better, and figures ``[2, runs]``.

        Runs that are not ``active`` stay as they are.
        """
        improved = active & (scores < self.score)
        torch.where(improved, scores, self.score, out=self.score)
        torch.where(improved.unsqueeze(1), figures, self.figure, out=self.figure)
        torch.where(improved, epoch, self.epoch, out=self.epoch)

    def state(self) -> dict[str, Tensor]:
        """Everything that changes, by name, for a checkpoint."""
        return {
            f"{rule}.{name}": part
            for number, rule in enumerate(("by_loss", "by_metric"))
            for name, part in (
                ("best", self.score[number]),
                ("val", self.figure[number, 0]),
                ("test", self.figure[number, 1]),
                ("epoch", self.epoch[number]),
            )
        }


@dataclass(frozen=True)
class NodeTask:
    """What many runs learn on one graph, and how they are judged.

    Args:
        x: features ``[n, in]`` or ``[R, n, in]``.
        y: classes ``[n]``, or targets ``[n, t]``, NaN where they are not known.
        train, val, test: masks ``[R, n]``.
        loss: ``"ce"`` of classes, ``"bce"`` of several labels, ``"mse"`` or ``"l1"`` of numbers,
            which are learned with mean 0 and variance 1 over the training nodes of each run.
        metric: a name of :data:`~specformer.training.evaluation.graph_metrics.METRICS` that goes
            with the loss.
        share: which of all nodes these are; losses are then this worker's part of the sum.
    """

    x: Tensor | SparseFeatures
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    loss: Loss = "ce"
    metric: str = "accuracy"
    share: Share = WHOLE

    @classmethod
    def from_splits(
        cls,
        x: np.ndarray | sp.csr_array,
        y: np.ndarray,
        splits: Sequence[Split],
        device: torch.device,
        loss: Loss = "ce",
        metric: str = "accuracy",
        share: Share = WHOLE,
    ) -> NodeTask:
        """Stack the masks of several splits of one graph; sparse features stay sparse.

        Dense ones may be those of each run, ``[R, n, in]``. Of all this, a worker takes its
        ``share``.
        """
        rows = share.rows
        train, val, test = (
            torch.as_tensor(np.stack([getattr(split, part)[rows] for split in splits])).to(device)
            for part in ("train", "val", "test")
        )
        labels = torch.as_tensor(y[rows]).to(device)
        if loss == "ce":
            labels = labels.clamp_min(0)  # unlabelled nodes are in no mask
        return cls(features_on(device, share.own(x)), labels, train, val, test, loss, metric, share)

    @property
    def runs(self) -> int:
        return len(self.train)

    def gathered(self) -> NodeTask:
        """The labels and masks of all workers' nodes; features stay those of this one's."""
        share = self.share
        train, val, test = (
            share.whole(part.byte(), dim=-1).bool() for part in (self.train, self.val, self.test)
        )
        y = share.whole(self.y, dim=0)
        return replace(self, y=y, train=train, val=val, test=test, share=WHOLE)

    @cached_property
    def scale(self) -> Scale | None:
        """Mean and deviation ``[R, 1, t]`` of numbers over the training nodes of each run."""
        if self.loss not in ("mse", "l1"):
            return None
        y = self.y.to(self.x.dtype)
        learned = (y.where(mask.unsqueeze(-1), torch.nan) for mask in self.train)
        scales = [Scale.of(self.share.whole(each)) for each in learned]
        return Scale(*(torch.stack(parts).unsqueeze(1) for parts in zip(*scales, strict=True)))

    @cached_property
    def known(self) -> Tensor:
        """Which targets ``[n, t]`` are known; a node without a class is in no mask."""
        if self.loss == "ce":
            return torch.ones_like(self.y, dtype=torch.bool).unsqueeze(-1)
        return ~self.y.isnan()

    @cached_property
    def wanted(self) -> Tensor:
        """Targets as they are learned, ``[n, t]`` or ``[R, n, t]``."""
        wanted = self.y.to(self.x.dtype)
        return (self.scale.standardised(wanted) if self.scale else wanted).nan_to_num()

    def terms(self, outputs: Tensor) -> Tensor:
        """The terms of the losses, which are sums of terms times :meth:`weights`."""
        return outputs.log_softmax(dim=-1) if self.loss == "ce" else self.errors(outputs)

    def weights(self, terms: Tensor) -> Tensor:
        r"""The gradient of the losses with respect to the :meth:`terms`.

        For classes, with which the gradient of outputs is a product and not a scatter:

        .. math::
            \frac{1}{|T|} \sum_{i \in T} -\log p_i[y_i] = \sum_{i, c} \log p_i[c]\, t_i[c], \quad
            t_i[c] = -\frac{[i \in T]\,[y_i = c]}{|T|}
        """
        if self.loss == "ce":
            number = self.share.sum(self.train.sum(dim=-1, keepdim=True)).clamp_min(1)
            shares = self.train.to(terms.dtype) / number
            return -shares.unsqueeze(-1) * nn.functional.one_hot(self.y, terms.shape[-1]).to(terms)
        counted = self.counted(self.train).to(terms.dtype)
        return counted / self.share.sum(counted.sum(dim=(-2, -1), keepdim=True)).clamp_min(1.0)

    def errors(self, outputs: Tensor, nodes: Tensor | None = None) -> Tensor:
        """The error of every target ``[R, b, t]`` of the nodes; 0 where a target is unknown."""
        if self.loss == "ce":
            y = self.y if nodes is None else self.y.index_select(0, nodes)
            labels = y.expand(outputs.shape[:-1]).unsqueeze(-1)
            return -outputs.log_softmax(dim=-1).gather(-1, labels)
        wanted, known = self.wanted, self.known
        if nodes is not None:
            wanted, known = wanted.index_select(-2, nodes), known.index_select(0, nodes)
        if self.loss == "bce":
            wanted = wanted.expand_as(outputs)
            return known * nn.functional.binary_cross_entropy_with_logits(
                outputs, wanted, reduction="none"
            )
        errors = outputs - wanted
        return known * (errors.abs() if self.loss == "l1" else errors.square())

    def counted(self, mask: Tensor, nodes: Tensor | None = None) -> Tensor:
        """Which targets ``[R, b, t]`` of the nodes in a mask ``[R, n]`` are known."""
        known = self.known
        if nodes is not None:
            mask, known = mask.index_select(1, nodes), known.index_select(0, nodes)
        return mask.unsqueeze(-1) & known

    def predictions(self, outputs: Tensor) -> Tensor:
        """Outputs as people read them: probabilities, or numbers in their own units."""
        return self.scale.original(outputs) if self.scale else predictions(self.loss, outputs)

    @torch.no_grad()
    def evaluate(self, outputs: Tensor) -> Tensor:
        """Mean losses and figures over the validation and the test nodes.

        Shapes: outputs ``[R, n, channels]`` to ``[loss and figure, validation and test, R]``.
        """
        weights, counts, signed = self._judged
        if self.loss == "ce" and self.metric == "accuracy":  # as what follows, in fewer kernels
            values = weights.new_empty(2, *outputs.shape[:-1])
            labels = self.y.expand(outputs.shape[:-1]).unsqueeze(-1)
            torch.gather(outputs.log_softmax(dim=-1), -1, labels, out=values[0].unsqueeze(-1))
            torch.eq(outputs.argmax(dim=-1), self.y, out=values[1])
            parts = values.unsqueeze(1) * weights.squeeze(2)
            return self.share.sum(parts.sum(dim=-1)) / signed
        errors = self.errors(outputs).mT
        losses = self.share.sum((weights * errors).sum(dim=(-2, -1))) / counts
        figures = self._figures(outputs).nanmean(dim=-1)  # of those that are numbers
        return torch.stack([losses, figures.to(losses.dtype)])

    @cached_property
    def _judged(self) -> tuple[Tensor, Tensor, Tensor]:
        """Which targets validate and test, ``[2, R, t, n]``, and how many, ``[2, R]``.

        The counts again with their negative before them: a loss is minus a sum of logarithms.
        """
        parts = torch.stack([self.counted(mask) for mask in (self.val, self.test)])
        weights = parts.mT.to(self.x.dtype).contiguous()
        counts = self.share.sum(weights.sum(dim=(-2, -1))).clamp_min(1.0)
        return weights, counts, torch.stack([-counts, counts])

    def _figures(self, outputs: Tensor) -> Tensor:
        """One for each target, ``[2, R, t]``."""
        if self.scale is not None:
            return self._of_numbers((outputs - self.wanted).mT, self.scale)
        if self.loss == "bce":
            return self._of_labels(outputs.mT, self.wanted.mT)
        true = self.y.unsqueeze(0)
        if self.metric == "f1":
            predicted = outputs.argmax(dim=-1).unsqueeze(1)
            return macro_f1(predicted, true, self._judged[0], outputs.shape[-1], self.share)
        return self._of_labels((outputs[..., 1] - outputs[..., 0]).unsqueeze(1), true)

    def _of_labels(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Scores ``[R, t, n]`` against labels of 0 and 1 ``[t, n]``."""
        weights = self._judged[0]
        if self.metric == "accuracy":
            right = (scores > 0) == (labels == 1)
            return mean_over(weights, right.to(scores.dtype), self.share)
        judge = average_precision if self.metric == "ap" else rocauc
        parts = (scores, weights * (labels == 1), weights * (labels == 0))
        return judge(*(self.share.whole(part, dim=-1) for part in parts))  # ranks need all nodes

    def _of_numbers(self, errors: Tensor, scale: Scale) -> Tensor:
        """Errors ``[R, t, n]`` of the targets as they are learned."""
        weights, std = self._judged[0], scale.std.mT.squeeze(-1)
        if self.metric == "mae":
            return std * mean_over(weights, errors.abs(), self.share)
        if self.metric == "rmse":
            return std * mean_over(weights, errors.square(), self.share).sqrt()
        left = self.share.sum((weights * errors.square()).sum(dim=-1))
        return (1 - left / self._spread).where(self._spread > 0, torch.nan)

    @cached_property
    def _spread(self) -> Tensor:
        """The sum of squares ``[2, R, t]`` of numbers around their mean in either part."""
        weights, wanted = self._judged[0], self.wanted.mT
        centred = wanted - mean_over(weights, wanted, self.share).unsqueeze(-1)
        return self.share.sum((weights * centred.square()).sum(dim=-1))


def features_on(device: torch.device, x: np.ndarray | sp.csr_array) -> Tensor | SparseFeatures:
    """Features on a device; sparse ones stay sparse."""
    if isinstance(x, np.ndarray):
        return torch.as_tensor(x, dtype=torch.float32).to(device)
    return SparseFeatures.from_scipy(x).to(device)
