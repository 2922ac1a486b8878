r"""The loss of training on nodes, and its evaluation, for all runs at once.

Nothing here waits for the device, so that an epoch can be captured. Shapes: ``R`` runs, ``t``
targets, ``n`` nodes. Nodes with a weight of 0 do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

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


def training_targets(
    y: Tensor, train: Tensor, classes: int, dtype: torch.dtype, share: Share = WHOLE
) -> Tensor:
    r"""The weights of log-probabilities ``[runs, n, classes]`` in the loss, which is their sum.

    .. math::
        \frac{1}{|T|} \sum_{i \in T} -\log p_i[y_i] = \sum_{i, c} \log p_i[c]\, t_i[c], \quad
        t_i[c] = -\frac{[i \in T]\,[y_i = c]}{|T|}

    Its gradient is a product, not a scatter. Shapes: y ``[n]``, train ``[runs, n]``.
    """
    shares = train.to(dtype) / share.sum(train.sum(dim=-1, keepdim=True)).clamp_min(1)
    return -shares.unsqueeze(-1) * nn.functional.one_hot(y, classes).to(dtype)


class Evaluation:
    """Mean losses and accuracies over the validation and the test nodes.

    Shapes: y ``[n]``, masks ``[runs, n]``; logits ``[runs, n, classes]`` to
    ``[loss and accuracy, validation and test, runs]``.
    """

    def __init__(
        self, y: Tensor, val: Tensor, test: Tensor, dtype: torch.dtype, share: Share = WHOLE
    ) -> None:
        self._y, self._share = y, share
        self._labels = y.expand_as(val).unsqueeze(-1)
        self._masks = torch.stack([val, test]).to(dtype)
        counts = share.sum(self._masks.sum(dim=-1)).clamp_min(1.0)
        self._counts = torch.stack([-counts, counts])  # the loss is minus the log-probability

    @torch.no_grad()
    def __call__(self, logits: Tensor) -> Tensor:
        values = self._masks.new_empty(2, *logits.shape[:-1])
        torch.gather(logits.log_softmax(dim=-1), -1, self._labels, out=values[0].unsqueeze(-1))
        torch.eq(logits.argmax(dim=-1), self._y, out=values[1])
        return self._share.sum((values.unsqueeze(1) * self._masks).sum(dim=-1)) / self._counts


class BestEpochs:
    """The figures of every run at the epochs two rules pick, updated on the device.

    The rules, in this order: the lowest validation loss, the best validation figure.

    Shapes: score and epoch ``[rules, runs]``; figure ``[rules, validation and test, runs]``.
    """

    def __init__(self, runs: int, dtype: torch.dtype, device: torch.device) -> None:
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.score = torch.full((2, runs), float("inf"), **options)
        self.figure = torch.zeros(2, 2, runs, **options)
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


class NodeObjective:
    """The loss of many runs on one graph.

    Args:
        loss: ``"ce"`` of classes, ``"bce"`` of several labels, ``"mse"`` or ``"l1"`` of numbers,
            which are learned with mean 0 and variance 1 over the training nodes of each run.
        y: classes ``[n]``, or targets ``[n, t]``, NaN where they are not known.
        train: masks ``[R, n]``.
        dtype: of the outputs.
        share: which of all nodes these are; losses are then this worker's part of the sum.
    """

    def __init__(
        self, loss: Loss, y: Tensor, train: Tensor, dtype: torch.dtype, share: Share = WHOLE
    ) -> None:
        self.loss, self.y, self._train, self.share = loss, y, train, share
        #: Which targets ``[n, t]`` are known; a node without a class is in no mask.
        self.known = torch.ones_like(y, dtype=torch.bool).unsqueeze(-1)
        self.scale: Scale | None = None
        if loss == "ce":
            return
        self.known = ~y.isnan()
        wanted = y.to(dtype)
        if loss in ("mse", "l1"):
            learned = (wanted.where(mask.unsqueeze(-1), torch.nan) for mask in train)
            scales = [Scale.of(share.whole(each)) for each in learned]
            mean, std = (torch.stack(parts).unsqueeze(1) for parts in zip(*scales, strict=True))
            self.scale = Scale(mean, std)
            wanted = self.scale.standardised(wanted)
        #: Targets as they are learned, ``[n, t]`` or ``[R, n, t]``.
        self.wanted = wanted.nan_to_num()

    def terms(self, outputs: Tensor) -> Tensor:
        """The terms of the losses, which are sums of terms times :meth:`weights`."""
        return outputs.log_softmax(dim=-1) if self.loss == "ce" else self.errors(outputs)

    def weights(self, outputs: Tensor) -> Tensor:
        """The gradient of the losses with respect to the :meth:`terms`."""
        if self.loss == "ce":
            classes = outputs.shape[-1]
            return training_targets(self.y, self._train, classes, outputs.dtype, self.share)
        counted = self.counted(self._train).to(outputs.dtype)
        number = self.share.sum(counted.sum(dim=(-2, -1), keepdim=True))
        return counted / number.clamp_min(1.0)

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


class NodeEvaluation:
    """Mean losses and figures over the validation and the test nodes.

    ``metric`` is a name of :data:`~specformer.training.evaluation.graph_metrics.METRICS` that goes
    with the loss. Shapes: masks ``[R, n]``; outputs ``[R, n, channels]`` to
    ``[loss and figure, validation and test, R]``.
    """

    def __init__(
        self, objective: NodeObjective, metric: str, val: Tensor, test: Tensor, dtype: torch.dtype
    ) -> None:
        self._objective, self._metric, self._dtype = objective, metric, dtype
        self._share = share = objective.share
        parts = torch.stack([objective.counted(mask) for mask in (val, test)])
        #: ``[parts, R, t, n]``, and how many count in all.
        self._weights = parts.mT.to(dtype).contiguous()
        self._counts = share.sum(self._weights.sum(dim=(-2, -1))).clamp_min(1.0)
        if objective.scale is not None:
            wanted = objective.wanted.mT
            centred = wanted - mean_over(self._weights, wanted, share).unsqueeze(-1)
            self._spread = share.sum((self._weights * centred.square()).sum(dim=-1))

    @torch.no_grad()
    def __call__(self, outputs: Tensor) -> Tensor:
        errors = self._objective.errors(outputs).mT
        losses = self._share.sum((self._weights * errors).sum(dim=(-2, -1))) / self._counts
        figures = self._figures(outputs).nanmean(dim=-1)  # of those that are numbers
        return torch.stack([losses, figures.to(self._dtype)])

    def _figures(self, outputs: Tensor) -> Tensor:
        """One for each target, ``[parts, R, t]``."""
        if self._objective.scale is not None:
            return self._of_numbers((outputs - self._objective.wanted).mT, self._objective.scale)
        if self._objective.loss == "bce":
            return self._of_labels(outputs.mT, self._objective.wanted.mT)
        true = self._objective.y.unsqueeze(0)
        if self._metric == "f1":
            predicted = outputs.argmax(dim=-1).unsqueeze(1)
            classes = outputs.shape[-1]
            return macro_f1(predicted, true, self._weights, classes, self._share)
        return self._of_labels((outputs[..., 1] - outputs[..., 0]).unsqueeze(1), true)

    def _of_labels(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Scores ``[R, t, n]`` against labels of 0 and 1 ``[t, n]``."""
        if self._metric == "accuracy":
            right = (scores > 0) == (labels == 1)
            return mean_over(self._weights, right.to(scores.dtype), self._share)
        ap = self._metric == "ap"
        judge = average_precision if ap else rocauc
        parts = (scores, self._weights * (labels == 1), self._weights * (labels == 0))
        return judge(*(self._share.whole(part, dim=-1) for part in parts))  # ranks need all nodes

    def _of_numbers(self, errors: Tensor, scale: Scale) -> Tensor:
        """Errors ``[R, t, n]`` of the targets as they are learned."""
        if self._metric == "mae":
            mean = mean_over(self._weights, errors.abs(), self._share)
            return scale.std.mT.squeeze(-1) * mean
        if self._metric == "rmse":
            mean = mean_over(self._weights, errors.square(), self._share)
            return scale.std.mT.squeeze(-1) * mean.sqrt()
        left = self._share.sum((self._weights * errors.square()).sum(dim=-1))
        return (1 - left / self._spread).where(self._spread > 0, torch.nan)


def evaluation_of(
    objective: NodeObjective, metric: str, val: Tensor, test: Tensor, dtype: torch.dtype
) -> Callable[[Tensor], Tensor]:
    """Losses and figures of all runs; accuracy of classes by a class with fewer kernels."""
    if objective.loss == "ce" and metric == "accuracy":
        return Evaluation(objective.y, val, test, dtype, objective.share)
    return NodeEvaluation(objective, metric, val, test, dtype)
