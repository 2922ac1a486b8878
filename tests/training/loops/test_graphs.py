"""Training on many graphs: its plain twin, selection, resuming, waits, capture."""

from __future__ import annotations

import copy
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.operations import WAITS, Watch
from tests.training.small_graphs import (
    small_model,
    small_set,
    small_task,
    three_classes,
    with_numbers,
)
from torch import nn

from specformer import GraphSpecformer
from specformer.datasets.batches import Batches
from specformer.errors import ConfigError, RunError, SpecformerError
from specformer.files.checked_tensors import write_tensors
from specformer.training.evaluation.graphs import Placed
from specformer.training.loops.graphs import GraphFit, GraphTask, _Training, fit_graphs
from specformer.training.optim.schedule import GraphSchedule
from specformer.training.runs.checkpoint import Checkpoint

SCHEDULE = GraphSchedule(epochs=5, batch_size=6, learning_rate=0.01, warmup=2, weight_decay=0.01)
#: Bases as the paper's recipes for OGB's sets have them.
OGB: dict[str, Any] = {
    "bases_norm": "batch",
    "bases_activation": "gelu",
    "normalise_bases": "softmax",
}
CPU = torch.device("cpu")


def plain_loop(model: nn.Module, task: GraphTask, schedule: GraphSchedule, seed: int) -> np.ndarray:
    """The same by PyTorch's own parts, batches without padding; training and validation MAE."""
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=schedule.weight_decay)
    judged, past = copy.deepcopy(model), []
    batches = Batches(task.store, task.train, schedule.batch_size, seed=seed)
    curves, step = [], 0
    for epoch in range(schedule.epochs):
        model.train()
        total = count = 0.0
        for batch in batches.epoch(epoch):
            for group in optimiser.param_groups:
                rate = schedule.rate(torch.tensor(step), len(batches))
                group["lr"] = float(rate)
            optimiser.zero_grad()
            targets = task.store.labels(batch.index)
            known = ~targets.isnan()
            errors = (model(task.store.exact(batch.index)) - targets)[known].abs()
            errors.mean().backward()
            if schedule.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
            optimiser.step()
            total, count = total + errors.sum().item(), count + int(known.sum())
            step += 1
            past.append({name: value.clone() for name, value in model.state_dict().items()})
        if schedule.average is None:
            judged.load_state_dict(model.state_dict())
        else:  # one that is longer than the run, so the mean of all steps
            judged.load_state_dict({n: sum(at[n] for at in past) / step for n in past[0]})
        judged.eval()
        with torch.no_grad():
            outputs = judged(task.store.exact(task.val))
        targets = task.store.labels(torch.as_tensor(task.val))
        wrong = (outputs - targets).abs()
        by_task = [wrong[known, i].mean() for i, known in enumerate(~targets.isnan().T)]
        curves.append([total / count, np.nanmean(wrong), np.mean(by_task)])
    return np.array(curves)


@pytest.mark.parametrize("change", [{}, {"clip": 0.5}, {"average": 9.0}])
@pytest.mark.parametrize("options", [{}, OGB])
def test_it_is_the_plain_loop(options, change: dict[str, float]) -> None:
    schedule = GraphSchedule(
        epochs=4, batch_size=6, learning_rate=0.01, warmup=1, weight_decay=0.01, **change
    )
    fit = fit_graphs(small_model(**options), small_task(), schedule, seed=3)
    expected = plain_loop(small_model(**options), small_task(), schedule, seed=3)
    np.testing.assert_allclose(fit.curves, expected, rtol=0, atol=1e-6)


def test_it_learns() -> None:
    schedule = GraphSchedule(epochs=30, batch_size=8, learning_rate=0.02, warmup=2)
    fit = fit_graphs(small_model(), small_task(standardise=True), schedule)
    assert fit.curves[-1, 0] < 0.3 * fit.curves[0, 0]


def test_numbers_of_nodes_are_learned_from_whatever_their_units() -> None:
    curves = []
    for scale in (1.0, 1024.0):
        graphs = with_numbers(small_set(), scale)
        task = small_task(graphs, standardise=True)
        torch.manual_seed(0)
        model = GraphSpecformer([1], [2], 8, 2, 2, 2, in_channels=2).double()
        fit = fit_graphs(model, task, SCHEDULE)
        curves.append(fit.curves)
        learned = np.isin(np.repeat(np.arange(40), graphs.num_nodes), graphs.train_idx)
        np.testing.assert_allclose(model.atoms.mean, graphs.x[learned].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(*curves, rtol=1e-6)
    assert curves[0][-1, 0] < curves[0][0, 0]


def test_it_learns_one_of_several_classes() -> None:
    task = small_task(three_classes(), loss="ce", metric="accuracy")
    torch.manual_seed(0)
    model = GraphSpecformer([3], [2], 16, 3, num_layers=2, num_heads=2).double()
    schedule = GraphSchedule(epochs=40, batch_size=8, learning_rate=0.01, warmup=2)
    fit = fit_graphs(model, task, schedule)
    assert fit.curves[-1, 0] < 0.5 * fit.curves[0, 0]
    with torch.no_grad():
        logits = fit.model(task.store.exact(task.val))
    targets = task.store.labels(torch.as_tensor(task.val))[:, 0]
    known = ~targets.isnan()
    right = (logits.argmax(dim=1) == targets)[known].double().mean()
    assert fit.chosen["metric"].val == pytest.approx(right.item())
    with pytest.raises(ConfigError, match="loss=ce: a target is 2, the classes are 0 to 1"):
        fit_graphs(small_model(), task, schedule)
    for changes, message in (
        ({"loss": "bce"}, "loss=bce: a target is 2, the classes are 0 to 1"),
        ({"standardise": True}, "loss=ce: classes are learned as they are"),
    ):
        with pytest.raises(ConfigError, match=message):
            fit_graphs(small_model(), replace(task, **changes), GraphSchedule(epochs=1, warmup=0))


@pytest.mark.parametrize("average", [None, 1.5])
@pytest.mark.parametrize("monitor", ["loss", "metric", "last"])
def test_the_best_epoch_is_kept_and_measured(monitor, average: float | None) -> None:
    task = small_task(loss="mse", metric="mae", standardise=True)
    schedule = replace(SCHEDULE, average=average)
    fit = fit_graphs(small_model(), task, schedule, monitor=monitor)
    by = fit.chosen
    assert by["last"].epoch == schedule.epochs - 1
    assert fit.chosen["loss"].epoch == int(fit.curves[:, 1].argmin())
    assert fit.chosen["metric"].epoch == int(fit.curves[:, 2].argmin())
    assert by[monitor].val == fit.curves[by[monitor].epoch, 2]
    # The model kept predicts in the targets' own units.
    for part, figure in ((task.val, by[monitor].val), (task.test, by[monitor].test)):
        targets = task.store.labels(torch.as_tensor(part))
        with torch.no_grad():
            wrong = (fit.model(task.store.exact(part)) - targets).abs()
        means = [wrong[known, i].mean().item() for i, known in enumerate(~targets.isnan().T)]
        assert np.mean(means) == pytest.approx(figure, abs=1e-6)
    # Its outputs for the test graphs come along, perhaps in another order.
    with torch.no_grad():
        outputs = fit.model(task.store.exact(task.test)).numpy()
    targets = task.store.labels(torch.as_tensor(task.test)).numpy()
    for given, own in ((fit.predicted, outputs), (fit.measured, targets)):
        np.testing.assert_allclose(np.sort(given, axis=0), np.sort(own, axis=0), atol=1e-6)


def test_patience_ends_a_run_as_if_the_rest_had_never_been_better() -> None:
    task = small_task(loss="mse", metric="mae")
    schedule = replace(SCHEDULE, epochs=60, learning_rate=0.05)
    whole = fit_graphs(small_model(), task, schedule)
    fit = fit_graphs(small_model(), task, replace(schedule, patience=3))
    best = np.array([np.nan, np.inf, np.inf])
    since = 0
    expected = 0
    while since < 3:
        reading = whole.curves[expected]
        since = 0 if (reading[1:] < best[1:]).any() else since + 1
        best, expected = np.fmin(best, reading), expected + 1
    assert fit.epochs == expected < 60 == whole.epochs
    np.testing.assert_array_equal(fit.curves[: fit.epochs], whole.curves[: fit.epochs])
    assert np.isnan(fit.curves[fit.epochs :]).all()
    assert fit.chosen["metric"].epoch == int(whole.curves[: fit.epochs, 2].argmin())


def test_a_run_that_diverges_late_keeps_its_best(tmp_path: Path) -> None:
    """Weights that are no numbers come in by a checkpoint of an epoch before the last."""
    task, kept = small_task(), Checkpoint(tmp_path / "kept.safetensors", "a test")

    def fit(epochs: int, **options: Any) -> GraphFit:
        schedule = replace(SCHEDULE, epochs=epochs)
        return fit_graphs(small_model(), task, schedule, checkpoint=kept, save_every=0, **options)

    def stop(done: int, _: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(3, on_epoch=stop)
    state = load_file(kept.path)
    state["model.readout.bias"].fill_(torch.nan)
    write_tensors(kept.path, state, "specformer.checkpoint/2", {"purpose": kept.purpose})
    called: list[int] = []
    best = fit(3, on_epoch=lambda done, _: called.append(done))
    assert called == [2]  # and not 3, which has no weights to learn with
    assert np.isfinite(best.curves).all(axis=1).tolist() == [True, False, False]
    assert best.chosen["loss"].epoch == 0
    assert "last" not in best.chosen
    with pytest.raises(
        RunError, match=r"run 1 of 1 has no model, .* from epoch 2 on, first in layer readout\."
    ):
        fit(3, monitor="last")


def test_classes_with_missing_labels() -> None:
    task = small_task(small_set(60, classes=True), loss="bce", metric="rocauc")
    schedule = GraphSchedule(epochs=20, batch_size=10, learning_rate=0.02, warmup=1)
    fit = fit_graphs(small_model(), task, schedule)
    assert fit.chosen["metric"].epoch == int(fit.curves[:, 2].argmax())
    assert fit.chosen["metric"].val > 0.7


def test_the_seed_decides_order_and_dropout() -> None:
    def curves(seed: int) -> np.ndarray:
        torch.manual_seed(int(torch.randint(1000, ())))  # what came before has no say
        model = small_model(feature_dropout=0.3)
        return fit_graphs(model, small_task(), SCHEDULE, seed=seed).curves

    np.testing.assert_array_equal(curves(0), curves(0))
    assert not np.array_equal(curves(0), curves(1))


def test_a_diverged_run_says_so_and_goes_on_to_nothing_else(tmp_path: Path) -> None:
    schedule = GraphSchedule(epochs=2, batch_size=6, learning_rate=1e30, warmup=0)
    checkpoint = Checkpoint(tmp_path / "kept.safetensors", "a test")
    for _ in range(2):
        model = small_model(torch.float32)
        with pytest.raises(
            RunError, match=r"diverged: .* epoch 1 on, first in \w.* start a new run"
        ):
            fit_graphs(model, small_task(dtype=torch.float32), schedule, checkpoint=checkpoint)


def test_no_targets_no_known_ones_and_one_class_are_refused_before_training() -> None:
    task = small_task(small_set(classes=True), loss="bce", metric="rocauc")
    with pytest.raises(ConfigError, match="no targets to learn"):
        fit_graphs(small_model(), replace(task, store=replace(task.store, y=None)), SCHEDULE)
    unknown = task.store.labels(torch.arange(40)).clone()
    unknown[torch.as_tensor(task.train)] = torch.nan
    with pytest.raises(ConfigError, match="no graph to learn from has a known target"):
        fit_graphs(small_model(), replace(task, store=replace(task.store, y=unknown)), SCHEDULE)
    rising = np.argsort(task.store.labels(torch.arange(40)).nansum(dim=1).numpy())
    with pytest.raises(ConfigError, match="both classes"):
        fit_graphs(
            small_model(), GraphTask(task.store, *[rising[:3]] * 3, "bce", "rocauc"), SCHEDULE
        )


# --- going on after a stop ----------------------------------------------------------------------


def test_a_mask_is_the_numbers_of_what_it_marks() -> None:
    by_numbers = small_task()
    masks = {
        part: np.isin(np.arange(len(by_numbers.store)), getattr(by_numbers, part))
        for part in ("train", "val", "test")
    }
    by_masks = replace(by_numbers, **masks)
    by_tensors = replace(
        by_numbers, **{part: torch.from_numpy(mask) for part, mask in masks.items()}
    )
    fits = [
        fit_graphs(small_model(), task, GraphSchedule(epochs=1, batch_size=8))
        for task in (by_numbers, by_masks, by_tensors)
    ]
    assert fits[0].chosen == fits[1].chosen == fits[2].chosen
    for part in masks:
        assert getattr(by_masks, part).tolist() == sorted(getattr(by_numbers, part))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"val": [3, 40]}, r"val\[1\] is 40, but there are graphs 0..39"),
        ({"train": [-1]}, r"train\[0\] is -1"),
        ({"test": np.ones(39, dtype=bool)}, "test must hold integers, not bool"),
        ({"train": [0.5]}, "train must hold integers"),
        ({"loss": "huber"}, "unknown loss 'huber'; choose from l1, mse, bce, ce"),
    ],
    ids=["beyond", "negative", "short mask", "fraction", "loss"],
)
def test_graphs_that_are_not_there_and_unknown_losses_are_refused(change, message: str) -> None:
    with pytest.raises(SpecformerError, match=message):
        replace(small_task(), **change)


def test_a_model_that_does_not_fit_the_graphs_is_refused() -> None:
    schedule = GraphSchedule(epochs=1)
    for atoms, bonds, outputs, message in (
        ([3], [2], 1, r"targets have shape \[graphs, 2\], but the model puts out \[graphs, 1\]"),
        ([2], [2], 2, r"column 0 of the nodes has a category 2, but .* node_cardinalities=\[2\]"),
        ([3], [1], 2, r"column 0 of the edges has a category 1, but .* edge_cardinalities=\[1\]"),
    ):
        model = GraphSpecformer(atoms, bonds, 8, outputs, num_heads=2)
        with pytest.raises(ConfigError, match=message):
            fit_graphs(model, small_task(dtype=torch.float32), schedule)
    with pytest.raises(ConfigError, match="loss=ce is of one target, the graphs have 2"):
        fit_graphs(small_model(), small_task(small_set(classes=True), loss="ce"), schedule)


def fit_in(path: Path, **options: Any) -> GraphFit:
    model = small_model(feature_dropout=0.2, propagation_dropout=0.1, bases_norm="batch")
    checkpoint = Checkpoint(path, "test")
    task = small_task(loss="mse", standardise=True)
    schedule = replace(SCHEDULE, average=1.5)
    return fit_graphs(model, task, schedule, checkpoint=checkpoint, save_every=0.0, **options)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.loops.test_graphs import fit_in

def after(epoch, _):
    if epoch == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

fit_in(Path(sys.argv[1]), on_epoch=after)
"""


@pytest.mark.parametrize("epoch", [3])
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path, epoch: int) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(epoch)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], timeout=120)
    assert done.returncode == -signal.SIGKILL
    resumed: list[int] = []
    second = fit_in(tmp_path / "killed", on_epoch=lambda epoch, _: resumed.append(epoch))
    assert resumed == list(range(epoch, SCHEDULE.epochs + 1))  # killed before that epoch was saved
    whole = fit_in(tmp_path / "whole")
    np.testing.assert_array_equal(second.curves, whole.curves)
    assert (second.chosen["loss"], second.chosen["metric"]) == (
        whole.chosen["loss"],
        whole.chosen["metric"],
    )
    expected = whole.model.state_dict()
    assert all(torch.equal(t, expected[name]) for name, t in second.model.state_dict().items())


def test_ctrl_c_keeps_the_epochs_done(tmp_path: Path) -> None:
    def interrupt(epoch: int, _: float) -> None:
        if epoch == 3:
            signal.raise_signal(signal.SIGINT)

    options: dict[str, Any] = {"checkpoint": Checkpoint(tmp_path / "state", "test")}
    with pytest.raises(KeyboardInterrupt):
        fit_graphs(small_model(), small_task(), SCHEDULE, on_epoch=interrupt, **options)
    assert load_file(tmp_path / "state")["epochs"] == 3
    again = fit_graphs(small_model(), small_task(), SCHEDULE, **options)
    whole = fit_graphs(small_model(), small_task(), SCHEDULE)
    np.testing.assert_array_equal(again.curves, whole.curves)


def test_a_finished_run_is_only_read(tmp_path: Path) -> None:
    first = fit_in(tmp_path / "state")
    called: list[int] = []
    again = fit_in(tmp_path / "state", on_epoch=lambda epoch, _: called.append(epoch))
    assert called == []
    assert again.chosen["metric"] == first.chosen["metric"]
    assert again.seconds_per_epoch == first.seconds_per_epoch
    assert first.seconds_before == 0.0
    assert again.seconds_before == pytest.approx(SCHEDULE.epochs * first.seconds_per_epoch)


# --- waits and capture --------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{}, {"clip": 1.0}, {"average": 2.0}])
def test_a_step_does_not_wait_for_the_host(
    change: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = small_task(dtype=torch.float32)
    schedule = GraphSchedule(batch_size=6, **change)
    placed = Placed(small_model(torch.float32, **OGB), "highest", CPU)
    training = _Training(placed, task, schedule, seed=0, capture=True)
    batch = training.batches.epoch(0)[0]
    placed.model.train()
    before = [parameter.detach().clone() for parameter in training.parameters]
    with Watch() as watch:
        training.repeated(batch.index, batch.shape)
    assert not all(map(torch.equal, before, training.parameters))
    # On a CPU the optimiser reads its rate; that of a GPU takes the tensor.
    assert watch.names & WAITS <= {"_local_scalar_dense"}
    monkeypatch.setattr(training.optimiser, "step", lambda: None)
    with Watch() as watch:
        training.repeated(batch.index, batch.shape)
    assert not watch.names & WAITS


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("average", [None, 2.0])
@pytest.mark.parametrize("options", [{}, OGB])
def test_captured_steps_are_the_called_ones(options, average: float | None) -> None:
    schedule = GraphSchedule(
        epochs=8, batch_size=8, learning_rate=0.01, warmup=2, clip=1.0, average=average
    )
    curves = []
    for device, capture in (("cuda", True), ("cuda", False), ("cpu", False)):
        model = small_model(**options).to(device)
        task = small_task(small_set(200), standardise=True)
        curves.append(fit_graphs(model, task, schedule, capture=capture).curves)
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-8)
    np.testing.assert_allclose(curves[0], curves[2], rtol=1e-4)  # spectra are float32


def classes_by_numbers(dtype: torch.dtype) -> tuple[GraphSpecformer, GraphTask]:
    """A model for graphs of three classes whose nodes have two numbers, and the task."""
    torch.manual_seed(0)
    model = GraphSpecformer([1], [2], 8, 3, 2, 2, in_channels=2).to(dtype)
    graphs = with_numbers(three_classes(200))
    return model, small_task(graphs, dtype=dtype, loss="ce", metric="accuracy")


def test_a_step_over_numbers_and_classes_does_not_wait() -> None:
    model, task = classes_by_numbers(torch.float32)
    placed = Placed(model, "highest", CPU)
    training = _Training(placed, task, GraphSchedule(batch_size=6), seed=0, capture=True)
    training.optimiser.step = lambda: None  # type: ignore[method-assign,assignment]
    batch = training.batches.epoch(0)[0]
    with Watch() as watch:
        training.repeated(batch.index, batch.shape)
    assert not watch.names & {"_local_scalar_dense", "nonzero", "masked_select", "unique"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_captured_steps_over_numbers_and_classes_are_the_called_ones() -> None:
    curves = []
    for device, capture in (("cuda", True), ("cuda", False), ("cpu", False)):
        model, task = classes_by_numbers(torch.float64)
        fit = fit_graphs(model.to(device), task, SCHEDULE, capture=capture)
        curves.append(fit.curves[:, :2])
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-8)
    np.testing.assert_allclose(curves[0], curves[2], rtol=1e-4)  # spectra are float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_captured_run_goes_on_where_it_was(tmp_path: Path) -> None:
    def fit(path: str, **options: Any) -> GraphFit:
        schedule = GraphSchedule(epochs=6, batch_size=8, learning_rate=0.01, warmup=2)
        task = small_task(small_set(100), standardise=True)
        checkpoint = Checkpoint(tmp_path / path, "test")
        common = {"checkpoint": checkpoint, "save_every": 0.0, **options}
        return fit_graphs(small_model().cuda(), task, schedule, **common)

    def stop(epoch: int, _: float) -> None:
        if epoch == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit("stopped", on_epoch=stop)
    np.testing.assert_allclose(fit("stopped").curves, fit("whole").curves, rtol=1e-8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("options", [{}, {**OGB, "propagation_dropout": 0.1}])
@pytest.mark.parametrize("precision", ["highest", "high", "bf16"])
def test_captured_steps_learn_with_dropout_in_any_precision(precision, options) -> None:
    dropouts = {"feature_dropout": 0.1, "transformer_dropout": 0.1}
    model = small_model(torch.float32, **dropouts, **options).cuda()
    schedule = GraphSchedule(epochs=20, batch_size=8, learning_rate=0.01, warmup=2)
    task = small_task(small_set(200), dtype=torch.float32, standardise=True)
    fit = fit_graphs(model, task, schedule, precision=precision)
    assert fit.curves[-1, 0] < 0.7 * fit.curves[0, 0]
