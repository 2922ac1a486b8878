"""Numbers, several labels and ranked classes of nodes: from a file to a report and predictions."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, r2_score, roc_auc_score
from tests.cli.command_line import only_json
from tests.tasks.jobs import predict_with, train_on, tune_on

from specformer.datasets import csbm, make_splits, node_graph
from specformer.errors import ConfigError
from specformer.graphs import Graph, write_npz
from specformer.spectrum import decompose
from specformer.tasks.nodes.node_recipe import NODE_MODELS
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
NODES, FEATURES = 150, 4
RANDOM = np.random.default_rng(0)
BASE = csbm(0.7, num_nodes=NODES, num_features=FEATURES, degree=6.0, signal=12.0, seed=1)
#: Features of one deviation, as they are prepared, so that a filter of them is the target.
X = RANDOM.standard_normal((NODES, FEATURES)).astype(np.float32)


def heat(x: np.ndarray) -> np.ndarray:
    """The closed form: exp(-2 L) of the mean feature, in units of its own."""
    spectrum = decompose(BASE, dtype=torch.float64)
    signal = torch.as_tensor(x.mean(axis=1, keepdims=True)).double()
    smooth = spectrum.filter(signal, torch.exp(-2 * spectrum.eigenvalues))
    return 700.0 + 1e3 * smooth.numpy()


def labels() -> np.ndarray:
    """Two labels of each node, that of its class and a noisy one, with gaps."""
    noisy = X[:, 0] + 0.3 * RANDOM.standard_normal(NODES) > 0
    y = np.stack([BASE.y, noisy], axis=1).astype(float)
    y[::11, 1] = np.nan
    y[5] = np.nan
    return y


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tasks")
    graphs = {
        "numbers": Graph(BASE.adjacency, x=X, y=heat(X)),
        "labels": Graph(BASE.adjacency, x=BASE.x, y=labels(), class_names=("class", "noisy")),
        "classes": Graph(BASE.adjacency, x=BASE.x, y=BASE.y),
    }
    for name, graph in graphs.items():
        write_npz(folder / f"{name}.npz", graph)
    return {name: folder / f"{name}.npz" for name in graphs}


def trained(source: Path, folder: Path, changes=(), **options):
    result, outcome = train_on(
        source, assignments=changes, runs=2, device=CPU, progress=Silent(), **options
    )
    run = RunFolder.create(folder / "run", {"source": str(source), "command": "train"})
    run.write_models(outcome.models, outcome.beside)
    run.finish("nodes", result, outcome.arrays, command="specformer train", seed=0, device=CPU)
    return run, result, outcome


def predicted(run: RunFolder, **options) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(predict_with(run, device=CPU, **options).text)))


def test_a_linear_filter_is_learned_to_its_closed_form(files, tmp_path):
    changes = [
        "form=paper", "model.space=input", "model.num_layers=1", "model.feature_layers=1",
        "model.feature_dropout=0", "model.propagation_dropout=0", "model.transformer_dropout=0",
        "features=none", "schedule.epochs=400", "schedule.learning_rate=0.02",
    ]  # fmt: skip
    run, result, outcome = trained(files["numbers"], tmp_path, changes, metric="r2")
    assert result["task"] == "regression"
    assert result["metric"] == "r2"
    assert result["test"]["mean"] > 0.99
    assert "classes" not in result
    rows = predicted(run)
    assert list(rows[0]) == ["id", "prediction", "spread"]
    told = np.array([float(row["prediction"]) for row in rows])
    assert r2_score(heat(X)[:, 0], told) > 0.99
    graph = node_graph(str(files["numbers"]))
    splits = make_splits(graph, "auto", 2, 0)
    assert [split.fingerprint for split in splits] == result["nodes"][0]["splits"]
    scale = json.loads((run.model_folders()[1] / "targets.json").read_text())
    assert scale["mean"] == pytest.approx([graph.y[splits[1].train].mean()], rel=1e-5)
    both = outcome.arrays["nodes/numbers/specformer/tested"]
    assert both.shape == (2, sum(split.test.sum() for split in splits), 1)
    first = int(splits[0].test.sum())
    parts = (both[:, :first, 0], both[:, first:, 0])
    values = [r2_score(true, guess) for guess, true in parts]
    assert values == pytest.approx(result["test"]["values"], abs=1e-4)


@pytest.mark.parametrize("model", NODE_MODELS)
@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_every_model_learns_them(files, model, kind):
    changes = ["schedule.epochs=3", *(["form=paper"] if model == "specformer" else [])]
    result, _ = train_on(
        files[kind], assignments=changes, model=model, runs=2, device=CPU, progress=Silent()
    )
    assert np.isfinite(result["test"]["values"]).all()
    assert result["metric"] == {"numbers": "rmse", "labels": "rocauc"}[kind]


def test_several_labels_end_to_end(files, tmp_path):
    run, result, _ = trained(
        files["labels"], tmp_path, ["form=paper", "schedule.epochs=150", "metric=ap"]
    )
    assert result["targets"] == ["class", "noisy"]
    rows = predicted(run)
    columns = ["prediction(class)", "probability(class)", "spread(class)"]
    assert list(rows[0])[:4] == ["id", *columns]
    chances = np.array([float(row["probability(class)"]) for row in rows])
    assert average_precision_score(BASE.y, chances) > 0.9
    for row in rows:
        assert row["prediction(noisy)"] == str(int(float(row["probability(noisy)"]) > 0.5))


@pytest.mark.parametrize(("metric", "oracle"), [("rocauc", roc_auc_score)])
def test_two_classes_are_ranked(files, tmp_path, metric, oracle):
    changes = ["form=paper", "schedule.epochs=40", "monitor=metric"]
    run, result, outcome = trained(files["classes"], tmp_path, changes, metric=metric)
    chances, true = outcome.arrays["nodes/classes/specformer/tested"][..., 0]
    split = make_splits(node_graph(str(files["classes"])), "auto", 2, 0)[0]
    first = int(split.test.sum())
    expected = oracle(true[:first], chances[:first])
    assert result["test"]["values"][0] == pytest.approx(expected, abs=1e-5)
    assert result[f"test_by_{metric}"] == result["test"]
    assert list(predicted(run)[0]) == ["id", "prediction", "p(0)", "p(1)"]


def test_the_same_model_whatever_it_is_judged_by(files):
    def weights(**options):
        changes = ["form=paper", "schedule.epochs=8", "monitor=loss"]
        _, outcome = train_on(files["classes"], assignments=changes, runs=2, device=CPU, **options)
        return [parameter for model in outcome.models for parameter in model.parameters()]

    usual = weights()
    for metric in ("rocauc", "ap", "f1"):
        for one, other in zip(usual, weights(metric=metric), strict=True):
            assert torch.equal(one, other)


def test_batches_of_nodes_learn_numbers_and_labels(files):
    changes = [
        "form=paper", "spectrum=density", "degree=16", "batch_size=64", "model.space=input",
        "model.num_layers=1", "model.propagation_dropout=0", "schedule.epochs=40",
        "schedule.learning_rate=0.02",
    ]  # fmt: skip
    for kind, least in (("numbers", -1.0), ("labels", 0.7), ("classes", 0.8)):
        metric = "r2" if kind == "numbers" else "rocauc"
        result, _ = train_on(
            files[kind], assignments=changes, runs=2, device=CPU, metric=metric, progress=Silent()
        )
        assert result["val"]["mean"] > least


@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_command_line_resumes_predicts_and_reports(call, files, tmp_path, kind, monkeypatch):
    changes = (
        "--set",
        "schedule.epochs=6",
        "--set",
        "form=paper",
        "--runs",
        "2",
        "--json",
        "--device",
        "cpu",
    )
    whole = call("train", files[kind], "--out", "whole", *changes)
    from specformer.training.loops.nodes import NodeRuns

    monkeypatch.setitem(NodeRuns.fit.__kwdefaults__, "save_every", 2)
    taken, update = NodeRuns.take_evaluation, []

    def killed(self, *record):
        taken(self, *record)
        update.append(1)
        if len(update) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(NodeRuns, "take_evaluation", killed)
    assert call("train", files[kind], "--out", "again", *changes)[0] != 0
    monkeypatch.setattr(NodeRuns, "take_evaluation", taken)
    assert only_json(call("resume", "again", "--json"))["test"] == only_json(whole)["test"]
    reading = json.loads(Path("whole/metrics.jsonl").read_text().splitlines()[0])
    assert f"val_{ {'numbers': 'rmse', 'labels': 'rocauc'}[kind] }" in reading
    page = Path("whole/report.html").read_text()
    assert "ccuracy" not in page
    assert ("Numbers on nodes" in page) == (kind == "numbers")
    assert ("RMSE" if kind == "numbers" else "ROC-AUC") in page
    status, out, err = call(
        "train", files[kind], "--out", "told", "--set", "schedule.epochs=2", "--set", "form=paper"
    )
    assert status == 0, err
    assert ("RMSE" if kind == "numbers" else "ROC-AUC") in out
    status, out, err = call("inspect", files[kind])
    assert status == 0, err
    assert "target" in out


def test_settings_are_searched_by_the_metric(files, tmp_path):
    found = tune_on(
        files["numbers"], tmp_path / "tune", ["schedule.epochs=5"], model="gcn", metric="mae",
        trials=3, finalists=1, splits=1, runs=2, device=CPU, progress=Silent(),
    )  # fmt: skip
    assert found["metric"] == "mae"
    written = (tmp_path / "tune" / "trials.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in written]
    tried = {line["trial"]: line["score"] for line in lines if line["splits"] == 1}
    finalist = next(line["trial"] for line in lines if line["splits"] == 2)
    assert tried[finalist] == min(tried.values())  # less is better


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "numbers",
            {"metric": "accuracy"},
            "metric=accuracy does not go with numbers",
        ),
        (
            "labels",
            {"metric": "f1"},
            "several labels of a node; choose from rocauc",
        ),
        ("classes", {"metric": "rmse"}, "does not go with two classes"),
        ("classes", {"metric": "r3"}, "unknown metric 'r3'"),
        ("classes", {"assignments": ["loss=mse"]}, "loss=mse does not go with two classes"),
    ],
)
def test_what_does_not_go_together_is_refused(files, kind, options, message):
    with pytest.raises(ConfigError, match=message):
        train_on(files[kind], runs=1, device=CPU, **options)


def test_minesweeper_is_trained_on_its_own_splits(shared_data):
    result, _ = train_on(
        shared_data / "minesweeper.npz", runs=2, model="gcn", metric="rocauc", device=CPU,
        assignments=["schedule.epochs=2"], progress=Silent(),
    )  # fmt: skip
    assert result["metric"] == "rocauc"
    assert all(0.3 < value < 1.0 for value in result["test"]["values"])
