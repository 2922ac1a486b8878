r"""Many small graphs, as they are timed: a training step of ours, or of the plain loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets import Batch, Batches, BatchShape, GraphStore
from specformer.nn import GraphSpecformer
from specformer.paper.timing.measure import Candidate, Runner
from specformer.paper.timing.plain_loop import step_plainly
from specformer.tasks.graphs.models import graph_model
from specformer.tasks.graphs.recipe import GraphRecipe
from specformer.training.engine.capture import RepeatedByShape, differentiate
from specformer.training.engine.precision import matmul_precision
from specformer.training.evaluation.graphs import Work
from specformer.training.evaluation.losses import graph_errors

#: How many batches the steps go through, again and again.
_BATCHES = 64


@dataclass(frozen=True)
class GraphCase:
    """A store in the host's memory, numbers of the graphs to train on, a recipe, and model sizes.

    Args:
        name: the row's.
        store: the graphs with spectra and targets.
        train: numbers of the graphs that batches are made of.
        recipe: with its loss chosen.
        atoms, bonds: how many values each column of theirs may take.
    """

    name: str
    store: GraphStore
    train: np.ndarray
    recipe: GraphRecipe
    atoms: list[int]
    bonds: list[int]

    def batches(self, store: GraphStore) -> list[Batch]:
        """The first batches of an epoch, on the device of ``store``."""
        return Batches(store, self.train, self.recipe.schedule.batch_size).epoch(0)[:_BATCHES]

    def fresh(self) -> GraphSpecformer:
        """An untrained model, always the same."""
        torch.manual_seed(0)
        assert self.store.y is not None
        tasks = self.store.y.shape[1]
        model = graph_model("specformer", self.recipe, self.atoms, self.bonds, tasks)
        return cast(GraphSpecformer, model)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean error over the known targets."""
        assert self.recipe.loss is not None
        errors, known = graph_errors(self.recipe.loss, outputs, targets)
        return errors.sum() / known.sum().clamp_min(1)


def our_steps(case: GraphCase, device: torch.device) -> Candidate:
    """Batches cut on the device from the whole data set, steps captured, one for each shape.

    The step is that of :func:`specformer.training.loops.graphs.fit_graphs`, without its validation.
    """

    def build() -> Runner:
        store = case.store.to(device)
        batches = case.batches(store)
        model = case.fresh().to(device)
        work = Work(model, case.recipe.precision, device)
        optimiser = case.recipe.schedule.optimiser(model.parameters(), device)
        model.train()

        def step(index: Tensor, shape: BatchShape) -> None:
            optimiser.zero_grad(set_to_none=True)
            outputs = work(Batch(index, shape).of(store))
            differentiate(case.loss(outputs, store.labels(index)))
            optimiser.step()

        repeated = RepeatedByShape(step, device)

        def run(steps: int) -> None:
            with matmul_precision("highest" if work.precision == "highest" else "high", device):
                for number in range(steps):
                    batch = batches[number % len(batches)]
                    repeated(batch.index, batch.shape)

        # A shape is captured when it comes again: here, and not among the steps that are timed.
        for _ in range(2 if device.type == "cuda" else 0):
            run(len(batches))
        return run

    return Candidate("ours", build)


def plain_steps(
    case: GraphCase, model: nn.Module, loss: Callable[[int], Tensor], device: torch.device
) -> Runner:
    """Steps of the plain loop in float32."""
    schedule = case.recipe.schedule

    def run(steps: int) -> None:
        with matmul_precision("highest", device):
            step_plainly(
                model,
                loss,
                steps=steps,
                learning_rate=schedule.learning_rate,
                weight_decay=schedule.weight_decay,
            )

    return run
