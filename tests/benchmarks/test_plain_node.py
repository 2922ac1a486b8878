"""The plain node model: the same outputs, and the same losses over fifty epochs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.undropped import undropped

from benchmarks.plain_loop import PlainTask, fit_plainly
from benchmarks.plain_node import PlainSpecformer
from specformer import Specformer, decompose
from specformer.datasets import csbm, random_60_20_20
from specformer.errors import ConfigError
from specformer.spectrum import Spectrum
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops.nodes import fit_nodes
from specformer.training.optim.schedule import Schedule

CPU = torch.device("cpu")
GRAPH = csbm(0.4, num_nodes=80, num_features=12, seed=2)
SPLIT = random_60_20_20(GRAPH.y, seed=0)
#: A rate that float32 holds exactly: our loop keeps it there whatever the model's precision.
RATE = 2.0**-7
HIDDEN = {"space": "hidden", "norm": "batch", "activation": "relu"}


def model_of(dtype: torch.dtype = torch.float64, **options: Any) -> Specformer:
    torch.manual_seed(0)
    return undropped(12, 8, 2, num_heads=2, **options).to(dtype)


def spectrum_of(dtype: torch.dtype) -> Spectrum:
    return decompose(GRAPH, dtype=dtype)


@pytest.mark.parametrize(
    "options",
    [{}, {"sharing": "small"}, {"num_layers": 1, "epsilon": 30.0}, {"bias": False}, HIDDEN],
)
@pytest.mark.parametrize("training", [True, False])
def test_same_outputs_and_gradients(options: dict[str, Any], training: bool) -> None:
    model = model_of(**options).train(training)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    plain = PlainSpecformer.of(model).train(training)
    spectrum = spectrum_of(torch.float64)
    x = torch.as_tensor(GRAPH.x).double()
    ours = model(x, spectrum)
    theirs = plain(x, spectrum.eigenvalues, spectrum.eigenvectors)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    (ours**2).sum().backward()
    (theirs**2).sum().backward()
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in plain.parameters())
    torch.testing.assert_close(plain.lift.weight.grad, model.lift.weight.grad)
    projection = plain.filters[0].attention.in_proj_weight.grad.chunk(3)
    attention = model.filters[0].encoder.blocks[0].attention
    for mine, layer in zip(
        projection, (attention.query, attention.key, attention.value), strict=True
    ):
        torch.testing.assert_close(mine, layer.weight.grad, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("which", ["transformer", "feature", "propagation"])
@pytest.mark.parametrize("options", [{}, {"second_dropout": "after"}, {"space": "hidden"}])
def test_dropout_is_in_the_same_places(which: str, options: dict[str, Any]) -> None:
    """A rate of one leaves nothing to chance: all that passes through it is lost."""
    model = model_of(**options, **{f"{which}_dropout": 1.0})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    plain, spectrum = PlainSpecformer.of(model), spectrum_of(torch.float64)
    x = torch.as_tensor(GRAPH.x).double()
    theirs = plain(x, spectrum.eigenvalues, spectrum.eigenvectors)
    torch.testing.assert_close(model(x, spectrum), theirs, rtol=0, atol=1e-10)
    without = model.eval()(x, spectrum)
    assert not torch.allclose(without, theirs)


@pytest.mark.parametrize("options", [{}, HIDDEN], ids=["output", "hidden"])
@pytest.mark.parametrize(("dtype", "apart"), [(torch.float32, 1e-4), (torch.float64, 1e-8)])
def test_same_losses_over_fifty_epochs(dtype, apart: float, options: dict[str, Any]) -> None:
    model, spectrum = model_of(dtype, **options), spectrum_of(dtype)
    plain = PlainSpecformer.of(model)
    task = NodeTask.from_splits(GRAPH.x, GRAPH.y, [SPLIT], CPU)
    task = replace(task, x=task.x.to(dtype))
    schedule = Schedule(epochs=50, patience=60, learning_rate=RATE, weight_decay=5e-4)
    curves = fit_nodes([model], task, spectrum, schedule).curves[:, 0].numpy()
    x = torch.as_tensor(GRAPH.x).to(dtype)
    readings = fit_plainly(
        plain,
        lambda: plain(x, spectrum.eigenvalues, spectrum.eigenvectors),
        PlainTask.of(GRAPH.y, SPLIT, CPU),
        schedule,
    )
    theirs = np.array([reading[:3] for reading in readings])
    assert theirs.shape == curves.shape == (50, 3)
    np.testing.assert_allclose(curves[:, :2], theirs[:, :2], rtol=0, atol=apart)
    assert theirs[-1, 0] < 0.9 * theirs[0, 0]  # it learns, so the comparison means something


def test_the_host_stops_the_plain_loop() -> None:
    weights = torch.nn.Linear(1, 2)
    readings = fit_plainly(
        weights,
        lambda: weights(torch.zeros(GRAPH.num_nodes, 1)) * 0.0,  # nothing to learn
        PlainTask.of(GRAPH.y, SPLIT, CPU),
        Schedule(epochs=20, patience=3, learning_rate=0.1),
    )
    assert len(readings) == 4
    share = float((GRAPH.y[SPLIT.test] == 0).mean())
    assert readings[0].val_loss == pytest.approx(np.log(2))
    assert readings[0].test_accuracy == pytest.approx(share)


@pytest.mark.parametrize(
    "options", [{"decoder": "heads"}, {"num_blocks": 2}, {"sharing": "large"}, {"norm": "layer"}]
)
def test_what_it_does_not_compute_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name}=.*the plain version has"):
        PlainSpecformer.of(model_of(**options))
