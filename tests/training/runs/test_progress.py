"""TensorBoard event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from specformer.cli import app
from specformer.datasets import csbm
from specformer.errors import ConfigError
from specformer.graphs import write_npz
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import (
    Silent,
    Tracked,
    require_tensorboard,
    track_run,
)

needs_tensorboard = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="needs specformer[track]"
)


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    reader.Reload()
    tags = reader.Tags()
    found = {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in tags["scalars"]}
    for tag in tags["tensors"]:
        found[tag] = [(e.step, e.tensor_proto.float_val[0]) for e in reader.Tensors(tag)]
    return found


def finished(path: Path) -> tuple[RunFolder, np.ndarray]:
    """A run of 25 epochs and two runs, the second of which stopped after epoch 14."""
    curves = np.random.default_rng(0).random((25, 2, 3)).astype(np.float32)
    curves[15:, 1] = np.nan
    run = RunFolder.create(path, {"seed": 0})
    result = {"metric": "accuracy", "test": {"mean": 0.8, "ci95": 0.1, "values": [0.75, 0.85]}}
    arrays = {"nodes/tiny/gcn/curve": curves}
    run.finish("nodes", result, arrays, command="", seed=0, device=torch.device("cpu"))
    return run, curves


@needs_tensorboard
def test_a_finished_run_becomes_one_folder_of_curves_a_run(tmp_path):
    run, curves = finished(tmp_path / "run")
    folder = track_run(run)
    assert folder == run.path / "tensorboard"
    assert sorted(path.name for path in folder.iterdir()) == ["run-000", "run-001"]
    for number, epochs in enumerate(([0, 10, 20], [0, 10])):
        found = events(folder / f"run-{number:03d}")
        for column, name in enumerate(("train_loss", "val_loss", "val_accuracy")):
            steps, values = zip(*found.pop(name), strict=True)
            assert list(steps) == epochs
            np.testing.assert_array_equal(np.float32(values), curves[epochs, number, column])
        ((step, value),) = found.pop("test_accuracy")
        assert (step, value) == (epochs[-1], pytest.approx((0.75, 0.85)[number]))
        assert not found


@needs_tensorboard
def test_tracking_twice_leaves_one_set_of_events(tmp_path):
    run, _ = finished(tmp_path / "run")
    track_run(run)
    folder = track_run(run)
    assert len(list((folder / "run-000").iterdir())) == 1


@needs_tensorboard
def test_figures_are_there_while_the_run_goes_on(tmp_path):
    run = RunFolder.create(tmp_path / "run", {})
    shown = []

    class Shown(Silent):
        def stage(self, label, total, unit):
            shown.append((label, total, unit))
            return super().stage(label, total, unit)

    with Tracked(Shown(), lambda: run).stage("cora: gcn", 100, "accuracy") as update:
        update(50, 0.5)
        assert events(run.path / "tensorboard" / "live") == {"accuracy": [(50, 0.5)]}
        update(100, 0.75)
    assert events(run.path / "tensorboard" / "live")["accuracy"] == [(50, 0.5), (100, 0.75)]
    assert shown == [("cora: gcn", 100, "accuracy")]


def test_without_a_folder_progress_is_only_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Tracked(Silent(), lambda: None).stage("comb", 10, "loss") as update:
        update(10, 0.5)
    assert list(tmp_path.iterdir()) == []


def test_without_tensorboard_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'specformer\[track\]'"):
        require_tensorboard()


@needs_tensorboard
def test_train_and_resume_write_event_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_npz("tiny.npz", csbm(0.5, num_nodes=40, num_features=4))
    command = ["train", "tiny.npz", "--model", "gcn", "--runs", "2", "--device", "cpu", "--json"]
    told = CliRunner().invoke(
        app, [*command, "--set", "schedule.epochs=60", "--tensorboard", "--out", "run"]
    )
    assert told.exit_code == 0, told.output
    result = json.loads(told.stdout)
    config = RunFolder.open("run").config()
    # A run that was stopped before its first checkpoint.
    RunFolder.create("stopped", config)
    assert CliRunner().invoke(app, ["resume", "stopped", "--json"]).exit_code == 0
    for name in ("run", "stopped"):
        folder = Path(name) / "tensorboard"
        live = events(folder / "live")["accuracy"]
        steps = [step for step, _ in live]  # on a busy machine, more of them
        assert steps == sorted(steps)
        assert {50, 60} <= set(steps)
        assert live[-1][1] == pytest.approx(result["val"]["mean"])
        for number, value in enumerate(result["test"]["values"]):
            found = events(folder / f"run-{number:03d}")
            assert [step for step, _ in found["val_loss"]] == [0, 10, 20, 30, 40, 50]
            assert found["test_accuracy"] == [(50, pytest.approx(value))]
