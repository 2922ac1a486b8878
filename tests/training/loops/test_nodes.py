"""Node classification: all splits at once against each alone, both rules against the curves."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.training.seeded import seeded
from tests.undropped import undropped
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specformer import decompose
from specformer.baselines import GCN, Propagation
from specformer.datasets import csbm, random_60_20_20
from specformer.errors import ConfigError
from specformer.training.engine.capture import Repeated
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops import nodes as node_loop
from specformer.training.loops.nodes import NodeFit, NodeRuns, fit_nodes
from specformer.training.optim.schedule import Schedule

RUNS = 3
CPU = torch.device("cpu")
GRAPH = csbm(0.6, num_nodes=60, num_features=10, seed=1)
SPLITS = [random_60_20_20(GRAPH.y, seed) for seed in range(RUNS)]
SPECTRUM = decompose(GRAPH, dtype=torch.float64)
PROPAGATION = Propagation(GRAPH.adjacency, dtype=torch.float64)


def specformers(dropout: float = 0.0) -> list[nn.Module]:
    return seeded(lambda: undropped(10, 8, 2, num_heads=2, feature_dropout=dropout), RUNS)


def gcns() -> list[nn.Module]:
    return seeded(lambda: GCN(10, 8, 2, dropout=0.0), RUNS)


def task_of(y: np.ndarray = GRAPH.y, splits=SPLITS) -> NodeTask:
    task = NodeTask.from_splits(GRAPH.x, y, splits, CPU)
    return replace(task, x=task.x.double())  # so that no tie is decided by rounding


def noisy() -> np.ndarray:
    """Labels that nothing tells: validation soon gets worse."""
    return np.random.default_rng(0).integers(0, 2, GRAPH.num_nodes)


def train(make, task: NodeTask, **schedule) -> NodeFit:
    operator = SPECTRUM if make is specformers else PROPAGATION
    return fit_nodes(make(), task, operator, Schedule(learning_rate=0.02, **schedule))


makers = pytest.mark.parametrize("make", [specformers, gcns])


def test_masks_are_stacked():
    task = task_of()
    assert task.runs == RUNS
    for run, split in enumerate(SPLITS):
        np.testing.assert_array_equal(task.train[run].numpy(), split.train)
        np.testing.assert_array_equal(task.val[run].numpy(), split.val)
        np.testing.assert_array_equal(task.test[run].numpy(), split.test)


@makers
def test_splits_together_are_splits_alone(make):
    together = train(make, task_of(noisy()), epochs=60, patience=8)
    operator = SPECTRUM if make is specformers else PROPAGATION
    schedule = Schedule(learning_rate=0.02, epochs=60, patience=8)
    for run, model in enumerate(make()):
        alone = fit_nodes([model], task_of(noisy(), SPLITS[run : run + 1]), operator, schedule)
        for rule in ("by_loss", "by_metric"):
            for name in ("val", "test", "epoch"):
                found = getattr(getattr(together, rule), name)[run]
                assert found == getattr(getattr(alone, rule), name)[0], (rule, name)
        assert together.epochs[run] == alone.epochs[0]
        length = min(len(together.curves), len(alone.curves))
        torch.testing.assert_close(
            together.curves[:length, run], alone.curves[:length, 0], rtol=1e-6, atol=1e-9
        )


@makers
def test_first_epoch_by_hand(make):
    """One step of Adam on the training nodes, then validation with the new parameters."""
    task = task_of()
    fit = train(make, task, epochs=1)
    operator = SPECTRUM if make is specformers else PROPAGATION
    for run, model in enumerate(make()):
        adam = torch.optim.Adam(model.parameters(), lr=0.02)
        train_mask, val_mask = task.train[run], task.val[run]
        loss = nn.functional.cross_entropy(model(task.x, operator)[train_mask], task.y[train_mask])
        loss.backward()
        adam.step()
        with torch.no_grad():
            logits = model(task.x, operator)[val_mask]
        expected = [
            loss.item(),
            nn.functional.cross_entropy(logits, task.y[val_mask]).item(),
            (logits.argmax(dim=-1) == task.y[val_mask]).float().mean().item(),
        ]
        np.testing.assert_allclose(fit.curves[0, run].numpy(), expected, rtol=1e-4)


@makers
@pytest.mark.parametrize("labels", ["true", "noisy"])
def test_both_rules_from_the_curves(make, labels):
    patience = 6
    task = task_of(GRAPH.y if labels == "true" else noisy())
    fit = train(make, task, epochs=60, patience=patience)
    stopped = []
    for run in range(RUNS):
        curve = fit.curves[:, run].numpy()
        best, epochs = 0, len(curve)
        for epoch in range(len(curve)):
            if curve[epoch, 1] < curve[best, 1]:
                best = epoch
            if epoch - best >= patience:
                epochs = epoch + 1
                break
        stopped.append(epochs)
        assert fit.epochs[run] == epochs
        assert fit.by_loss.epoch[run] == best
        assert fit.by_loss.val[run] == pytest.approx(curve[best, 2])
        most = int(np.argmax(curve[:epochs, 2]))  # the first of equals
        assert fit.by_metric.epoch[run] == most
        assert fit.by_metric.val[run] == pytest.approx(curve[most, 2])
    if labels == "noisy":
        assert min(stopped) < 60


@makers
def test_the_model_that_comes_back_is_that_of_the_lowest_loss(make):
    task = task_of(noisy())
    fit = train(make, task, epochs=40, patience=10)
    operator = SPECTRUM if make is specformers else PROPAGATION
    assert not fit.model.training
    for run, template in enumerate(make()):
        with torch.no_grad():
            logits = unstack(fit.model, run, template).eval()(task.x, operator)
        right = logits.argmax(dim=-1) == task.y
        assert right[task.val[run]].float().mean() == pytest.approx(fit.by_loss.val[run].item())
        assert right[task.test[run]].float().mean() == pytest.approx(fit.by_loss.test[run].item())
        loss = nn.functional.cross_entropy(logits[task.val[run]], task.y[task.val[run]])
        assert loss.item() == pytest.approx(fit.curves[:, run, 1].min().item(), rel=1e-4)


@makers
def test_labels_of_the_test_part_never_matter(make):
    # One split alone, so that no node tests in one run and trains in another.
    split = SPLITS[0]
    changed = GRAPH.y.copy()
    changed[split.test] = 1 - changed[split.test]
    assert (changed != GRAPH.y).any()
    fits = [train(make, task_of(y, [split] * RUNS), epochs=25) for y in (GRAPH.y, changed)]
    for one, other in zip(fits[0].model.parameters(), fits[1].model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(fits[0].curves, fits[1].curves)
    assert torch.equal(fits[0].by_metric.epoch, fits[1].by_metric.epoch)
    torch.testing.assert_close(fits[0].by_loss.test, 1 - fits[1].by_loss.test)


@makers
def test_unlabelled_nodes_never_matter(make):
    hidden = GRAPH.y.copy()
    hidden[:5] = -1
    splits = [random_60_20_20(hidden, seed) for seed in range(RUNS)]
    other = hidden.copy()
    other[:5] = 1
    fits = [train(make, task_of(y, splits), epochs=10) for y in (hidden, other)]
    assert torch.equal(fits[0].curves, fits[1].curves)
    assert torch.equal(fits[0].by_loss.test, fits[1].by_loss.test)


@makers
def test_learns_what_can_be_learned(make):
    graph = csbm(0.5, num_nodes=120, num_features=10, signal=40.0, seed=0)
    splits = [random_60_20_20(graph.y, seed) for seed in range(RUNS)]
    task = NodeTask.from_splits(graph.x, graph.y, splits, CPU)
    operator = decompose(graph) if make is specformers else Propagation(graph.adjacency)
    models = [model.float() for model in make()]
    fit = fit_nodes(models, task, operator, Schedule(epochs=120, learning_rate=0.02))
    assert (fit.by_loss.test >= 0.9).all()
    assert (fit.by_metric.val >= fit.by_loss.val).all()


def test_dropout_works_in_training_alone():
    torch.manual_seed(0)
    task = task_of()
    fit = fit_nodes(specformers(dropout=0.8), task, SPECTRUM, Schedule(epochs=3))
    with torch.no_grad():
        first, again = (fit.model(task.x, SPECTRUM) for _ in range(2))
    assert torch.equal(first, again)


def test_a_validation_accuracy_of_zero_is_an_accuracy():
    """The first epoch counts even where no validation node is right."""
    torch.manual_seed(0)
    model = GCN(10, 8, 3, dropout=0.0).double()
    split = SPLITS[0]
    with torch.no_grad():
        predicted = model(task_of().x, PROPAGATION).argmax(dim=-1).numpy()
    y = np.where(split.val, (predicted + 1) % 3, predicted)  # all wrong, and the test part right
    # A rate too low to change any prediction.
    fit = fit_nodes(
        [model], task_of(y, [split]), PROPAGATION, Schedule(epochs=2, learning_rate=1e-12)
    )
    assert fit.by_metric.val.tolist() == [0.0]
    assert fit.by_metric.test.tolist() == [1.0]


#: Operations that only make or name memory.
IDLE = ("empty", "_unsafe_view", "sparse_compressed", "_record_function")


class Counted(TorchDispatchMode):
    """How many operations would be kernels, and the shapes of what they make."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        aliases = [value.alias_info for value in function._schema.returns]
        view = all(alias is not None and not alias.is_write for alias in aliases)
        if not view and not any(name in str(function) for name in IDLE):
            self.count += 1
            self.shapes |= {tuple(each.shape) for each in tree_leaves(out) if torch.is_tensor(each)}
        return out


@pytest.mark.parametrize(("runs", "most"), [(1, 190), (3, 230)])
def test_an_epoch_is_few_operations(monkeypatch, runs: int, most: int):
    """A small graph's epoch on a GPU takes as long as its kernels are many.

    As the paper's recipes have it: sparse features, every dropout, two layers. Whatever the number
    of runs; nothing of q times q numbers is made.
    """
    counted = Counted()

    class Third(Repeated):  # what is computed once is known by then
        def __call__(self) -> None:
            with counted if self._calls == 2 else nullcontext():
                super().__call__()

    monkeypatch.setattr(node_loop, "Repeated", Third)
    torch.manual_seed(0)
    models = [
        undropped(
            10,
            8,
            2,
            num_heads=2,
            second_dropout="after",
            transformer_dropout=0.2,
            feature_dropout=0.6,
            propagation_dropout=0.2,
        )
        for _ in range(runs)
    ]
    features = sp.csr_array(np.where(GRAPH.x > 1.0, GRAPH.x, 0.0))
    task = NodeTask.from_splits(features, GRAPH.y, SPLITS[:runs], CPU)
    fit_nodes(models, task, SPECTRUM.to(dtype=torch.float32), Schedule(epochs=3))
    assert 0 < counted.count <= most
    q = SPECTRUM.num_eigenpairs
    assert not [shape for shape in counted.shapes if min((*shape[-2:], 0)[:2]) >= q]


def test_what_does_not_fit_the_task_is_refused():
    for models in ([], gcns()[:1], gcns() + gcns()):
        with pytest.raises(ConfigError, match=f"{len(models)} models for 3 runs; pass one per run"):
            fit_nodes(models, task_of(), PROPAGATION, Schedule(epochs=1))
    with pytest.raises(ConfigError, match="unknown monitor 'acc'; choose from loss, metric"):
        fit_nodes(gcns(), task_of(), PROPAGATION, Schedule(epochs=1), monitor="acc")


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr(node_loop, "_TELL_EVERY", 1e9)
    told = []

    def listen(done, accuracy, **others):
        told.append((done, accuracy, others))

    fit = fit_nodes(specformers(), task_of(), SPECTRUM, Schedule(epochs=60), on_progress=listen)
    assert [done for done, _, _ in told] == [50, 60]
    assert all(0 <= accuracy <= 1 for _, accuracy, _ in told)
    assert told[-1][2]["loss"] == pytest.approx(float(fit.curves[-1, :, 0].mean()))
    assert told[-1][2]["runs_left"] == RUNS


@pytest.mark.parametrize("monitor", ["loss", "accuracy"])
def test_an_epoch_whose_loss_is_no_number_is_never_the_best(monitor):
    runs = NodeRuns(gcns(), task_of(), Schedule(epochs=3, patience=3), monitor)
    bias = runs.model.state_dict()["convs.1.bias"]
    for epoch, lost in enumerate([(), (1, 2), ()]):
        bias.fill_(epoch)
        runs.epoch.add_(1)
        loss, accuracy = torch.full((2, RUNS), 0.5 + 0.1 * epoch, dtype=torch.float64)
        loss[list(lost)] = torch.tensor([torch.nan, torch.inf][: len(lost)], dtype=loss.dtype)
        accuracy[list(lost)] = 1.0
        runs.take_evaluation(loss, accuracy, accuracy)
    assert runs.best.epoch.tolist() == [[0, 0, 0], [2, 2, 2]]
    torch.testing.assert_close(runs.best.figure[1, 0], torch.full((3,), 0.7).double())
    runs.stopping.restore()
    assert (bias == (0 if monitor == "loss" else 2)).all()


@makers
def test_monitoring_accuracy_keeps_the_model_of_the_highest(make):
    task = task_of(noisy())
    operator = SPECTRUM if make is specformers else PROPAGATION
    schedule = Schedule(learning_rate=0.02, epochs=60, patience=10)
    fit = fit_nodes(make(), task, operator, schedule, monitor="accuracy")
    for run in range(RUNS):
        curve = fit.curves[: int(fit.epochs[run]), run, 2]
        best = int(curve.argmax())
        assert fit.by_metric.epoch[run] == best
        stopped = best + schedule.patience + 1 <= 60
        assert fit.epochs[run] == (best + schedule.patience + 1 if stopped else 60)
        right = fit.model(task.x, operator)[run].argmax(dim=-1) == task.y
        val = right[task.val[run]].double().mean()
        assert val == pytest.approx(float(fit.by_metric.val[run]), abs=1e-6)


def test_landmarks_stand_for_the_spectrum():
    task = task_of()
    schedule = Schedule(learning_rate=0.02, epochs=4)
    exact = fit_nodes(specformers(), task, SPECTRUM, schedule)
    every = fit_nodes(specformers(), task, SPECTRUM, schedule, landmarks=SPECTRUM.distinct.tokens)
    few = fit_nodes(specformers(), task, SPECTRUM, schedule, landmarks=SPECTRUM.landmarks(3))
    torch.testing.assert_close(exact.curves, every.curves)
    assert not torch.allclose(exact.curves, few.curves, rtol=1e-9, atol=0)


def test_a_filter_has_rates_of_its_own():
    """With a vanishing rate for the filter only the feature maps move."""
    task = task_of()
    schedule = Schedule(learning_rate=0.02, filter_learning_rate=1e-30, epochs=5, patience=9)
    fresh = specformers()
    fit = fit_nodes(fresh, task, SPECTRUM, schedule)
    for run, before in enumerate(fresh):
        after = unstack(fit.model, run, before)
        moved = {
            name: bool((parameter - dict(before.named_parameters())[name]).abs().max() > 1e-20)
            for name, parameter in after.named_parameters()
        }
        assert all(moved[name] for name in moved if name.startswith(("lift", "readout")))
        assert not any(moved[name] for name in moved if name.startswith(("filters", "convs")))


def test_batch_norm_statistics_are_those_of_the_best_epoch():
    options = {"space": "hidden", "norm": "batch", "activation": "relu"}
    models = seeded(lambda: undropped(10, 8, 2, num_heads=2, **options), RUNS)
    task = task_of(noisy())
    fit = fit_nodes(models, task, SPECTRUM, Schedule(learning_rate=0.05, epochs=40, patience=5))
    for run, model in enumerate(models):
        right = unstack(fit.model, run, model).eval()(task.x, SPECTRUM).argmax(dim=-1) == task.y
        test = right[task.test[run]].double().mean()
        assert test == pytest.approx(float(fit.by_loss.test[run]), abs=1e-6)
