"""Baselines from a recipe's settings."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
import torch

from specformer.baselines import BASELINES, NodeBaseline, Propagation, node_baseline
from specformer.datasets import csbm, dense_features, make_splits
from specformer.errors import ConfigError
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops.nodes import fit_nodes
from specformer.training.optim.schedule import Schedule

CPU = torch.device("cpu")
OPTIONS = {field.name for field in fields(NodeBaseline)} - {
    "hidden_channels",
    "transformer_channels",
}


@pytest.mark.parametrize("name", BASELINES)
def test_without_settings_a_model_has_its_own_defaults(name):
    torch.manual_seed(0)
    made = node_baseline(name, NodeBaseline(dropout=0.0), 5, 3)
    torch.manual_seed(0)
    width = 32 if name in ("transformer", "graphormer") else 64
    plain = BASELINES[name](5, width, 3)
    assert repr(made) == repr(plain)
    torch.testing.assert_close(made.state_dict(), plain.state_dict(), rtol=0, atol=0)


def test_settings_reach_the_model():
    settings = NodeBaseline(hidden_channels=8, dropout=0.1, num_layers=4, alpha=0.3, theta=1.5)
    model = node_baseline("gcnii", settings, 5, 3)
    assert (len(model.convs), model.convs[0].alpha, model.dropout.p) == (4, 0.3, 0.1)
    assert model.convs[0].beta == pytest.approx(0.9162907)  # log(1.5 / 1 + 1)
    jacobi = node_baseline("jacobiconv", NodeBaseline(propagation_dropout=0.0, gamma=2.0), 5, 3)
    assert (jacobi.dropout.p, jacobi.propagation_dropout.p, jacobi.gamma) == (0.5, 0.0, 2.0)
    assert node_baseline("jacobiconv", NodeBaseline(), 5, 3).propagation_dropout.p == 0.5


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_setting_is_one_of_some_model(option):
    assert any(option in inspect.signature(kind).parameters for kind in BASELINES.values())


def test_a_setting_of_another_model_is_refused():
    with pytest.raises(
        ConfigError, match=r"baseline\.alpha is not a setting of gcn; choose from .*drop"
    ):
        node_baseline("gcn", NodeBaseline(alpha=0.1), 5, 3)
    with pytest.raises(ConfigError, match="unknown baseline 'gnc'; choose from gcn"):
        node_baseline("gnc", NodeBaseline(), 5, 3)


@pytest.mark.parametrize("name", ["gprgnn", "bernnet", "chebnetii", "jacobiconv"])
def test_filters_learn_at_a_rate_of_their_own(name):
    torch.manual_seed(0)
    blocks = csbm(0.6, num_nodes=40, num_features=4, seed=1)
    model = node_baseline(name, NodeBaseline(hidden_channels=4, dropout=0.0), 4, 2)
    task = NodeTask.from_splits(
        dense_features(blocks), blocks.y, make_splits(blocks, "random-60-20-20", 1, 0), CPU
    )
    schedule = Schedule(epochs=3, filter_learning_rate=1e-12)
    fit = fit_nodes([model], task, Propagation(blocks.adjacency), schedule)
    filters = {id(parameter) for parameter in model.filter_parameters()}
    assert filters
    for key, before in model.named_parameters():
        moved = (fit.model.get_parameter(key)[0] - before).abs().max().item()
        assert moved < 1e-6 if id(before) in filters else moved > 1e-3, key


@pytest.mark.parametrize("name", ["bernnet", "chebnetii", "jacobiconv"])
def test_propagation_dropout_acts_in_training_only(graph, name):
    model = BASELINES[name](3, 8, 2, propagation_dropout=0.5)
    x, propagation = torch.randn(graph.num_nodes, 3), graph.propagation(torch.float32)
    assert not torch.equal(model(x, propagation), model(x, propagation))
    model.eval()
    assert torch.equal(model(x, propagation), model(x, propagation))
