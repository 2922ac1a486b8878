"""Trainings that take turns: the numbers of each alone, and no failure stops the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.training.small_graphs import small_model, small_set, small_task

from specformer.errors import RunError
from specformer.training.engine.turns import Steps, in_turns
from specformer.training.loops.graphs import GraphFit, fit_graphs, graph_steps
from specformer.training.optim.schedule import GraphSchedule

DROPOUT = {"feature_dropout": 0.2, "transformer_dropout": 0.1}
CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
)


def training(seed: int, device: torch.device, *, fit=graph_steps, **settings):
    schedule = GraphSchedule(
        **{"epochs": 4 + seed, "batch_size": 8, "learning_rate": 0.01, **settings}
    )
    model = small_model(seed=seed, **DROPOUT).to(device)
    precision = ("highest", "high")[seed % 2]
    return fit(model, small_task(small_set(60)), schedule, seed=seed, precision=precision)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("lanes", [2, 9])
def test_turns_change_no_number(device: str, lanes: int) -> None:
    where = torch.device(device)
    alone = [training(seed, where, fit=fit_graphs) for seed in range(4)]
    precision = torch.get_float32_matmul_precision()
    together: list[GraphFit] = in_turns((training(seed, where) for seed in range(4)), lanes, where)
    together.sort(key=lambda fit: fit.epochs)  # in the order in which they ended before
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(other.curves, one.curves)
        np.testing.assert_array_equal(other.predicted, one.predicted)
    assert torch.get_float32_matmul_precision() == precision


def test_a_training_that_fails_lets_the_others_end_first() -> None:
    cpu, ended = torch.device("cpu"), []

    def noted(seed: int, **settings: float) -> Steps[None]:
        fit = yield from training(seed, cpu, **settings)
        ended.append(fit.epochs)

    every = [noted(0, learning_rate=1e30), noted(1), noted(2)]
    with pytest.raises(RunError, match="training diverged"):
        in_turns(every, 2, cpu)
    assert ended == [5, 6]
