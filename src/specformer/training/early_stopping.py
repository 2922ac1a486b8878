r"""Early stopping for many runs at once, decided on the device."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class EarlyStopping:
    """Keeps, for every run, the best parameters so far and whether it still trains.

    A run stops once ``patience`` epochs passed without a lower score; what comes later no longer
    counts for it, so reading :attr:`active` now and then gives the same outcome as reading it after
    every epoch. Nothing here waits for the device.

    Args:
        parameters: stacked parameters, ``[runs, ...]`` each.
        runs: number of runs.
        patience: epochs without improvement before a run stops.
    """

    def __init__(self, parameters: Iterable[Tensor], runs: int, patience: int) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self.patience = patience
        self.best = self.parameters[0].new_full((runs,), float("inf"), requires_grad=False)
        self.best_epoch = torch.zeros(runs, dtype=torch.long, device=device)
        self.epochs = torch.zeros(runs, dtype=torch.long, device=device)
        self.active = torch.ones(runs, dtype=torch.bool, device=device)
        self.kept = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def update(self, score: Tensor, epoch: Tensor) -> Tensor:
        """Take one epoch's scores ``[runs]``, lower is better; returns which runs improved."""
        improved = self.active & (score < self.best)
        self.best.copy_(torch.where(improved, score, self.best))
        self.best_epoch.copy_(torch.where(improved, epoch, self.best_epoch))
        self.epochs.copy_(torch.where(self.active, epoch + 1, self.epochs))
        for kept, parameter in zip(self.kept, self.parameters, strict=True):
            shape = (-1,) + (1,) * (parameter.dim() - 1)
            kept.copy_(torch.where(improved.view(shape), parameter, kept))
        self.active.logical_and_(epoch - self.best_epoch < self.patience)
        return improved

    def state(self) -> dict[str, Tensor]:
        """Everything that changes, by name, for a checkpoint."""
        kept = {f"kept.{number}": tensor for number, tensor in enumerate(self.kept)}
        names = ("best", "best_epoch", "epochs", "active")
        return {name: getattr(self, name) for name in names} | kept

    @torch.no_grad()
    def restore(self) -> None:
        """Put every run's best parameters back."""
        for kept, parameter in zip(self.kept, self.parameters, strict=True):
            parameter.copy_(kept)
