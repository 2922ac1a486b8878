r"""How training on many graphs went, epoch by epoch, and the best of them."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from specformer.training.divergence import diverged
from specformer.training.engine.stacking import trained_state
from specformer.training.evaluation.graph_metrics import Metric

#: What picks the epoch whose model is kept.
GraphMonitor = Literal["metric", "loss", "last"]
#: What keeps training on many graphs from diverging.
REMEDY = "a lower schedule.learning_rate, or with schedule.clip"


class History:
    """How training went so far, and the best epochs of it."""

    def __init__(self, model: nn.Module, epochs: int) -> None:
        self.epochs = torch.zeros((), dtype=torch.long)
        self.curves = torch.full((epochs, 3), float("nan"), dtype=torch.float64)
        self.seconds = torch.zeros((), dtype=torch.float64)
        self.best: dict[GraphMonitor, Best] = {"loss": Best(model), "metric": Best(model)}

    @property
    def is_over(self) -> bool:
        """Whether no epoch is left, or the weights are no numbers any more and will stay so."""
        done = int(self.epochs)
        lost = done > 0 and not math.isfinite(float(self.curves[done - 1, 0]))
        return lost or done == len(self.curves)

    def add(self, reading: list[float], metric: Metric, seconds: float) -> None:
        """One epoch's training loss, validation loss and validation figure."""
        epoch = int(self.epochs)
        self.curves[epoch] = torch.tensor(reading, dtype=torch.float64)
        _, loss, figure = reading
        self.best["loss"].update(loss, figure, epoch)
        self.best["metric"].update(metric.score(figure), figure, epoch)
        self.epochs += 1
        self.seconds += seconds

    def picked(self, model: nn.Module) -> dict[GraphMonitor, Best]:
        """The epochs of all rules; the last, which ``model`` is of, only with a finite loss."""
        last, epoch = Best(model), int(self.epochs) - 1
        _, loss, figure = self.curves[epoch].tolist()
        if not math.isfinite(loss):
            return self.best
        last.update(loss, figure, epoch)
        return {**self.best, "last": last}

    def state(self) -> dict[str, Tensor]:
        """All of it by name, for a checkpoint."""
        best = {
            f"best.{rule}.{name}": tensor
            for rule, kept in self.best.items()
            for name, tensor in kept.state().items()
        }
        return {"epochs": self.epochs, "curves": self.curves, "seconds": self.seconds, **best}


class Best:
    """The lowest score so far, the validation figure then, and what the model then was."""

    def __init__(self, model: nn.Module) -> None:
        self._trained = trained_state(model)
        self._kept = {name: tensor.detach().clone() for name, tensor in self._trained.items()}
        self.score = torch.full((), float("inf"), dtype=torch.float64)
        self.val = torch.full((), float("nan"), dtype=torch.float64)
        self.epoch = torch.full((), -1, dtype=torch.long)

    @torch.no_grad()
    def update(self, score: float, val: float, epoch: int) -> None:
        if not score < float(self.score):
            return
        for tensor, value in ((self.score, score), (self.val, val), (self.epoch, epoch)):
            tensor.fill_(value)
        for name, tensor in self._trained.items():
            self._kept[name].copy_(tensor)

    @torch.no_grad()
    def restore(self) -> None:
        """Put the best model back."""
        if int(self.epoch) < 0:
            raise diverged("no epoch had a finite validation loss", REMEDY)
        for name, tensor in self._trained.items():
            tensor.copy_(self._kept[name])

    def state(self) -> dict[str, Tensor]:
        kept = {f"kept.{name}": tensor for name, tensor in self._kept.items()}
        return {"score": self.score, "val": self.val, "epoch": self.epoch, **kept}
