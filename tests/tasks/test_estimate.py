"""What a job may take: grows as the work does, holds at least what must be held, reads well."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.training.small_graphs import small_set

from specformer.datasets import csbm
from specformer.spectrum.solvers.dense import required_bytes
from specformer.tasks import estimate
from specformer.tasks.estimate import Estimate, in_words
from specformer.tasks.graphs.graph_recipe import graph_recipe
from specformer.tasks.nodes.node_recipe import node_recipe
from specformer.tasks.train import inspect_source

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _same_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "product_speed", lambda device: 1e10)


def of_nodes(nodes: int = 200, runs: int = 2, model: str = "specformer", *changes: str) -> Estimate:
    graph = csbm(0.5, num_nodes=nodes, num_features=8)
    recipe = node_recipe("default", "own", changes, model)[1]
    return estimate.of_nodes(graph, recipe, model, runs, CPU)


def test_more_work_takes_longer() -> None:
    usual = of_nodes().seconds
    assert of_nodes(nodes=400).seconds > 2 * usual
    assert of_nodes(runs=4).seconds > usual
    assert of_nodes(200, 2, "specformer", "schedule.epochs=20").seconds < usual
    assert of_nodes(model="gcn").seconds < usual


def test_a_decomposition_holds_its_matrices() -> None:
    solved = of_nodes(nodes=3000).memory
    without = [of_nodes(3000, 2, "gcn"), of_nodes(3000, 2, "specformer", "spectrum=density")]
    assert solved > required_bytes(3000, CPU)
    assert all(solved - each.memory > required_bytes(3000, CPU) / 2 for each in without)


def test_many_graphs_take_as_their_pairs_of_nodes_do() -> None:
    recipe = graph_recipe(None, "own")[1]
    few, many = (estimate.of_graphs(small_set(count), recipe, 1, CPU) for count in (40, 400))
    assert many.seconds > 5 * few.seconds
    assert many.memory > few.memory
    assert estimate.of_graphs(small_set(40), recipe, 3, CPU).seconds > 2 * few.seconds


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.2, "a few seconds at most"),
        (44.0, "about 40 seconds at most"),
        (3500.0, "about 60 minutes at most"),
        (5400.0, "about 2 hours at most"),
        (200_000.0, "about 2 days at most"),
    ],
)
def test_times_in_words(seconds: float, told: str) -> None:
    assert in_words(Estimate(seconds, 2**30)) == f"{told}, and 1.0 GiB of memory"


def test_an_inspection_tells_columns_and_needs() -> None:
    found = inspect_source("csbm")
    assert found["prepared"] == ["200 columns, '0' to '199': standardised"]
    assert set(found["estimate"]) == {"seconds", "memory"}
    assert np.isfinite(found["estimate"]["seconds"])
