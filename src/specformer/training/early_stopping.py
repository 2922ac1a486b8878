r"""Early stopping for many runs at once, decided on the device."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class EarlyStopping:
    """Keeps, for every run, the best state so far and whether it still trains.

    A run stops once ``patience`` epochs passed without a lower score; what comes later no longer
    counts for it, so reading :attr:`active` now and then gives the same outcome as reading it after
    every epoch. Nothing here waits for the device.

    Args:
        tensors: what training changes, ``[runs, ...]`` each: parameters and running averages, as
            :func:`~specformer.training.stacking.trained_state` gives them. They must stay the same
            tensors, changed in place.
        runs: number of runs.
        patience: epochs without improvement before a run stops.
    """

    def __init__(self, tensors: Iterable[Tensor], runs: int, patience: int) -> None:
        self.tensors = list(tensors)
        device = self.tensors[0].device
        self.patience = patience
        self.best = self.tensors[0].new_full((runs,), float("inf"), requires_grad=False)
        self.best_epoch = torch.zeros(runs, dtype=torch.long, device=device)
        self.epochs = torch.zeros(runs, dtype=torch.long, device=device)
        self.active = torch.ones(runs, dtype=torch.bool, device=device)
        self.kept = [tensor.detach().clone() for tensor in self.tensors]

    @torch.no_grad()
    def update(self, score: Tensor, epoch: Tensor) -> Tensor:
        """Take one epoch's scores ``[runs]``, lower is better; returns which runs improved."""
        improved = self.active & (score < self.best)
        self.best.copy_(torch.where(improved, score, self.best))
        self.best_epoch.copy_(torch.where(improved, epoch, self.best_epoch))
        self.epochs.copy_(torch.where(self.active, epoch + 1, self.epochs))
        for kept, tensor in zip(self.kept, self.tensors, strict=True):
            shape = (-1,) + (1,) * (tensor.dim() - 1)
            kept.copy_(torch.where(improved.view(shape), tensor, kept))
        self.active.logical_and_(epoch - self.best_epoch < self.patience)
        return improved

    def state(self) -> dict[str, Tensor]:
        """Everything that changes, by name, for a checkpoint."""
        kept = {f"kept.{number}": tensor for number, tensor in enumerate(self.kept)}
        names = ("best", "best_epoch", "epochs", "active")
        return {name: getattr(self, name) for name in names} | kept

    @torch.no_grad()
    def restore(self) -> None:
        """Put every run's best state back."""
        for kept, tensor in zip(self.kept, self.tensors, strict=True):
            tensor.copy_(kept)
