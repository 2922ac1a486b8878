r"""Statistics of batch norms for evaluation, measured as a model meets its graphs there."""

from __future__ import annotations

from typing import Any

import torch

from specformer.datasets.batches import Batches, batch_stream
from specformer.datasets.packed import GraphStore
from specformer.errors import ConfigError
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.training.engine.capture import Repeated
from specformer.training.evaluation.graphs import MOST_CAPTURED, WIDER, Work


class Calibration:
    """Takes the running averages of a model's batch norms anew, without dropout.

    Those that training keeps are of activations under dropout, and where a nonlinearity follows
    it, a softmax say, of others than evaluation has. A mean of weights has none of its own at all.

    Args:
        work: the model.
        store: the graphs.
        index: numbers of the training graphs.
        batch_size: that of training.
        graphs: so many of them are looked at, the same each time.
        seed: decides which.
    """

    def __init__(
        self, work: Work, store: GraphStore, index: Any, batch_size: int, graphs: int, seed: int
    ) -> None:
        self.work, self.store = work, store
        self._norms = [m for m in work.model.modules() if isinstance(m, BatchNorm)]
        if not self._norms:
            raise ConfigError("schedule.recalibrate: the model has no batch norm; leave it empty.")
        # In a random order, and not by size: a batch's variance is then close to that of all.
        size, workers = WIDER * batch_size, work.workers
        whole = Batches(store, index, size, seed=seed).epoch(0)[: -(-graphs // size)]
        ladder = Batches(store, index, -(-size // workers.size), seed=seed)
        self._batches = workers.shares(whole, ladder)
        self._sizes = [len(batch.index) for batch in whole]
        here = store.device.type == work.device.type
        few = len(self._batches) <= MOST_CAPTURED
        alone = workers.size == 1  # messages between workers are not captured
        self._repeated = Repeated(self._run, work.device, capture=here and few and alone)

    @torch.no_grad()
    def __call__(self) -> None:
        """Replace the averages; the model is left in evaluation mode."""
        self.work.model.eval()
        kept = [norm.momentum for norm in self._norms]
        for norm in self._norms:
            norm.train()
        self._repeated()
        for norm, momentum in zip(self._norms, kept, strict=True):
            norm.momentum = momentum
            norm.eval()

    def _run(self) -> None:
        done = 0
        loaded = batch_stream(self.store, self._batches, self.work.device)
        # Workers leave out a last batch of fewer graphs than they are.
        for size, (graphs, _) in zip(self._sizes, loaded, strict=False):
            done += size
            for norm in self._norms:
                norm.momentum = size / done
            self.work(graphs)
