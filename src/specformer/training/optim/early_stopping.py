r"""Early stopping for many runs at once, decided on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from specformer.training.engine.memory_block import join, views_of


class EarlyStopping:
    """Keeps, for every run, the best state so far and whether it still trains.

    A run stops once ``patience`` epochs passed without a lower score; what comes later no longer
    counts for it, so reading :attr:`active` now and then gives the same outcome as reading it after
    every epoch. Nothing here waits for the device.

    Args:
        tensors: what training changes, ``[runs, ...]`` each: parameters and running averages, as
            :func:`~specformer.training.engine.stacking.trained_state` gives them, of one precision.
            They are moved into one block of memory, so that keeping all of them is one kernel, and
            must stay the same tensors, changed in place.
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
        self._block = join(self.tensors)
        self._kept = self._block.clone()
        #: The run of every number in the block; with one run there is nothing to tell apart.
        self._run = None if runs == 1 else _runs_of(self.tensors, len(self._block))

    @torch.no_grad()
    def update(self, score: Tensor, epoch: Tensor) -> Tensor:
        """Take one epoch's scores ``[runs]``, lower is better; returns which runs improved.

        Taking an epoch's scores twice is taking them once.
        """
        improved = self.active & (score < self.best)
        torch.where(improved, score, self.best, out=self.best)
        torch.where(improved, epoch, self.best_epoch, out=self.best_epoch)
        torch.where(self.active, epoch + 1, self.epochs, out=self.epochs)
        which = improved if self._run is None else improved.index_select(0, self._run)
        torch.where(which, self._block, self._kept, out=self._kept)
        self.active.logical_and_(epoch - self.best_epoch < self.patience)
        return improved

    @property
    def is_lost(self) -> Tensor:
        """Which runs ``[runs]`` have nothing to put back: no finite score, or no finite state."""
        lost = ~self.best.isfinite()
        for view in views_of(self._kept, self.tensors):
            lost = lost | ~view.flatten(1).isfinite().all(dim=1)
        return lost

    def state(self) -> dict[str, Tensor]:
        """Everything that changes, by name, for a checkpoint."""
        views = views_of(self._kept, self.tensors)
        kept = {f"kept.{number}": view for number, view in enumerate(views)}
        names = ("best", "best_epoch", "epochs", "active")
        return {name: getattr(self, name) for name in names} | kept

    @torch.no_grad()
    def restore(self) -> None:
        """Put every run's best state back."""
        self._block.copy_(self._kept)


def _runs_of(tensors: Sequence[Tensor], length: int) -> Tensor:
    """The run of every number in the block that ``tensors`` ``[runs, ...]`` share."""
    owners = torch.zeros(length, dtype=torch.int32, device=tensors[0].device)
    for view in views_of(owners, tensors):
        runs = torch.arange(len(view), dtype=torch.int32, device=view.device)
        view.copy_(runs.view(-1, *(1,) * (view.dim() - 1)).expand_as(view))
    return owners
