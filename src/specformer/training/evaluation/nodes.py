r"""Losses, accuracies and best epochs of many runs at once, in few kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def training_targets(y: Tensor, train: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    r"""What log-probabilities ``[runs, n, classes]`` are multiplied by and summed for the loss.

    .. math::
        \frac{1}{|T|} \sum_{i \in T} -\log p_i[y_i] = \sum_{i, c} \log p_i[c]\, t_i[c], \quad
        t_i[c] = -\frac{[i \in T]\,[y_i = c]}{|T|}

    Its gradient is a product, not a scatter. Shapes: y ``[n]``, train ``[runs, n]``.

    Example:
        >>> y, train = torch.tensor([0, 1, 1]), torch.tensor([[True, True, False]])
        >>> training_targets(y, train, 2, torch.float32).tolist()
        [[[-0.5, -0.0], [-0.0, -0.5], [-0.0, -0.0]]]
    """
    shares = train.to(dtype) / train.sum(dim=-1, keepdim=True).clamp_min(1)
    return -shares.unsqueeze(-1) * nn.functional.one_hot(y, classes).to(dtype)


class Evaluation:
    """Mean losses and accuracies over the validation and the test nodes.

    Shapes: y ``[n]``, masks ``[runs, n]``; logits ``[runs, n, classes]`` to
    ``[loss and accuracy, validation and test, runs]``.

    Example:
        >>> y, val = torch.tensor([0, 1]), torch.tensor([[True, False]])
        >>> logits = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
        >>> Evaluation(y, val, ~val, torch.float32)(logits)[1].tolist()
        [[1.0], [0.0]]
    """

    def __init__(self, y: Tensor, val: Tensor, test: Tensor, dtype: torch.dtype) -> None:
        self._y = y
        self._labels = y.expand_as(val).unsqueeze(-1)
        self._masks = torch.stack([val, test]).to(dtype)
        counts = self._masks.sum(dim=-1).clamp_min(1.0)
        self._counts = torch.stack([-counts, counts])  # the loss is minus the log-probability

    @torch.no_grad()
    def __call__(self, logits: Tensor) -> Tensor:
        values = self._masks.new_empty(2, *logits.shape[:-1])
        torch.gather(logits.log_softmax(dim=-1), -1, self._labels, out=values[0].unsqueeze(-1))
        torch.eq(logits.argmax(dim=-1), self._y, out=values[1])
        return (values.unsqueeze(1) * self._masks).sum(dim=-1) / self._counts


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
