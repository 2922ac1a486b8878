"""Batches of nodes: a whole-graph batch is the full-batch loop, many are ordinary steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.seeded import seeded
from tests.undropped import undropped
from torch import nn

from specformer import approximate, decompose
from specformer.baselines import MLP
from specformer.datasets import csbm, random_60_20_20
from specformer.errors import ConfigError
from specformer.spectrum.implicit.polynomial import ChebyshevTerms, chebyshev_terms
from specformer.training.engine.distributed import epoch_seed
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops.node_batches import fit_node_batches
from specformer.training.loops.nodes import NodeFit, fit_nodes
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.checkpoint import Checkpoint

RUNS = 2
GRAPH = csbm(0.6, num_nodes=60, num_features=10, seed=1)
SPLITS = [random_60_20_20(GRAPH.y, seed) for seed in range(RUNS)]
SPECTRUM = approximate(GRAPH, degree=8, dtype=torch.float64)


def models(runs: int = RUNS, **options) -> list[nn.Module]:
    return seeded(lambda: undropped(10, 8, 2, num_heads=2, space="input", **options), runs)


def task_of(splits=SPLITS, y=GRAPH.y) -> NodeTask:
    task = NodeTask.from_splits(GRAPH.x, y, splits, torch.device("cpu"))
    return replace(task, x=task.x.double())


def terms(batch_size: int) -> ChebyshevTerms:
    return chebyshev_terms(SPECTRUM, task_of().x, batch_size, storage=torch.float64)


def train(
    batch_size: int, *, made=None, task=None, checkpoint=None, listen=None, **schedule
) -> NodeFit:
    torch.manual_seed(7)
    return fit_node_batches(
        made or models(),
        task or task_of(),
        terms(batch_size),
        Schedule(learning_rate=0.02, **schedule),
        batch_size=batch_size,
        checkpoint=checkpoint,
        on_progress=listen,
    )


@pytest.mark.parametrize("options", [{}, {"num_layers": 1}, {"num_layers": 3, "sharing": "large"}])
def test_one_batch_of_all_nodes_is_the_full_batch(options) -> None:
    schedule = Schedule(learning_rate=0.02, epochs=12, patience=4)
    whole = fit_nodes(models(**options), task_of(), SPECTRUM, schedule)
    batched = train(60, made=models(**options), epochs=12, patience=4)
    torch.testing.assert_close(batched.curves, whole.curves, rtol=1e-7, atol=1e-9)
    for rule in ("by_loss", "by_metric"):
        for name in ("val", "test", "epoch"):
            own, other = (getattr(getattr(fit, rule), name) for fit in (batched, whole))
            torch.testing.assert_close(own, other)
    assert torch.equal(batched.epochs, whole.epochs)
    for own, other in zip(batched.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-9)


def test_features_of_each_run() -> None:
    """One batch of all nodes is the full batch, where each run has features of its own too."""
    task = task_of()
    task = replace(task, x=torch.stack([task.x, 3 * task.x - 1]))
    schedule = Schedule(learning_rate=0.02, epochs=6)
    whole = fit_nodes(models(), task, SPECTRUM, schedule)
    own = chebyshev_terms(SPECTRUM, task.x, 60, storage=torch.float64)
    torch.manual_seed(7)
    batched = fit_node_batches(models(), task, own, schedule, batch_size=60)
    torch.testing.assert_close(batched.curves, whole.curves, rtol=1e-7, atol=1e-9)
    assert not torch.allclose(
        whole.curves, fit_nodes(models(), task_of(), SPECTRUM, schedule).curves
    )


def test_an_epoch_of_batches_by_hand() -> None:
    """Steps of Adam, batch after batch, with filters of the whole graph, then evaluation."""
    task = task_of(SPLITS[:1])
    fit = train(10, made=models(1), task=task, epochs=1)
    (model,) = models(1)
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    nodes = torch.as_tensor(np.flatnonzero(SPLITS[0].train))
    losses, drawn = [], torch.Generator().manual_seed(epoch_seed(7, torch.tensor(0)))
    order = nodes[torch.randperm(len(nodes), generator=drawn)]
    for batch in order.tensor_split(-(-len(nodes) // 10)):
        assert len(batch) <= 10
        logits = model(task.x, SPECTRUM)[batch]
        loss = nn.functional.cross_entropy(logits, task.y[batch], reduction="none")
        adam.zero_grad()
        loss.mean().backward()
        adam.step()
        losses.append(loss.detach())
    with torch.no_grad():
        logits = model(task.x, SPECTRUM)[task.val[0]]
    wanted = task.y[task.val[0]]
    expected = [
        torch.cat(losses).mean().item(),
        nn.functional.cross_entropy(logits, wanted).item(),
        (logits.argmax(dim=-1) == wanted).double().mean().item(),
    ]
    np.testing.assert_allclose(fit.curves[0, 0].numpy(), expected, rtol=1e-6)


def test_terms_elsewhere_are_streamed(monkeypatch) -> None:
    here = train(10, epochs=3)
    monkeypatch.setattr(ChebyshevTerms, "is_resident", False)
    streamed = train(10, epochs=3)
    assert torch.equal(here.curves, streamed.curves)


def test_each_run_trains_on_its_own_nodes() -> None:
    """Labels of nodes outside a run's training part do not move it."""
    split = SPLITS[0]
    changed = np.where(split.train | split.val, GRAPH.y, 1 - GRAPH.y)
    made = [SPLITS[0], SPLITS[0]]
    fits = [train(16, task=task_of(made, y), epochs=4) for y in (GRAPH.y, changed)]
    assert torch.equal(fits[0].curves, fits[1].curves)
    torch.testing.assert_close(fits[0].by_loss.test, 1 - fits[1].by_loss.test)


def test_it_learns_and_keeps_the_best_model() -> None:
    graph = csbm(0.5, num_nodes=120, num_features=10, signal=40.0, seed=0)
    splits = [random_60_20_20(graph.y, seed) for seed in range(RUNS)]
    task = NodeTask.from_splits(graph.x, graph.y, splits, torch.device("cpu"))
    spectrum = approximate(graph, degree=16)
    made = [
        model.float()
        for model in models(feature_dropout=0.2, num_layers=1, propagation_dropout=0.2)
    ]
    torch.manual_seed(0)
    fit = fit_node_batches(
        made,
        task,
        chebyshev_terms(spectrum, task.x, 16, storage=torch.bfloat16),
        Schedule(epochs=40, learning_rate=0.02),
        batch_size=16,
    )
    assert (fit.by_loss.test >= 0.9).all()
    for run, template in enumerate(made):
        model = unstack(fit.model, run, template).eval()
        right = model(task.x, spectrum).argmax(dim=-1) == task.y
        test = right[task.test[run]].float().mean()
        assert test == pytest.approx(float(fit.by_loss.test[run]), abs=0.05)  # bfloat16


def test_a_model_moves_between_batches_and_a_decomposition() -> None:
    """Trained in batches, applied to eigenpairs, and the other way round: one function.

    With complete tokens nothing but the interpolation is approximate.
    """
    made = models(epsilon=5.0)
    fine = approximate(GRAPH, degree=24, probes=60, steps=60, dtype=torch.float64)
    exact = decompose(GRAPH, dtype=torch.float64)
    task = task_of()
    schedule = Schedule(learning_rate=0.02, epochs=10)
    features = chebyshev_terms(fine, task.x, 20, storage=torch.float64)
    batched = fit_node_batches(made, task, features, schedule, batch_size=20)
    decomposed = fit_nodes(made, task, exact, schedule)
    for fit in (batched, decomposed):
        for run, template in enumerate(made):
            model = unstack(fit.model, run, template).eval()
            error = model.interpolation_error(fine)
            assert 0 < error < 0.05
            with torch.no_grad():
                whole = model(task.x, exact)
                rows = [model(rows.x, rows) for rows in features.batches(torch.arange(60).split(9))]
            difference = (torch.cat(rows) - whole).norm() / whole.norm()
            assert difference <= 5 * error


def test_a_stopped_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    made = {"feature_dropout": 0.3, "num_layers": 1, "propagation_dropout": 0.2}
    whole = train(16, made=models(**made), epochs=25)

    class StoppedError(Exception):
        """As if killed."""

    def stop(done: int, *_: object, **__: object) -> None:
        if done == 23:
            raise StoppedError

    checkpoint = Checkpoint(tmp_path / "c", "this")
    with pytest.raises(StoppedError):
        train(16, made=models(**made), checkpoint=checkpoint, listen=stop, epochs=25)
    seen: list[int] = []

    def listen(done: int, *_: object, **__: object) -> None:
        seen.append(done)

    again = train(16, made=models(**made), checkpoint=checkpoint, listen=listen, epochs=25)
    assert seen == [21, 22, 23, 24, 25]
    assert torch.equal(again.curves, whole.curves)
    for own, other in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize(
    "options",
    [
        {"space": "output"},
        {"space": "hidden", "num_layers": 1},
        {"propagation_dropout": 0.2},
        {"activation": "relu"},
        {"bases": "ffn"},
    ],
    ids=str,
)
def test_models_that_need_other_nodes_are_refused(options) -> None:
    torch.manual_seed(0)
    model = undropped(10, 8, 2, **{"space": "input", **options}).double()
    assert not model.takes_batches
    with pytest.raises(ConfigError, match=r"batch_size needs Specformer with model\.space=input"):
        train(16, made=[model] * RUNS, epochs=1)


@pytest.mark.parametrize("options", [{}, {"norm": "layer", "activation": "relu", "residual": True}])
def test_one_layer_of_any_kind_is_taken(options) -> None:
    made = models(num_layers=1, **options)
    assert all(model.takes_batches for model in made)
    assert torch.isfinite(train(16, made=made, epochs=2).curves).all()


def test_other_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="leave batch_size empty"):
        train(16, made=[MLP(10, 8, 2).double()] * RUNS, epochs=1)
