"""The order of a node-level epoch: as literal training, update, evaluation; resumed anywhere."""

from __future__ import annotations

import copy
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.training.seeded import seeded
from tests.undropped import undropped
from torch import Tensor, nn

from specformer import Specformer, decompose
from specformer.baselines import GCN, Propagation
from specformer.datasets import csbm, random_60_20_20
from specformer.training.engine.stacking import trained_state, unstack
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops import nodes as node_loop
from specformer.training.loops.nodes import Monitor, NodeFit, NodeRuns, fit_nodes
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.checkpoint import Checkpoint

RUNS = 3
GRAPH = csbm(0.6, num_nodes=60, num_features=10, seed=1)
#: Labels that nothing tells, so that runs stop, each at an epoch of its own.
LABELS = np.random.default_rng(0).integers(0, 2, GRAPH.num_nodes)
SPLITS = [random_60_20_20(GRAPH.y, seed) for seed in range(RUNS)]
#: A rate that float32 holds exactly: our loop keeps it there whatever the model's precision.
RATE = 2.0**-5
BATCH_NORM = {"space": "hidden", "norm": "batch", "activation": "relu"}
DROPOUT = {"feature_dropout": 0.5, "transformer_dropout": 0.1, "propagation_dropout": 0.2}


def specformers(runs: int = RUNS, **options: Any) -> list[nn.Module]:
    return seeded(lambda: undropped(10, 8, 2, num_heads=2, **options), runs)


def gcns() -> list[nn.Module]:
    return seeded(lambda: GCN(10, 8, 2, dropout=0.0), RUNS)


def task_on(device: str = "cpu", runs: int = RUNS) -> NodeTask:
    task = NodeTask.from_splits(GRAPH.x, LABELS, SPLITS[:runs], torch.device(device))
    return replace(task, x=task.x.double())


def operator_of(models: list[nn.Module], device: str = "cpu") -> object:
    if isinstance(models[0], Specformer):
        return decompose(GRAPH, dtype=torch.float64).to(device)
    return Propagation(GRAPH.adjacency, dtype=torch.float64, device=torch.device(device))


@dataclass
class Literal:
    """One run as a textbook has it: train, update, evaluate, decide."""

    curve: list[list[float]] = field(default_factory=list)
    epoch: int = 0
    test: float = 0.0
    kept: dict[str, Tensor] = field(default_factory=dict)


def literal_run(
    model: nn.Module, operator: object, run: int, epochs: int, patience: int, monitor: Monitor
) -> Literal:
    model, task, out = copy.deepcopy(model), task_on(), Literal()
    train, val, test = task.train[run], task.val[run], task.test[run]
    adam, best = torch.optim.Adam(model.parameters(), lr=RATE), float("inf")
    for epoch in range(epochs):
        model.train()
        adam.zero_grad()
        loss = nn.functional.cross_entropy(model(task.x, operator)[train], task.y[train])
        loss.backward()
        adam.step()
        model.eval()
        with torch.no_grad():
            logits = model(task.x, operator)
        right = (logits.argmax(dim=-1) == task.y).double()
        val_loss = nn.functional.cross_entropy(logits[val], task.y[val]).item()
        accuracy = right[val].mean().item()
        out.curve.append([loss.item(), val_loss, accuracy])
        score = val_loss if monitor == "loss" else -accuracy
        if score < best:
            best, out.epoch, out.test = score, epoch, right[test].mean().item()
            out.kept = {name: each.clone() for name, each in trained_state(model).items()}
        if epoch - out.epoch >= patience:
            break
    return out


@pytest.mark.parametrize("monitor", ["loss", "accuracy"])
@pytest.mark.parametrize(
    "models",
    [specformers(), specformers(**BATCH_NORM), gcns()],
    ids=["specformer", "batch norm", "gcn"],
)
@pytest.mark.parametrize(("epochs", "patience"), [(60, 6), (9, 20), (1, 1)], ids=str)
def test_epochs_are_those_of_a_literal_loop(models, monitor: Monitor, epochs: int, patience: int):
    operator = operator_of(models)
    schedule = Schedule(learning_rate=RATE, epochs=epochs, patience=patience)
    fit = fit_nodes(models, task_on(), operator, schedule, monitor=monitor)
    rule = fit.by_loss if monitor == "loss" else fit.by_metric
    for run, model in enumerate(models):
        literal = literal_run(model, operator, run, epochs, patience, monitor)
        assert fit.epochs[run] == len(literal.curve)
        assert rule.epoch[run] == literal.epoch
        assert rule.val[run].item() == pytest.approx(literal.curve[literal.epoch][2])
        assert rule.test[run].item() == pytest.approx(literal.test)
        own = fit.curves[: len(literal.curve), run].numpy()
        np.testing.assert_allclose(own, literal.curve, rtol=1e-6, atol=1e-9)
        for name, tensor in trained_state(unstack(fit.model, run, model)).items():
            torch.testing.assert_close(tensor, literal.kept[name], rtol=1e-5, atol=1e-8)
    assert len(fit.curves) == fit.epochs.max()  # on a CPU no epoch follows the last that counts
    assert not fit.curves.isnan().any()


class KilledError(Exception):
    """As if the process had been killed."""


class KilledAfter(Checkpoint):
    """Saves so many times, and then the process is gone."""

    saves = 0

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        super().save(tensors)
        self.saves -= 1
        if not self.saves:
            raise KilledError


def test_ctrl_c_keeps_the_epochs_done(monkeypatch, tmp_path: Path):
    schedule = Schedule(learning_rate=RATE, epochs=12)
    models, path = specformers(**DROPOUT), tmp_path / "state"
    operator = operator_of(models)

    def fit(checkpoint: Checkpoint | None) -> NodeFit:
        torch.manual_seed(5)
        return fit_nodes(models, task_on(), operator, schedule, checkpoint=checkpoint)

    whole, begin = fit(None), NodeRuns.begin_epoch

    def interrupted(self: NodeRuns) -> None:
        begin(self)
        if int(self.epoch) == 6:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(NodeRuns, "begin_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(Checkpoint(path, "this"))
    assert load_file(path)["epoch"] == 7
    again = fit(Checkpoint(path, "this"))
    assert torch.equal(again.curves, whole.curves)
    for name, tensor in trained_state(again.model).items():
        assert torch.equal(tensor, trained_state(whole.model)[name]), name


@pytest.mark.parametrize("options", [DROPOUT, {**DROPOUT, **BATCH_NORM}], ids=["", "batch norm"])
def test_goes_on_to_the_bit_from_every_epoch(options, monkeypatch, tmp_path: Path):
    monkeypatch.setitem(NodeRuns.fit.__kwdefaults__, "save_every", 1)
    epochs = 9
    schedule = Schedule(learning_rate=RATE, epochs=epochs, patience=3, decay="cosine", warmup=2)
    models = specformers(**options)
    operator = operator_of(models)

    def fit(checkpoint: Checkpoint | None) -> tuple[NodeFit, Tensor]:
        torch.manual_seed(5)
        found = fit_nodes(models, task_on(), operator, schedule, checkpoint=checkpoint)
        return found, torch.get_rng_state()

    whole, random = fit(None)
    assert whole.epochs.min() < epochs  # it stops on the way
    for stop in range(1, len(whole.curves) + 1):
        path = tmp_path / str(stop)
        killed = KilledAfter(path, "this")
        killed.saves = stop
        with pytest.raises(KilledError):
            fit(killed)
        saved = load_file(path)
        assert saved["epoch"] == stop
        assert torch.equal(saved["curves"][:stop], whole.curves[:stop])  # evaluated, all of them
        assert saved["curves"][stop:].isnan().all()
        again, left = fit(Checkpoint(path, "this"))
        assert torch.equal(left, random)
        assert torch.equal(again.curves, whole.curves)
        assert torch.equal(again.epochs, whole.epochs)
        for rule in ("by_loss", "by_metric"):
            for name in ("val", "test", "epoch"):
                own, other = (getattr(getattr(each, rule), name) for each in (again, whole))
                assert torch.equal(own, other), (stop, rule, name)
        for name, tensor in trained_state(again.model).items():
            assert torch.equal(tensor, trained_state(whole.model)[name]), (stop, name)


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_progress_is_that_of_the_epochs_done(seconds, monkeypatch):
    """What is told after 50 epochs is what a run of 50 epochs comes to; slow ones are each told."""
    monkeypatch.setattr(node_loop, "_TELL_EVERY", seconds)
    models, told = specformers(), []
    operator = operator_of(models)

    def listen(done: int, accuracy: float, **others: float) -> None:
        told.append((done, accuracy, others["loss"]))

    def fit(epochs: int, **options: Any) -> NodeFit:
        schedule = Schedule(learning_rate=RATE, epochs=epochs, patience=500)
        return fit_nodes(models, task_on(), operator, schedule, **options)

    fit(60, on_progress=listen)
    assert [done for done, _, _ in told] == ([50, 60] if seconds else list(range(1, 61)))
    for done, accuracy, loss in told[-60::15] + told[-1:]:
        shorter = fit(done)
        assert accuracy == float(shorter.by_loss.val.mean())
        assert loss == float(shorter.curves[-1, :, 0].mean())


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@cuda
@pytest.mark.parametrize("runs", [1, RUNS])
@pytest.mark.parametrize("options", [{}, BATCH_NORM], ids=["", "batch norm"])
def test_captured_epochs_are_those_of_a_cpu(options, runs: int):
    """Past the first read, the first captured evaluation and, for some runs, the end."""
    schedule = Schedule(learning_rate=RATE, epochs=260, patience=40)
    fits = []
    for device in ("cpu", "cuda"):
        models = specformers(runs, **options)
        operator = operator_of(models, device)
        fits.append(fit_nodes(models, task_on(device, runs), operator, schedule))
    here, there = fits
    np.testing.assert_allclose(there.curves[:40].cpu(), here.curves[:40], rtol=1e-5, atol=1e-8)
    for run in range(runs):
        curve = there.curves[: int(there.epochs[run]), run].cpu().numpy()
        assert not np.isnan(curve).any()
        best = int(curve[:, 1].argmin())
        assert there.by_loss.epoch[run] == best
        assert there.epochs[run] == min(best + 41, 260)
        model = unstack(there.model.cpu(), run, specformers(1, **options)[0]).eval()
        logits = model(task_on().x, operator_of([model]))
        val = task_on().val[run]
        loss = nn.functional.cross_entropy(logits[val], task_on().y[val])
        assert loss.item() == pytest.approx(curve[best, 1], rel=1e-6)


@cuda
def test_captured_epochs_with_dropout_resume(monkeypatch, tmp_path: Path):
    monkeypatch.setitem(NodeRuns.fit.__kwdefaults__, "save_every", 8)
    models, operator = specformers(**DROPOUT), operator_of(specformers(), "cuda")
    schedule = Schedule(learning_rate=RATE, epochs=20, patience=30)

    def fit(checkpoint: Checkpoint | None) -> NodeFit:
        torch.manual_seed(5)
        return fit_nodes(models, task_on("cuda"), operator, schedule, checkpoint=checkpoint)

    whole, killed = fit(None), KilledAfter(tmp_path / "c", "this")
    killed.saves = 2
    with pytest.raises(KilledError):
        fit(killed)
    again = fit(Checkpoint(tmp_path / "c", "this"))
    torch.testing.assert_close(again.curves, whole.curves, rtol=1e-6, atol=1e-9)
