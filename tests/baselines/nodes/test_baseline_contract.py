"""What every baseline promises, whatever it computes."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest
import torch
from torch import nn

from specformer.baselines import BASELINES, signal_baseline
from specformer.errors import ConfigError, RunError

RUNS = 3
DTYPES = [torch.float32, torch.float64]
TABLE_1 = ["gcn", "gat", "chebnet", "gprgnn", "bernnet", "jacobiconv"]
every_model = pytest.mark.parametrize("name", BASELINES)


def make(name: str, dtype: torch.dtype = torch.float64, seed: int = 0, **options) -> nn.Module:
    """A model with no parameter left at a special value (zero biases, identity filters)."""
    torch.manual_seed(seed)
    model = BASELINES[name](3, 8, 2, **options).to(dtype)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def stack(models: list[nn.Module]) -> nn.Module:
    """One module that holds each parameter of several, along a new first axis."""
    stacked = copy.deepcopy(models[0])
    for module, *others in zip(stacked.modules(), *(m.modules() for m in models), strict=True):
        for name, _ in list(module.named_parameters(recurse=False)):
            rows = [getattr(other, name).detach() for other in others]
            module.register_parameter(name, nn.Parameter(torch.stack(rows)))
    return stacked


@every_model
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shared", [True, False], ids=["shared_x", "own_x"])
def test_stacked_models_are_the_models_alone(graph, name, dtype, shared):
    models = [make(name, dtype, seed) for seed in range(RUNS)]
    propagation = graph.propagation(dtype)
    x = torch.randn(RUNS, graph.num_nodes, 3, dtype=dtype)
    x = x[:1].expand_as(x) if shared else x
    alone = torch.stack([m(row, propagation) for m, row in zip(models, x, strict=True)])
    stacked = stack(models)
    together = stacked(x[0] if shared else x, propagation)
    torch.testing.assert_close(together, alone)

    together.square().sum().backward()
    alone.square().sum().backward()
    for key, parameter in stacked.named_parameters():
        expected = torch.stack([model.get_parameter(key).grad for model in models])
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-4)


@every_model
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_model_on_many_signals(graph, name, dtype):
    model, propagation = make(name, dtype), graph.propagation(dtype)
    x = torch.randn(RUNS, graph.num_nodes, 3, dtype=dtype)
    out = model(x, propagation)
    assert out.shape == (RUNS, graph.num_nodes, 2)
    assert out.dtype == dtype
    torch.testing.assert_close(out, torch.stack([model(row, propagation) for row in x]))


@every_model
def test_permutation_equivariance(graph, name):
    model = make(name)
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    order = np.random.default_rng(1).permutation(graph.num_nodes)
    relabelled = model(x[order], graph.relabelled(order).propagation())
    torch.testing.assert_close(relabelled, model(x, graph.propagation())[order])


@every_model
def test_gradients(graph, name):
    model, propagation = make(name), graph.propagation()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: model(x, propagation), x)
    assert all(parameter.grad is None for parameter in model.parameters())
    model(x, propagation).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@every_model
def test_training_after_evaluation_in_inference_mode(graph, name):
    model, propagation = make(name), graph.propagation()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    with torch.inference_mode():
        before = model(x, propagation)
    after = model(x, propagation)
    torch.testing.assert_close(after, before.clone())
    after.sum().backward()


@every_model
def test_gradients_under_autocast_are_near_those_without(graph, name):
    model, propagation = make(name, torch.float32), graph.propagation(torch.float32)
    torch.manual_seed(0)
    x = torch.randn(graph.num_nodes, 3)
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = model(x, propagation).float().square().sum()
        found.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
        )
    assert torch.nn.functional.cosine_similarity(*found, dim=0) > 0.98


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "mlp"])
def test_features_of_other_nodes_are_refused(graph, name):
    x = torch.randn(graph.num_nodes + 1, 3, dtype=torch.float64)
    with pytest.raises(ConfigError, match=f"but the graph has {graph.num_nodes} nodes"):
        make(name)(x, graph.propagation())


@every_model
def test_reset_parameters_forgets_everything(name):
    models = make(name, seed=1), make(name, seed=2)
    for model in models:
        torch.manual_seed(0)
        model.reset_parameters()
    one, other = models
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


@every_model
def test_dropout_acts_in_training_only(graph, name):
    model = make(name, torch.float32, dropout=0.5)
    x, propagation = torch.randn(graph.num_nodes, 3), graph.propagation(torch.float32)
    assert not torch.equal(model(x, propagation), model(x, propagation))
    model.eval()
    assert torch.equal(model(x, propagation), model(x, propagation))


@every_model
@pytest.mark.parametrize("value", [-1, None, "x", [], float("nan")], ids=repr)
def test_bad_arguments_are_named(name, value):
    for argument in inspect.signature(BASELINES[name]).parameters:
        if argument == "gamma" and value == -1:  # JacobiConv's may be any number
            continue
        if argument == "propagation_dropout" and name == "jacobiconv" and value is None:
            continue
        options = {"in_channels": 3, "hidden_channels": 8, "out_channels": 2, argument: value}
        with pytest.raises(ConfigError, match=rf"\b{argument}\b"):
            BASELINES[name](**options)


@every_model
@pytest.mark.parametrize(
    "argument", ["in_channels", "hidden_channels", "out_channels", "num_layers"]
)
@pytest.mark.parametrize("value", [0, 2.5])
def test_counts_are_whole_and_at_least_one(name, argument, value):
    if argument not in inspect.signature(BASELINES[name]).parameters:
        return
    options = {"in_channels": 3, "hidden_channels": 8, "out_channels": 2, argument: value}
    with pytest.raises(ConfigError, match=f"{argument}={value} must be a"):
        BASELINES[name](**options)


def test_lanczosnet_has_a_convolution_at_least():
    with pytest.raises(ConfigError, match="num_layers=1 must be at least 2"):
        BASELINES["lanczosnet"](3, 8, 2, num_layers=1)


@pytest.mark.parametrize("name", ["gprgnn", "bernnet", "jacobiconv", "chebnetii"])
def test_stacked_responses(name):
    options = {"self_loops": False} if name == "gprgnn" else {}
    models = [make(name, seed=seed, **options) for seed in range(RUNS)]
    eigenvalues = torch.linspace(0, 2, 5, dtype=torch.float64)
    alone = torch.stack([model.response(eigenvalues) for model in models])
    torch.testing.assert_close(stack(models).response(eigenvalues), alone)


@pytest.mark.parametrize("name", TABLE_1)
def test_signal_baselines_have_about_two_thousand_parameters(graph, name):
    model = signal_baseline(name)
    assert 1900 <= sum(parameter.numel() for parameter in model.parameters()) <= 2150
    x = torch.randn(graph.num_nodes, 1)
    assert model(x, graph.propagation(torch.float32)).shape == (graph.num_nodes, 1)
    if hasattr(model, "response"):
        assert model.response(torch.linspace(0, 2, 5)).shape == (5, 1)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'gcnn'.*gcn, gat, chebnet"):
        signal_baseline("gcnn")


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in TABLE_1])
def test_models_of_other_tables_learn_no_signals(name):
    with pytest.raises(ConfigError, match=rf"'{name}' is not in Table 1; .*gcn, gat, chebnet"):
        signal_baseline(name)


def test_the_node_models_of_table_2():
    others = "mlp", "h2gcn", "gcnii", "lanczosnet", "chebnetii", "transformer", "graphormer"
    assert list(BASELINES) == [*TABLE_1, *others]


@every_model
def test_saved_and_loaded_it_is_the_same_model(graph, name, tmp_path):
    model = make(name, dropout=0.25).eval()
    model.save_pretrained(tmp_path)
    again = BASELINES[name].from_pretrained(tmp_path)
    assert again.config == model.config
    assert str(again) == str(model)
    propagation = graph.propagation(torch.float64)
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    assert torch.equal(again(x, propagation), model(x, propagation))
    weights = tmp_path / "model.safetensors"
    altered = bytearray(weights.read_bytes())
    altered[-1] ^= 1
    weights.write_bytes(bytes(altered))
    with pytest.raises(RunError, match="checksum differs"):
        BASELINES[name].from_pretrained(tmp_path)
