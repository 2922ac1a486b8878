r"""Outputs of a model for a fixed list of graphs, and the history of its epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from specformer.datasets.batches import batch_stream, size_batches
from specformer.datasets.packed import GraphStore
from specformer.spectrum.many.packed_graphs import PackedGraphs
from specformer.training.engine.capture import Repeated
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.engine.rewind import NOT_SOUGHT
from specformer.training.engine.stacking import trained_state
from specformer.training.evaluation.graph_metrics import Metric

#: float32; products in TF32; that and the layers' work in bfloat16. Only on a GPU.
GraphPrecision = Literal["highest", "high", "bf16"]
#: Batches are this many times larger than in training: nothing is kept for a backward pass.
WIDER = 4
#: More batches than these are large enough work not to be captured.
MOST_CAPTURED = 64


@dataclass(frozen=True)
class Placed:
    """A model in its place: where, how exactly, and with whom. Its last layer is ``readout``."""

    model: nn.Module
    precision: GraphPrecision
    device: torch.device
    workers: Workers = ALONE

    def __call__(self, graphs: PackedGraphs) -> Tensor:
        brief = self.precision == "bf16" and self.device.type == "cuda"
        # Without a cache of cast weights: what one captured step casts is stale in the next.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=brief, cache_enabled=False):
            return self.model(graphs)


class GraphEvaluation:
    """Calls a model on the same graphs each time; on a GPU a short list is captured and replayed.

    ``index`` has the graphs' numbers; ``batch_size`` is that of training.
    """

    def __init__(self, placed: Placed, store: GraphStore, index: Any, batch_size: int) -> None:
        self.placed, self.store = placed, store
        # The largest first: what it frees holds all that come after.
        every = size_batches(store, index, WIDER * batch_size)[::-1]
        self.order = torch.cat([batch.index for batch in every])
        ends = torch.tensor([len(batch.index) for batch in every]).cumsum(0).tolist()
        spans = [slice(end - len(b.index), end) for b, end in zip(every, ends, strict=True)]
        workers = placed.workers
        self._batches = every[workers.rank :: workers.size]
        self._spans = spans[workers.rank :: workers.size]
        outputs = cast(nn.Linear, placed.model.readout).out_features
        like = next(placed.model.parameters())
        self._outputs = like.new_zeros(len(self.order), outputs, requires_grad=False)
        self._targets = None if store.y is None else store.labels(self.order).double().cpu()
        here = store.device.type == placed.device.type
        self._repeated = Repeated(
            self._run, placed.device, capture=here and len(self._batches) <= MOST_CAPTURED
        )

    @property
    def targets(self) -> Tensor:
        """Targets ``[n, tasks]`` on the host, in the order of ``order``."""
        assert self._targets is not None
        return self._targets

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Outputs ``[n, tasks]`` in float64 on the host, in the order of ``order``."""
        self.placed.model.eval()
        self._outputs.zero_()
        self._repeated()
        return self.placed.workers.sum(self._outputs.clone()).double().cpu()

    def _run(self) -> None:
        loaded = batch_stream(self.store, self._batches, self.placed.device)
        for span, (graphs, _) in zip(self._spans, loaded, strict=True):
            self._outputs[span] = self.placed(graphs)


#: What picks the epoch whose model is kept.
GraphMonitor = Literal["metric", "loss", "last"]
#: What keeps training on many graphs from diverging.
REMEDY = "a lower schedule.learning_rate, or with schedule.clip"


class History:
    """How training went so far, and the best epochs of it."""

    def __init__(self, model: nn.Module, epochs: int, patience: int | None = None) -> None:
        self.patience = patience
        self.epochs = torch.zeros((), dtype=torch.long)
        self.curves = torch.full((epochs, 3), float("nan"), dtype=torch.float64)
        self.seconds = torch.zeros((), dtype=torch.float64)
        #: The first layer that was not finite, by number.
        self.layer = torch.tensor(NOT_SOUGHT)
        self.best: dict[GraphMonitor, Best] = {"loss": Best(model), "metric": Best(model)}

    @property
    def is_over(self) -> bool:
        """Whether no epoch or patience is left, or the weights are not finite and will stay so."""
        done = int(self.epochs)
        best = max(int(kept.epoch) for kept in self.best.values())
        if self.patience is not None and done - 1 - best >= self.patience:
            return True
        lost = done > 0 and not math.isfinite(float(self.curves[done - 1, 0]))
        return lost or done == len(self.curves)

    @property
    def is_finite(self) -> bool:
        """Whether the last epoch's losses are."""
        return bool(self.curves[int(self.epochs) - 1, :2].isfinite().all())

    @property
    def first_lost(self) -> int:
        """The first epoch with a loss that is not finite."""
        finite = self.curves[:, :2].isfinite().all(dim=1)
        return int(finite.byte().argmin())

    def has_model(self, monitor: GraphMonitor) -> bool:
        """Whether every rule found an epoch to keep, and this one too."""
        found = all(int(kept.epoch) >= 0 for kept in self.best.values())
        return found and (monitor != "last" or self.is_finite)

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
        plain = {"epochs": self.epochs, "curves": self.curves, "seconds": self.seconds}
        return {**plain, "layer": self.layer, **best}


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
        for name, tensor in self._trained.items():
            tensor.copy_(self._kept[name])

    def state(self) -> dict[str, Tensor]:
        kept = {f"kept.{name}": tensor for name, tensor in self._kept.items()}
        return {"score": self.score, "val": self.val, "epoch": self.epoch, **kept}
