r"""Outputs of a model for a fixed list of graphs, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from specformer.datasets.batches import batch_stream, size_batches
from specformer.datasets.packed import GraphStore
from specformer.spectrum.many.packed_graphs import PackedGraphs
from specformer.training.engine.capture import Repeated
from specformer.training.engine.distributed import ALONE, Workers

#: float32; products in TF32; that and the layers' work in bfloat16. Only on a GPU.
GraphPrecision = Literal["highest", "high", "bf16"]
#: Batches are this many times larger than in training: nothing is kept for a backward pass.
WIDER = 4
#: More batches than these are large enough work not to be captured.
MOST_CAPTURED = 64


@dataclass(frozen=True)
class Work:
    """A model at work: where, how exactly, and with whom. Its last layer is ``readout``."""

    model: nn.Module
    precision: GraphPrecision
    device: torch.device
    workers: Workers = ALONE

    def __call__(self, graphs: PackedGraphs) -> Tensor:
        brief = self.precision == "bf16" and self.device.type == "cuda"
        # Without a cache of cast weights: what one captured step casts is stale in the next.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=brief, cache_enabled=False):
            return cast(Tensor, self.model(graphs))


class GraphEvaluation:
    """Calls a model on the same graphs each time; on a GPU a short list is captured and replayed.

    Args:
        work: the model.
        store: the graphs.
        index: their numbers.
        batch_size: that of training.
    """

    def __init__(self, work: Work, store: GraphStore, index: Any, batch_size: int) -> None:
        self.work, self.store = work, store
        # The largest first: what it frees holds all that come after.
        every = size_batches(store, index, WIDER * batch_size)[::-1]
        self.order = torch.cat([batch.index for batch in every])
        ends = torch.tensor([len(batch.index) for batch in every]).cumsum(0).tolist()
        spans = [slice(end - len(b.index), end) for b, end in zip(every, ends, strict=True)]
        workers = work.workers
        self._batches = every[workers.rank :: workers.size]
        self._spans = spans[workers.rank :: workers.size]
        outputs = cast(nn.Linear, work.model.readout).out_features
        like = next(work.model.parameters())
        self._outputs = like.new_zeros(len(self.order), outputs, requires_grad=False)
        self._targets = None if store.y is None else store.labels(self.order).double().cpu()
        here = store.device.type == work.device.type
        self._repeated = Repeated(
            self._run, work.device, capture=here and len(self._batches) <= MOST_CAPTURED
        )

    @property
    def targets(self) -> Tensor:
        """Targets ``[n, tasks]`` on the host, in the order of ``order``."""
        assert self._targets is not None
        return self._targets

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Outputs ``[n, tasks]`` in float64 on the host, in the order of ``order``."""
        self.work.model.eval()
        self._outputs.zero_()
        self._repeated()
        return self.work.workers.sum(self._outputs.clone()).double().cpu()

    def _run(self) -> None:
        loaded = batch_stream(self.store, self._batches, self.work.device)
        for span, (graphs, _) in zip(self._spans, loaded, strict=True):
            self._outputs[span] = self.work(graphs)
