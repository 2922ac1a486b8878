"""A stranger's table of nodes, start to end: raw columns to a trained model to predictions."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.jobs import predict_with, prepared_by, train_on, trials_of

from specformer import decompose
from specformer.baselines import Propagation
from specformer.datasets import make_splits, node_graph
from specformer.datasets.structural_features import STRUCTURAL
from specformer.errors import ConfigError, GraphError, RunError
from specformer.graphs import Graph, as_adjacency, write_npz
from specformer.tasks.nodes.node_predict import load_features
from specformer.tasks.nodes.node_recipe import NODE_MODELS, node_recipe
from specformer.tasks.nodes.node_work import NodeWork
from specformer.training.engine.stacking import stack
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
NODES = 90
CITIES = ("Graz", "Linz", "Wels")


def write_folder(path: Path, *, seed: int = 0, columns: str = "", part: str = "") -> Path:
    """A table whose columns tell the class, with gaps; ``columns`` and ``part`` add to it."""
    rng = np.random.default_rng(seed)
    label = np.arange(NODES) % 3
    header = ["id", "age", "income", "city", "member", "joined", "label"]
    rows = []
    for node, own in enumerate(label):
        cells = [
            f"{rng.normal(30 + 15 * own, 4):.1f}",
            f"{np.exp(rng.normal(10 + own, 0.5)):.0f}",
            CITIES[own if rng.random() < 0.8 else rng.integers(3)],
            "yes" if own == 0 else "no",
            f"20{10 + 2 * own}-0{rng.integers(1, 9)}-11",
        ]
        cells = ["" if rng.random() < 0.1 else cell for cell in cells]
        rows.append([f"n{node}", *cells, "NA" if node == 5 else f"c{own}"])
    if columns:
        header.append(columns)
        rows = [[*row, part or f"text {number}"] for number, row in enumerate(rows)]
    ends = rng.integers(NODES, size=(200, 2))
    edges = [["source", "target"], *([f"n{i}", f"n{j}"] for i, j in ends if i != j)]
    path.mkdir()
    for name, lines in (("nodes.csv", [header, *rows]), ("edges.csv", edges)):
        (path / name).write_text("".join(",".join(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("own") / "people")


def trained(source, tmp_path, model="specformer", changes=(), runs=2):
    result, outcome = train_on(
        str(source),
        model=model,
        recipe=None,
        assignments=["schedule.epochs=30", "schedule.learning_rate=0.03", *changes],
        runs=runs,
        device=CPU,
        progress=Silent(),
    )
    run = RunFolder.create(tmp_path / f"run-{model}", {"source": str(source)})
    run.write_models(outcome.models, outcome.beside)
    run.finish("nodes", result, outcome.arrays, command="specformer train", seed=0, device=CPU)
    return run, result, outcome


def chances(predictions) -> np.ndarray:
    rows = list(csv.reader(io.StringIO(predictions.text)))[1:]
    return np.array([[float(cell) for cell in row[2:]] for row in rows])


@pytest.mark.parametrize("model", ["specformer", "gcn"])
def test_predictions_are_those_of_the_models_as_they_were_trained(folder, tmp_path, model):
    run, result, outcome = trained(folder, tmp_path, model)
    graph = node_graph(str(folder))
    assert graph.class_names == ("c0", "c1", "c2")
    assert graph.y[5] == -1
    assert load_features(run) == prepared_by(outcome)
    assert prepared_by(outcome)[0] != prepared_by(outcome)[1]
    operator = decompose(graph) if model == "specformer" else Propagation(graph.adjacency)
    with torch.no_grad():
        expected = [
            own(torch.as_tensor(prepared.dense(graph)), operator).softmax(dim=-1)
            for own, prepared in zip(outcome.models, prepared_by(outcome), strict=True)
        ]
    found = chances(predict_with(run, device=CPU))
    np.testing.assert_allclose(found, torch.stack(expected).mean(dim=0).numpy(), atol=2e-6)
    assert model != "specformer" or result["test"]["mean"] > 0.8  # GCN mixes with any neighbours
    for number, split in enumerate(make_splits(graph, "auto", 2, 0)):
        right = expected[number].argmax(dim=-1).numpy() == graph.y
        assert right[split.test].mean() == pytest.approx(result["test"]["values"][number], abs=1e-6)


def test_another_graph_is_prepared_alike_and_its_columns_are_found_by_name(
    folder, tmp_path, caplog
):
    run, _, outcome = trained(folder, tmp_path, "mlp")
    other = write_folder(tmp_path / "others", seed=3, columns="bio")
    lines = [line.split(",") for line in (other / "nodes.csv").read_text().splitlines()]
    turned = "".join(",".join([line[0], *line[:0:-1]]) + "\n" for line in lines)
    (other / "nodes.csv").write_text(turned.replace("Wels", "Bonn"))
    graph = node_graph(str(other))
    assert "Bonn" in graph.feature_words["city"]
    found = predict_with(run, graph=str(other), device=CPU)
    with torch.no_grad():
        expected = [
            own(torch.as_tensor(prepared.dense(graph)), Propagation(graph.adjacency)).softmax(-1)
            for own, prepared in zip(outcome.models, prepared_by(outcome), strict=True)
        ]
    np.testing.assert_allclose(chances(found), torch.stack(expected).mean(dim=0).numpy(), atol=2e-6)
    doubts = [told for told in caplog.messages if "column '" in told and "others: " in told]
    assert len(doubts) == 1
    assert "column 'city' has words that were not there in training, in 31 of 77 cells" in doubts[0]
    for city in CITIES:
        turned = turned.replace(city, "Bonn")
    (other / "nodes.csv").write_text(turned)
    predict_with(run, graph=str(other), device=CPU)
    assert "others: column 'city' has words that were not there in training, in 77" in caplog.text
    (other / "nodes.csv").write_text(turned.replace("income", "salary"))
    with pytest.raises(RunError, match="others: a node has no feature 'income', which the model"):
        predict_with(run, graph=str(other), device=CPU)


@pytest.mark.parametrize("model", NODE_MODELS)
def test_every_model_takes_the_features_of_each_run(folder, model):
    """All runs at once are each of them alone, with its own features."""
    _, recipe = node_recipe("default", "own", model=model)
    graph = node_graph(str(folder))
    splits = make_splits(graph, "auto", 3, 0)
    work = NodeWork(graph, splits, model, recipe, 0)
    task = work.task(CPU)
    assert task.x.shape[:2] == (3, NODES)
    models = work.fresh_models(task.x.shape[-1])
    operator = decompose(graph) if model == "specformer" else Propagation(graph.adjacency)
    with torch.no_grad():
        together = stack(models, 3).eval()(task.x, operator)
        for run, own in enumerate(models):
            alone = own.eval()(task.x[run], operator)
            torch.testing.assert_close(together[run], alone, rtol=1e-4, atol=1e-5)


def test_batches_of_nodes_have_the_features_of_each_run(folder, tmp_path):
    changes = ["spectrum=density", "degree=8", "model.space=input", "model.num_layers=1"]
    changes += ["batch_size=20", "model.propagation_dropout=0.0"]
    _, result, outcome = trained(folder, tmp_path, changes=changes)
    assert prepared_by(outcome)[0] != prepared_by(outcome)[1]
    assert result["test"]["mean"] > 0.8


def test_free_text_is_refused_or_left_out(tmp_path):
    source = write_folder(tmp_path / "texts", columns="bio")
    with pytest.raises(GraphError, match=r"column 'bio' is free text, .*--set columns\.bio=drop"):
        trained(source, tmp_path, "mlp")
    run, _, _ = trained(source, tmp_path, "mlp", ["columns.bio=drop"])
    assert "bio" not in load_features(run)[0].needed
    predict_with(run, graph=str(write_folder(tmp_path / "no bio")), device=CPU)
    with pytest.raises(ConfigError, match=r"columns\.bio='text' should be 'standard' or 'robust'"):
        node_recipe(None, "own", ["columns.bio=text"])
    hashed, _, _ = trained(source, tmp_path / "hashed", "mlp", ["columns.bio=hash"])
    assert "bio" in load_features(hashed)[0].needed
    predict_with(hashed, graph=str(source), device=CPU)
    with pytest.raises(ConfigError, match=r"columns\.bio needs features=auto or features=standard"):
        node_recipe(None, "own", ["columns.bio=drop", "features=rows"])


def test_a_split_of_ones_own_is_used_unless_another_is_asked_for(tmp_path):
    source = write_folder(tmp_path / "split")
    lines = (source / "nodes.csv").read_text().splitlines()
    parts = ["split", *(("train", "Train", "valid", "TEST")[i % 4] for i in range(NODES))]
    marked = [f"{line},{part}" for line, part in zip(lines, parts, strict=True)]
    (source / "nodes.csv").write_text("\n".join(marked))
    _, result, _ = trained(source, tmp_path, "mlp")
    assert result["split"] == "official"
    assert "45 nodes train, 22 validate" in result["nodes"][0]["description"]  # n5 has no label
    assert len(set(result["nodes"][0]["splits"])) == 1
    _, drawn, _ = trained(source, tmp_path / "b", "mlp", ["split=random-60-20-20"])
    assert drawn["split"] == "random-60-20-20"


def test_columns_of_a_single_value_are_as_good_as_none(tmp_path, caplog):
    caplog.set_level("INFO")
    source = write_folder(tmp_path / "same")
    rows = [f"n{i},7,,{'cat' if i % 2 else 'dog'}" for i in range(NODES)]
    (source / "nodes.csv").write_text("\n".join(["id,size,note,label", *rows]))
    assert node_graph(str(source)).feature_names == STRUCTURAL
    assert "every column of features has a single value; used are log degree" in caplog.text
    assert node_graph(str(source), labels=False).feature_names == ("size", "note")


def test_a_graph_of_edges_and_labels_alone(tmp_path):
    """Hubs and leaves are told apart by their structure."""
    hubs, leaves = 20, 100
    edges = [(leaf, hubs + leaf * 5 + i) for leaf in range(hubs) for i in range(5)]
    index = np.array(edges).T
    y = (np.arange(hubs + leaves) < hubs).astype(int)
    adjacency = as_adjacency(index, hubs + leaves)
    write_npz(tmp_path / "stars.npz", Graph(adjacency, y=y))
    run, result, _ = trained(tmp_path / "stars.npz", tmp_path)
    assert result["test"]["mean"] == 1.0
    x = np.random.default_rng(0).random((hubs + leaves, 5))
    write_npz(tmp_path / "other.npz", Graph(adjacency, x=x))
    same, other = (
        predict_with(run, device=CPU),
        predict_with(run, graph=str(tmp_path / "other.npz"), device=CPU),
    )
    assert other.text == same.text  # its own features are not what was learned from
    write_npz(tmp_path / "full.npz", Graph(adjacency, x=x, y=y))
    full, _, _ = trained(tmp_path / "full.npz", tmp_path / "full")
    with pytest.raises(RunError, match=r"stars\.npz: a node has no features, which the model was"):
        predict_with(full, graph=str(tmp_path / "stars.npz"), device=CPU)


@pytest.mark.parametrize(
    "labels",
    [
        [f"{i * 1.37:.2f}" for i in range(NODES)],
        [f"{i % 30 + 0.5}" for i in range(NODES)],
        [f"n{i}" for i in range(NODES)],
    ],
)
def test_labels_that_are_no_classes_are_numbers_or_refused(tmp_path, labels):
    source = write_folder(tmp_path / "people")
    lines = [line.rpartition(",")[0] for line in (source / "nodes.csv").read_text().splitlines()]
    rows = [f"{line},{own}" for line, own in zip(lines, ["label", *labels], strict=True)]
    (source / "nodes.csv").write_text("\n".join(rows))
    if labels[0] == "n0":
        with pytest.raises(
            GraphError, match="90 different labels on 90 nodes cannot be learned as classes"
        ):
            node_graph(str(source))
        with pytest.raises(GraphError, match="the label 'n0' is not a number; leave out --task"):
            node_graph(str(source), task="regression")
    else:
        numbers = [[float(label)] for label in labels]
        assert node_graph(str(source)).y == pytest.approx(np.array(numbers), rel=1e-6)
    (source / "nodes.csv").write_text("\n".join(lines))
    with pytest.raises(GraphError, match="no labels"):
        node_graph(str(source))


def test_settings_are_searched_on_raw_columns(folder):
    trials = trials_of(folder, ["schedule.epochs=3"], model="mlp")
    assert "features" not in trials.space
    recipe = trials.recipe(trials.assignments)
    assert trials.size(recipe) == (12 * 64 + 64) + (64 * 3 + 3)
    assert trials.measure(recipe, 2).score is not None


def test_what_is_read_and_prepared_is_said_and_shown(folder, call, here):
    settings = ["--runs", 2, "--set", "schedule.epochs=3", "--set", "form=paper", "--out", "run"]
    status, _, err = call("train", folder, *settings)
    assert status == 0
    assert "column 'joined' holds dates, read as days since 1970" in err
    told = err.index("  column 'city': one column for each of missing, Graz, Linz, Wels\n")
    assert told < err.index("people: spectrum")  # before anything takes long
    report = (here / "run" / "report.html").read_text()
    assert "one column for each of missing, Graz, Linz, Wels" in report
    kept = json.loads((here / "run" / "model" / "001" / "features.json").read_text())
    assert [column["name"] for column in kept["columns"]][:2] == ["age", "income"]
    (here / "run" / "model" / "001" / "features.json").write_text("{}")
    status, _, err = call("predict", "run")
    assert status == 2
    assert "features.json: missing or damaged" in err


def test_an_edge_list_alone_is_told_what_to_do(call, here):
    (here / "k.csv").write_text("Source,Target\na,b\n")
    status, _, err = call("train", "k.csv")
    assert status == 2
    assert (
        "k.csv: the graph has no labels to learn from; put this list of edges into a folder" in err
    )
    assert "or learn links with --task links" in err
