"""The layer of a divergence: planted in one of several runs, and as a huge rate makes it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.loops import test_node_epochs as nodes
from tests.training.small_graphs import small_model, small_task
from tests.training.small_signals import SPECTRUM, make_task, specformers
from torch import Tensor, nn

from specformer import decompose
from specformer.errors import RunError
from specformer.training.loops.graphs import fit_graphs
from specformer.training.loops.nodes import NodeFit, NodeRuns, fit_nodes
from specformer.training.loops.signals import fit_signals
from specformer.training.optim.schedule import GraphSchedule, Schedule
from specformer.training.runs.checkpoint import Checkpoint

OPTIONS = {"num_layers": 2, **nodes.BATCH_NORM, **nodes.DROPOUT}
SCHEDULE = Schedule(learning_rate=nodes.RATE, epochs=130, patience=130)


def fit(schedule: Schedule = SCHEDULE, **others: Any) -> NodeFit:
    torch.manual_seed(3)
    models = nodes.specformers(**OPTIONS)
    return fit_nodes(models, nodes.task_on(), nodes.operator_of(models), schedule, **others)


def plant(monkeypatch: pytest.MonkeyPatch, layer: str, at: int, run: int) -> None:
    """From an epoch on, what a layer puts out for one run is not a number."""
    begin = NodeRuns.begin_epoch

    def spoil(runs: NodeRuns, module: nn.Module, _: object, output: Tensor) -> Tensor:
        output = output.clone()
        if module.training and int(runs.epoch) >= at:
            output[run] = torch.nan
        return output

    def begun(self: NodeRuns) -> None:
        module = self.model.get_submodule(layer)
        if not module._forward_hooks:
            module.register_forward_hook(partial(spoil, self))
        begin(self)

    monkeypatch.setattr(NodeRuns, "begin_epoch", begun)


def test_one_run_of_several_is_looked_into_and_the_others_go_on_as_if_nothing_were(
    monkeypatch, tmp_path: Path
) -> None:
    usual = fit()
    assert usual.layers == [""] * nodes.RUNS
    plant(monkeypatch, "convs.1", at=77, run=1)
    found = fit()
    assert found.layers == ["", "layer convs.1", ""]
    assert not found.is_lost.any()
    for run in (0, 2):
        np.testing.assert_array_equal(found.curves[:, run], usual.curves[:, run])
    np.testing.assert_array_equal(found.curves[:77, 1], usual.curves[:77, 1])
    assert found.curves[77:, 1, 0].isnan().all()
    # From a checkpoint that knows it, and from one that was written before.
    monkeypatch.setitem(NodeRuns.fit.__kwdefaults__, "save_every", 60)
    kept = Checkpoint(tmp_path / "kept", "this")
    again = fit(checkpoint=kept)
    assert again.layers == found.layers
    np.testing.assert_array_equal(again.curves, found.curves)
    assert fit(checkpoint=kept).layers == found.layers  # begins at epoch 120


def test_parameters_are_looked_at_first(monkeypatch) -> None:
    begin = NodeRuns.begin_epoch

    def begun(self: NodeRuns) -> None:
        if int(self.epoch) == 5:
            self.model.get_parameter("filters.0.decoder.linear.weight").data[2, 0] = torch.inf
        begin(self)

    monkeypatch.setattr(NodeRuns, "begin_epoch", begun)
    found = fit(Schedule(learning_rate=nodes.RATE, epochs=20, patience=20))
    assert found.layers == ["", "", "layer filters.0.decoder.linear"]


def test_a_huge_rate_is_traced_to_the_layer_that_overflows() -> None:
    task, rate = nodes.task_on(), 1e15
    task = replace(task, x=task.x.float())
    models = [model.float() for model in nodes.specformers(num_layers=2)]
    operator = decompose(nodes.GRAPH)
    found = fit_nodes(models, task, operator, Schedule(learning_rate=rate, epochs=2, patience=5))
    assert found.is_lost.all()
    model, train = models[0], task.train[0]
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    nn.functional.cross_entropy(model(task.x, operator)[train], task.y[train]).backward()
    adam.step()
    assert all(each.isfinite().all() for each in model.parameters())
    bad: list[str] = []
    for name, module in model.named_modules():
        module.register_forward_hook(
            lambda _, __, out, name=name: bad.append(name) if not out.isfinite().all() else None
        )
    model.eval()(task.x, operator)
    assert found.layers[0] == f"layer {bad[0]}"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_captured_epochs_are_taken_again_one_by_one() -> None:
    """One of three runs has features that are not finite; it is looked into at epoch 50."""
    task = nodes.task_on("cuda")
    scale = torch.tensor([1.0, torch.inf, 1.0], dtype=torch.float64, device="cuda")
    task = replace(task, x=task.x * scale.view(-1, 1, 1))
    models = nodes.specformers(num_layers=2)
    found = fit_nodes(models, task, nodes.operator_of(models, "cuda"), SCHEDULE)
    usual = fit_nodes(models, nodes.task_on("cuda"), nodes.operator_of(models, "cuda"), SCHEDULE)
    assert found.layers == ["", "layer feature_dropout", ""]
    assert found.is_lost.tolist() == [False, True, False]
    np.testing.assert_allclose(
        found.curves[:40, 0].cpu(), usual.curves[:40, 0].cpu(), rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("layer", ["atoms", "convs.0", "readout"])
def test_many_graphs(layer: str) -> None:
    model, seen = small_model(), []
    module = model.get_submodule(layer)

    def spoil(_: nn.Module, __: object, output: Tensor) -> Tensor | None:
        seen.append(1)
        return output * torch.inf if len(seen) > 25 and module.training else None

    module.register_forward_hook(spoil)
    schedule = GraphSchedule(epochs=9, batch_size=6, warmup=0)
    found = fit_graphs(model, small_task(), schedule)
    assert found.layer == f"layer {layer}"
    assert 1 < found.epochs < 9
    with pytest.raises(RunError, match=f"run 2 of 3 has .* first in layer {layer}"):
        fit_graphs(model, small_task(), schedule, which="run 2 of 3")


def test_a_loss_that_overflows_alone_is_named() -> None:
    task = small_task(loss="mse")
    assert task.store.y is not None
    far = replace(task, store=replace(task.store, y=task.store.y * 1e200))
    with pytest.raises(RunError, match=r"from epoch 1 on, first in the loss\."):
        fit_graphs(small_model(), far, GraphSchedule(epochs=3, batch_size=6))


def test_signals() -> None:
    models = specformers()
    models[2].get_parameter("filters.0.encoder.blocks.0.attention_norm.weight").data.fill_(
        torch.nan
    )
    said = r"run 3 of 4 has no model, .* epoch 1 on, first in layer filters.*\.attention_norm\."
    with pytest.raises(RunError, match=said):
        fit_signals(models, make_task(), SPECTRUM, Schedule(epochs=3))
