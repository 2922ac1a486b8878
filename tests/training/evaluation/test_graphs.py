"""Outputs for a list of graphs: those of each graph alone, in a known order, call after call."""

from __future__ import annotations

import numpy as np
import torch
from tests.training.small_graphs import small_model, small_task

from specformer.training.engine.distributed import Workers
from specformer.training.evaluation.graphs import GraphEvaluation, Placed

CPU = torch.device("cpu")
NUMBERS = np.array([11, 3, 25, 7, 30, 2])


class Half(Workers):
    """One of two workers that hears nothing from the other."""

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def test_outputs_are_those_of_each_graph_alone() -> None:
    task, model = small_task(), small_model()
    evaluation = GraphEvaluation(Placed(model, "highest", CPU), task.store, NUMBERS, batch_size=1)
    assert sorted(evaluation.order.tolist()) == sorted(NUMBERS.tolist())
    outputs = evaluation.outputs()
    assert not model.training
    with torch.no_grad():
        alone = torch.cat([model(task.store.exact([n])) for n in evaluation.order.tolist()])
    torch.testing.assert_close(outputs, alone)
    targets = task.store.labels(evaluation.order)
    torch.testing.assert_close(evaluation.targets, targets, equal_nan=True)


def test_a_changed_model_gives_other_outputs() -> None:
    task, model = small_task(), small_model()
    evaluation = GraphEvaluation(Placed(model, "highest", CPU), task.store, NUMBERS, batch_size=2)
    before = evaluation.outputs()
    with torch.no_grad():
        model.readout.bias.add_(1.0)
    torch.testing.assert_close(evaluation.outputs(), before + 1.0)


def test_workers_share_the_graphs() -> None:
    task, model = small_task(), small_model()
    whole = GraphEvaluation(Placed(model, "highest", CPU), task.store, NUMBERS, batch_size=1)
    parts = [
        GraphEvaluation(
            Placed(model, "highest", CPU, Half(rank, 2)), task.store, NUMBERS, 1
        ).outputs()
        for rank in range(2)
    ]
    assert all(bool((part == 0).all(dim=1).any()) for part in parts)
    torch.testing.assert_close(sum(parts), whole.outputs())
