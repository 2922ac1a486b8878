"""Whether results are the same: rows against direct calls of either loop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tests.tasks.jobs import classify
from typer.testing import CliRunner

from benchmarks import same_suite, suites
from benchmarks.__main__ import app
from benchmarks.measure import Setting
from benchmarks.node_suite import NodeCase
from benchmarks.plain_loop import PlainTask, fit_plainly
from benchmarks.plain_node import PlainSpecformer
from specformer.datasets import csbm, dense_features, make_splits
from specformer.errors import ConfigError
from specformer.spectrum import decompose
from specformer.tasks.nodes.node_recipe import NodeModel, NodeRecipe
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops.nodes import fit_nodes
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
GRAPH = csbm(0.5, num_nodes=150, num_features=10, seed=1)
RECIPE = NodeRecipe(
    model=NodeModel(8, num_heads=2, transformer_dropout=0.1, feature_dropout=0.3),
    schedule=Schedule(epochs=40, patience=4, learning_rate=0.03, weight_decay=5e-4),
    landmarks=20,  # few enough for results other than exact attention's
)
RUNS = 3


@pytest.fixture(scope="module")
def case() -> NodeCase:
    splits = make_splits(GRAPH, "random-60-20-20", RUNS, seed=0)
    return NodeCase("small", GRAPH, decompose(GRAPH), splits, RECIPE)


@pytest.fixture(scope="module")
def row(case: NodeCase) -> dict[str, Any]:
    return same_suite.same_row(case, CPU, Silent())


def test_ours_are_the_results_of_training(case: NodeCase, row: dict[str, Any]) -> None:
    recipes = {"ours": RECIPE, "exact": replace(RECIPE, landmarks=None)}
    for name, recipe in recipes.items():
        direct = classify(
            GRAPH,
            case.spectrum,
            case.splits,
            "specformer",
            recipe,
            device=CPU,
            seed=0,
            progress=Silent(),
        ).row
        assert row[name]["by_loss"] == direct["test"]
        assert row[name]["by_accuracy"] == direct["test_by_accuracy"]
        assert row[name]["epochs"] == direct["epochs"]
        assert row[name]["seconds"] > 0
        if name == "ours":
            assert row["landmark_errors"]["64"] < direct["landmark_error"]
    assert row["ours"]["epochs"] < 40  # runs were stopped
    assert (row["case"], row["runs"], row["landmarks"]) == ("small", RUNS, 20)
    assert row["splits"] == [split.fingerprint for split in case.splits]


def test_the_plain_loop_trains_on_one_split_after_another(
    case: NodeCase, row: dict[str, Any]
) -> None:
    x = torch.as_tensor(dense_features(GRAPH, "rows"))
    values, vectors = case.spectrum.eigenvalues, case.spectrum.eigenvectors
    by_loss, by_accuracy, epochs = [], [], []
    for run, split in enumerate(case.splits):
        model = PlainSpecformer.of(case.work(run + 1).fresh_models()[run])
        readings = fit_plainly(
            model,
            lambda model=model: model(x, values, vectors),
            PlainTask.of(GRAPH.y, split, CPU),
            RECIPE.schedule,
        )
        table = np.array(readings)
        by_loss.append(table[table[:, 1].argmin(), 3])
        by_accuracy.append(table[table[:, 2].argmax(), 3])
        epochs.append(len(readings))
    plain = row["plain"]
    assert plain["by_loss"]["values"] == by_loss
    assert plain["by_accuracy"]["values"] == by_accuracy
    assert plain["by_loss"]["mean"] == pytest.approx(np.mean(by_loss))
    low, high = stats.t.interval(0.95, RUNS - 1, np.mean(by_accuracy), stats.sem(by_accuracy))
    assert plain["by_accuracy"]["ci95"] == pytest.approx((high - low) / 2)
    assert plain["epochs"] == np.mean(epochs)


def test_inside_is_within_the_plain_loops_interval(row: dict[str, Any]) -> None:
    for name in ("ours", "exact"):
        for rule in ("by_loss", "by_accuracy"):
            apart = np.mean(row[name][rule]["values"]) - np.mean(row["plain"][rule]["values"])
            assert row[name]["difference"][rule] == pytest.approx(apart)
            assert row[name]["inside"][rule] == (abs(apart) <= row["plain"][rule]["ci95"])
    wide, far = {"mean": 0.5, "ci95": 0.1}, {"mean": 0.62, "ci95": 0.3}
    found = same_suite.compared(
        {"by_loss": far, "by_accuracy": wide}, {"by_loss": wide, "by_accuracy": far}
    )
    assert found["inside"] == {"by_loss": False, "by_accuracy": True}
    assert found["difference"]["by_loss"] == pytest.approx(0.12)
    alone = {rule: {"mean": 0.5, "ci95": None} for rule in ("by_loss", "by_accuracy")}
    assert same_suite.compared(alone, alone)["inside"] == {"by_loss": None, "by_accuracy": None}


def test_losses_without_dropout_are_the_same(case: NodeCase, row: dict[str, Any]) -> None:
    assert row["loss_epochs"] == 40  # the recipe has no more
    assert 0 < row["losses_apart"] < 1e-4
    assert 0 < row["losses_apart_by_order"] < 1e-4
    assert row["losses_apart_in_float64"] < 1e-7  # the rate of our Adam is a float32
    # With dropout in one of the loops they are not: the figure tells.
    rates = ("transformer_dropout", "feature_dropout", "propagation_dropout")
    still = replace(RECIPE, model=replace(RECIPE.model, **dict.fromkeys(rates, 0.0)))
    calm = replace(case, recipe=still)
    models = calm.work().fresh_models()
    task = NodeTask.from_splits(dense_features(GRAPH, "rows"), GRAPH.y, case.splits[:1], CPU)
    schedule = replace(still.schedule, patience=40)
    ours = fit_nodes(models, task, case.spectrum, schedule).curves[:, 0, 0].numpy()
    patient = replace(still, schedule=schedule)
    theirs = same_suite.plain_readings(replace(calm, recipe=patient), 0, CPU)
    direct = np.abs(ours - [reading.train_loss for reading in theirs]).max()
    assert row["losses_apart"] == pytest.approx(direct)
    noisy = same_suite.plain_readings(
        replace(case, recipe=replace(RECIPE, schedule=schedule)), 0, CPU
    )
    assert np.abs(ours - [reading.train_loss for reading in noisy]).max() > 1e-3


def test_errors_of_landmarks_are_of_the_worst_filter(case: NodeCase) -> None:
    _, models = same_suite.train_ours(case, CPU)
    found = same_suite.landmark_errors(models, case.spectrum, RECIPE)
    assert list(found) == ["64", "128", "256", "512"]
    assert found["256"] is found["512"] is None  # no more than 150 eigenvalues
    for count in (64, 128):
        keys = case.spectrum.landmarks(count, points=count)
        errors = []
        for model in models:
            with torch.no_grad():
                exact = model.responses(case.spectrum)[0].numpy()
                near = model.responses(case.spectrum, keys)[0].numpy()
            errors.append(np.abs(near - exact).max() / np.abs(exact).max())
        assert found[str(count)] == pytest.approx(max(errors), rel=1e-5)
    assert found["128"] < found["64"] < 1


def test_a_cap_never_adds_epochs() -> None:
    assert same_suite.SamePlan(epochs=7).capped(RECIPE).schedule.epochs == 7
    assert same_suite.SamePlan(epochs=700).capped(RECIPE).schedule.epochs == 40
    assert same_suite.SamePlan().capped(RECIPE) == RECIPE


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(("first", "second")):
        graph = csbm(0.4, num_nodes=40, num_features=6, seed=seed)
        ends = np.stack(graph.adjacency.nonzero())
        content = {"edge_index": ends, "num_nodes": 40, "directed": False}
        np.savez(folder / f"{name}.npz", **content, x=graph.x, y=graph.y)
    return sorted(folder.iterdir())


def test_every_row_is_kept_as_it_ends(files: list[Path]) -> None:
    kept: list[list[str]] = []
    result = suites.bench(
        "same",
        [str(path) for path in files],
        Setting(CPU, Silent()),
        epochs=3,
        runs=2,
        keep=lambda result: kept.append([row["case"] for row in result["rows"]]),
    )
    assert kept == [["first"], ["first", "second"]]
    assert result["plan"] == {"runs": 2, "epochs": 3}
    assert [row["plain"]["epochs"] for row in result["rows"]] == [3.0, 3.0]


def test_the_command_records_what_it_prints(files: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "same-first.json"
    words = ["same", "--datasets", str(files[0]), "--runs", "1", "--epochs", "2"]
    words += ["--device", "cpu", "--cache", str(tmp_path), "--out", str(out)]
    shown = CliRunner().invoke(app, [*words, "--json"])
    assert shown.exit_code == 0, shown.output
    found, recorded = json.loads(shown.stdout), json.loads(out.read_text(encoding="utf-8"))
    assert found["suite"] == recorded["suite"] == "same"
    assert recorded["rows"] == found["rows"]
    assert (recorded["schema"], recorded["name"]) == ("specformer.bench/1", "same-first")
    (row,) = found["rows"]
    assert row["ours"]["inside"] == {"by_loss": None, "by_accuracy": None}
    assert (row["nodes"], row["loss_epochs"]) == (40, 2)
    table = CliRunner().invoke(app, [*words, "--quiet"])
    assert table.exit_code == 0, table.output
    assert all(word in table.stdout for word in ("picked by", "losses apart", "error, b = 64"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["node", "--runs", "3"], "--runs 3: the suite node has none, only same does"),
        (["decompose", "--runs", "3"], "--runs 3: the suite decompose has none"),
        (["same", "--repeats", "2"], "--repeats 2: the suite same repeats nothing"),
    ],
)
def test_options_of_another_suite_are_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
