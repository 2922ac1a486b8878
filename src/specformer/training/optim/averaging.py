r"""A running mean of a model's weights over its last steps: less noise than any of them alone."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from specformer.training.engine.stacking import trained_state


class WeightAverage:
    r"""A copy of a model that follows what training changes.

    After step t it becomes :math:`\bar\theta + (\theta - \bar\theta) / \min(t, T)`: the mean of all
    steps until the T-th, and from there on one that forgets.

    Args:
        model: the model that is trained; batch norms' running averages are averaged too.
        window: T, in steps.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> average = WeightAverage(layer, window=100)
        >>> for step, value in enumerate([1.0, 2.0, 6.0]):
        ...     _ = layer.requires_grad_(False).weight.fill_(value)
        ...     average.update(torch.tensor(step))
        >>> average.model.weight.item()
        3.0
    """

    def __init__(self, model: nn.Module, window: float) -> None:
        self.model = copy.deepcopy(model)
        self.window = max(1.0, window)
        self._trained = list(trained_state(model).values())
        self._means = list(trained_state(self.model).values())

    @torch.no_grad()
    def update(self, steps: Tensor) -> None:
        """Take in the weights after another step, ``steps`` having gone before; nothing waits."""
        share = (steps + 1).clamp(max=self.window).to(self._means[0].dtype).reciprocal()
        torch._foreach_mul_(self._means, 1.0 - share)
        torch._foreach_add_(self._means, torch._foreach_mul(self._trained, share))

    @torch.no_grad()
    def settle(self) -> None:
        """Give the trained model the state of the copy."""
        torch._foreach_copy_(self._trained, self._means)
