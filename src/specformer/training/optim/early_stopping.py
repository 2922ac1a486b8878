r"""When runs end: early stopping of many at once, decided on the device, and divergence."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from specformer.errors import RunError

#: Each tensor begins at a multiple of this many numbers: products want addresses as an allocator
#: gives them.
_ALIGNED = 64


@torch.no_grad()
def join(tensors: Sequence[Tensor]) -> Tensor:
    """Move tensors of one precision into one block ``[numbers]``, where they stay themselves."""
    block = tensors[0].new_zeros(sum(map(_room, tensors)), requires_grad=False)
    for tensor, view in zip(tensors, views_of(block, tensors), strict=True):
        view.copy_(tensor)
        tensor.data = view
    return block


def views_of(block: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a block that correspond to those tensors, each of its tensor's shape."""
    views, start = [], 0
    for tensor in tensors:
        views.append(block[start : start + tensor.numel()].view(tensor.shape))
        start += _room(tensor)
    return views


def _room(tensor: Tensor) -> int:
    return -(-tensor.numel() // _ALIGNED) * _ALIGNED


class EarlyStopping:
    """Keeps, for every run, the best state so far and whether it still trains.

    A run stops once ``patience`` epochs passed without a lower score. Later epochs do not count for
    it, so reading :attr:`active` now and then gives the same outcome as reading it after every
    epoch. Nothing here waits for the device.

    ``tensors`` ``[runs, ...]`` are what training changes
    (:func:`~specformer.training.engine.stacking.trained_state`), of one precision. They are moved
    into one block of memory, so that keeping all of them is one kernel, and must stay the same
    tensors, changed in place.
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

        Idempotent.
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


logger = logging.getLogger(__name__)


#: What helps against divergence most often.
REMEDY = "a lower schedule.learning_rate"


def diverged(which: str, epoch: int, layer: str, remedy: str = REMEDY) -> RunError:
    """The error of runs without a model, as their loss was not finite from an epoch on."""
    where = layer and f", first in {layer}"
    return RunError(
        f"training diverged: {which} no model, as the loss was not finite from epoch {epoch} on"
        f"{where}. To go on would not help: start a new run with {remedy}."
    )


def refuse_lost(
    losses: np.ndarray, lost: np.ndarray, layers: Sequence[str], remedy: str = REMEDY
) -> None:
    """Refuse the outcome of several runs if some of them are ``lost`` ``[runs]``: have no model.

    Losses ``[epochs, runs]`` are not finite from the epoch on in which a run diverged; ``layers``
    name the layer; ``remedy`` is what to start a new run with.
    """
    if not lost.any():
        return
    numbers = [str(run + 1) for run in np.flatnonzero(lost)]
    several = len(numbers) > 1
    which = f"runs {', '.join(numbers)}" if several else f"run {numbers[0]}"
    ended = (~np.isfinite(losses[:, lost])).argmax(axis=0)
    layer = layers[np.flatnonzero(lost)[ended.argmin()]]
    has = f"{which} of {len(lost)} {'have' if several else 'has'}"
    raise diverged(has, int(ended.min()) + 1, layer, remedy)


def warn_of_divergence(what: str, losses: Sequence[np.ndarray], layers: Sequence[str]) -> None:
    """Warn of runs that diverged after their best epoch; losses are those of each run's epochs."""
    for number, (curve, layer) in enumerate(zip(losses, layers, strict=True), start=1):
        lost = ~np.isfinite(curve)
        if lost.any():
            logger.warning(
                "%s: run %d of %d diverged in epoch %d%s; the best model before is kept.",
                what,
                number,
                len(losses),
                lost.argmax() + 1,
                layer and f", first in {layer}",
            )
