"""Own data, start to end: CSV to a trained model to predictions."""

import csv
import io
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from scipy.sparse import csr_array
from tests.cli.command_line import environment, only_json
from tests.tasks.jobs import predict_with, train_on

from specformer.datasets import csbm, make_splits, node_graph
from specformer.datasets.registry import NODE_SETS
from specformer.datasets.structural_features import STRUCTURAL
from specformer.errors import ConfigError, DataNotFoundError, GraphError, RunError
from specformer.graphs import Graph, read_graph, write_npz
from specformer.tasks.nodes.node_predict import NodePredictor
from specformer.tasks.nodes.node_recipe import NODE_MODELS, node_model, node_recipe
from specformer.training.loops.nodes import NodeRuns
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
QUICK = ["schedule.epochs=40", "schedule.learning_rate=0.02"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small two-class graph as a user would keep it: names for nodes, words for classes."""
    graph = csbm(0.7, num_nodes=80, num_features=6, degree=6.0, signal=12.0, seed=1)
    path = tmp_path_factory.mktemp("friends")
    rows, columns = graph.adjacency.nonzero()
    with (path / "edges.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        writer.writerows((f"n{i}", f"n{j}") for i, j in zip(rows, columns, strict=True) if i < j)
    with (path / "nodes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"f{i}" for i in range(6)), "label"])
        for node, (features, label) in enumerate(zip(graph.x, graph.y, strict=True)):
            word = "" if node == 79 else ("cat", "dog")[label]
            writer.writerow([f"n{node}", *features.tolist(), word])
    return path


def one_form(model: str) -> list[str]:
    """Settings that leave out the trial of several forms, where a model has them."""
    return ["form=paper"] if model == "specformer" else []


def finished_run(folder, tmp_path, model="specformer", changes=()):
    result, outcome = train_on(
        str(folder),
        model=model,
        recipe=None,
        assignments=[*QUICK, *one_form(model), *changes],
        runs=2,
        device=CPU,
        progress=Silent(),
    )
    run = RunFolder.create(tmp_path / "run", {"source": str(folder)})
    run.write_models(outcome.models, outcome.beside)
    run.finish("nodes", result, outcome.arrays, command="specformer train", seed=0, device=CPU)
    return run, result, outcome


@pytest.mark.parametrize("model", ["specformer", "gcn"])
def test_csv_to_predictions(folder, tmp_path, model):
    run, result, _ = finished_run(folder, tmp_path, model)
    assert result["recipe"] == "default"
    assert result["classes"] == ["cat", "dog"]
    found = predict_with(run, device=CPU)
    rows = list(csv.DictReader(io.StringIO(found.text)))
    assert found.rows == len(rows) == 80  # the unlabelled node too
    assert {row["id"] for row in rows} == {f"n{node}" for node in range(80)}
    for row in rows:
        cat, dog = float(row["p(cat)"]), float(row["p(dog)"])
        assert cat + dog == pytest.approx(1.0, abs=2e-6)
        assert row["prediction"] == ("cat" if cat > dog else "dog")
    graph = node_graph(str(folder))
    names = dict(zip(graph.node_ids, graph.y, strict=True))
    right = [("cat", "dog")[names[r["id"]]] == r["prediction"] for r in rows if names[r["id"]] >= 0]
    assert np.mean(right) > 0.8


def test_loaded_models_give_the_recorded_accuracy(folder, tmp_path):
    run, result, _ = finished_run(folder, tmp_path)
    graph = node_graph(str(folder))
    from specformer import decompose

    spectrum = decompose(graph)
    for number, (model, split) in enumerate(
        zip(
            NodePredictor.of_run(run).models,
            make_splits(graph, "auto", 2, 0),
            strict=True,
        )
    ):
        x = (graph.x - graph.x[split.train].mean(axis=0)) / graph.x[split.train].std(axis=0)
        guess = model(torch.as_tensor(x), spectrum).argmax(dim=-1).numpy()
        accuracy = np.mean(guess[split.test] == graph.y[split.test])
        assert accuracy == pytest.approx(result["test"]["values"][number], abs=1e-6)
        assert result["nodes"][0]["splits"][number] == split.fingerprint


def test_predicting_on_another_graph(folder, tmp_path):
    run, _, _ = finished_run(folder, tmp_path)
    other = csbm(0.7, num_nodes=30, num_features=6, seed=5)
    write_npz(tmp_path / "other.npz", Graph(other.adjacency, x=other.x))
    found = predict_with(run, graph=str(tmp_path / "other.npz"), device=CPU)
    assert found.rows == 30
    assert found.text.splitlines()[1].startswith("0,")
    write_npz(tmp_path / "narrow.npz", Graph(other.adjacency, x=other.x[:, :4]))
    with pytest.raises(RunError, match=r"narrow\.npz: a node has 4 features where .* on 6"):
        predict_with(run, graph=str(tmp_path / "narrow.npz"), device=CPU)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_features_are_found_by_name(folder, tmp_path, sparse):
    run, _, _ = finished_run(folder, tmp_path, "gcn")
    graph = read_graph(folder)
    order = np.array([3, 0, 5, 1, 4, 2])
    names = tuple(np.array(graph.feature_names)[order])
    x = csr_array(graph.x[:, order]) if sparse else graph.x[:, order]
    write_npz(tmp_path / "moved.npz", replace(graph, x=x, feature_names=names))
    moved = predict_with(run, graph=str(tmp_path / "moved.npz"), device=CPU)
    assert moved == predict_with(run, device=CPU)
    write_npz(tmp_path / "nameless.npz", replace(graph, x=x, feature_names=None))
    assert predict_with(run, graph=str(tmp_path / "nameless.npz"), device=CPU) != moved
    write_npz(tmp_path / "other.npz", replace(graph, x=x, feature_names=tuple("abcdef")))
    with pytest.raises(RunError, match=r"other\.npz: a node has no feature 'f0', which the model"):
        predict_with(run, graph=str(tmp_path / "other.npz"), device=CPU)


def test_a_table_keeps_no_models_to_predict_with(call, here):
    table = RunFolder.create(here / "table", {"command": "table", "table": 2})
    table.finish("nodes", {"table": 2}, {}, command="specformer table 2", seed=0, device=CPU)
    expected = "Error: table: only runs of `specformer train` keep models to predict with.\n"
    assert call("predict", "table") == (2, "", f"Reading table.\n{expected}")


def test_spectra_that_predictions_cannot_have(folder, tmp_path):
    run, _, _ = finished_run(folder, tmp_path)
    with pytest.raises(ConfigError, match="predict: spectrum='dense' should be 'decomposed' or"):
        predict_with(run, device=CPU, spectrum="dense")
    with pytest.raises(ConfigError, match="--degree 5: add --spectrum density"):
        predict_with(run, device=CPU, degree=5)
    other, _, _ = finished_run(folder, tmp_path / "other", "gcn")
    with pytest.raises(ConfigError, match="--spectrum: gcn takes no spectrum"):
        predict_with(other, device=CPU, spectrum="density")


def test_damaged_or_missing_models_are_named(folder, tmp_path):
    run, _, _ = finished_run(folder, tmp_path, "gcn")
    weights = run.path / "model" / "001" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(RunError, match=r"001.*damaged"):
        NodePredictor.of_run(run)
    (run.path / "model" / "000" / "config.json").unlink()  # as earlier versions left it
    with pytest.raises(RunError, match=r"000: no saved model \(config\.json is missing\)"):
        NodePredictor.of_run(run)
    shutil.rmtree(run.path / "model")
    with pytest.raises(RunError, match="no saved models"):
        NodePredictor.of_run(run)


def test_every_model_trains(folder):
    for model in NODE_MODELS:
        result, _ = train_on(
            str(folder),
            model=model,
            recipe="default",
            assignments=["schedule.epochs=2"],
            runs=1,
            device=CPU,
            progress=Silent(),
        )
        assert 0.0 <= result["test"]["mean"] <= 1.0
        assert result["parameters"] > 0


def test_recipes(folder):
    assert node_recipe(None, "cora")[0] == "paper"
    assert node_recipe(None, "mine")[0] == "default"
    squirrel = node_recipe("paper", "squirrel")[1]
    with pytest.raises(ConfigError, match="no recipe paper of specformer for mine"):
        node_recipe("paper", "mine")
    with pytest.raises(ConfigError, match="did you mean 'num_heads'"):
        node_recipe(None, "cora", ["model.num_head=3"])
    with pytest.raises(ConfigError, match="unknown model 'resnet'"):
        node_model("resnet", squirrel, 3, 2)


#: The paper's tables: layers, heads, width, rate, decay, dropouts; features, classes, parameters.
PAPER = {
    "chameleon": ((2, 4, 32, 1e-3, 5e-4, 0.2, 0.4, 0.5), 2325, 5, 82_445),
    "squirrel": ((2, 2, 32, 1e-3, 1e-3, 0.1, 0.4, 0.4), 2089, 5, 74_787),
    "actor": ((2, 1, 32, 2e-4, 1e-4, 0.5, 0.8, 0.5), 932, 5, 37_680),
    "cora": ((2, 2, 32, 2e-4, 1e-4, 0.2, 0.6, 0.2), 1433, 7, 53_885),
    "citeseer": ((2, 2, 32, 2e-4, 1e-3, 0.0, 0.7, 0.5), 3703, 6, 126_840),
    "photo": ((2, 4, 32, 2e-4, 1e-4, 0.2, 0.3, 0.2), 745, 8, 32_044),
    "penn94": ((1, 1, 64, 1e-3, 1e-3, 0.0, 0.4, 0.4), 4814, 2, 338_179),
    "ogbn-arxiv": ((1, 1, 512, 1e-3, 0.0, 0.1, 0.1, 0.1), 128, 40, 1_931_305),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_hyperparameters(name: str) -> None:
    settings, features, classes, parameters = PAPER[name]
    chosen, recipe = node_recipe(None, name)
    model, schedule = recipe.model, recipe.schedule
    assert chosen == "paper"
    assert (
        model.num_layers, model.num_heads, model.hidden_channels,
        schedule.learning_rate, schedule.weight_decay,
        model.transformer_dropout, model.feature_dropout, model.propagation_dropout,
    ) == settings  # fmt: skip
    assert (model.sharing, schedule.epochs, schedule.patience) == ("medium", 2000, 200)
    built = node_model("specformer", recipe, features, classes)
    count = sum(parameter.numel() for parameter in built.parameters())
    assert count == pytest.approx(parameters, rel=0.005)


def test_the_papers_truncated_spectra() -> None:
    kept = {name: node_recipe("paper", name)[1].k for name in PAPER}
    assert tuple(kept.pop("penn94")) == (3000, 3000)
    assert kept.pop("ogbn-arxiv") == 5000
    assert set(kept.values()) == {None}


def test_sources_that_cannot_be_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no data folder beside it
    monkeypatch.delenv("SPECFORMER_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="nonsense: neither"):
        node_graph("nonsense")
    with pytest.raises(DataNotFoundError, match=r"wordnet\.npz was not found"):
        node_graph("wordnet", tmp_path)
    graph = csbm(0.5, num_nodes=10)
    write_npz(tmp_path / "bare.npz", Graph(graph.adjacency, y=graph.y))
    assert node_graph(str(tmp_path / "bare.npz")).feature_names == STRUCTURAL
    write_npz(tmp_path / "mute.npz", Graph(graph.adjacency, x=graph.x))
    with pytest.raises(GraphError, match="no labels"):
        node_graph(str(tmp_path / "mute.npz"))


def test_classes_that_no_split_learns_or_tests_are_named(tmp_path, caplog):
    graph = csbm(0.7, num_nodes=60, num_features=4, seed=0)
    labels = np.zeros(60, dtype=int)
    labels[:3], labels[3] = 1, 2  # 12 nodes of each class would train
    rare = Graph(graph.adjacency, x=graph.x, y=labels, class_names=("many", "few", "one"))
    write_npz(tmp_path / "rare.npz", rare)
    write_npz(tmp_path / "even.npz", graph)
    options = {"model": "mlp", "recipe": None, "assignments": ["schedule.epochs=2"]}
    options |= {"runs": 2, "device": CPU, "progress": Silent()}
    train_on(str(tmp_path / "even.npz"), **options)
    assert not caplog.messages
    train_on(str(tmp_path / "rare.npz"), **options)  # one of each part is of 'few'
    told = "rare: no test node is of class 'one', so that it is not tested"
    assert caplog.messages[0] == told
    caplog.clear()
    paper = {**options, "assignments": ["schedule.epochs=2", "split=random-60-20-20"]}
    train_on(str(tmp_path / "rare.npz"), **paper)
    message = caplog.messages[0]
    told = "rare: no test node is of class 'few' or 'one', so that it is not tested"
    assert message.startswith(f"{told}; all nodes of a rare class train")
    # Whoever gave the masks need not be told to give masks.
    masks = {
        f"{part}_mask": np.isin(np.arange(60) % 4, chosen)[:, None] & (labels[:, None] == 0)
        for part, chosen in (("train", (0, 1)), ("val", (2,)), ("test", (3,)))
    }
    unlearned = replace(rare, train_mask=masks["train_mask"], test_mask=labels > 0)
    write_npz(tmp_path / "unlearned.npz", unlearned)
    caplog.clear()
    train_on(str(tmp_path / "unlearned.npz"), **options)
    message = "unlearned: no training node is of class 'few' or 'one', so that it is not learned"
    assert caplog.messages[0] == message
    masks["train_mask"] |= labels[:, None] > 0
    write_npz(tmp_path / "rare.npz", replace(rare, **masks))
    caplog.clear()
    train_on(
        str(tmp_path / "rare.npz"),
        **{**options, "assignments": ["schedule.epochs=2", "split=official"]},
    )
    assert caplog.messages[0] == told


def test_at_least_one_run():
    with pytest.raises(ConfigError, match="at least one"):
        make_splits(csbm(0.5, num_nodes=20), "random-60-20-20", 0, 0)


def test_named_sets_have_features_and_labels(shared_data):
    for name in NODE_SETS:
        if (shared_data / f"{name}.npz").exists() and name != "wordnet":
            assert node_graph(name, shared_data).num_classes > 1


def test_command_line_from_csv_to_predictions(folder, call, here):
    few = ("--runs", 1, "--set", "schedule.epochs=5", "--set", "form=paper")
    result = only_json(call("train", folder, *few, "--json"))
    for key in ("dataset", "model", "recipe", "runs", "metric", "test", "val", "parameters"):
        assert key in result
    assert (here / result["report"]).is_file()
    answer = only_json(call("predict", result["run_dir"], "--json"))
    assert answer["rows"] == 80
    assert len((here / answer["path"]).read_text().splitlines()) == 81
    _, printed, _ = call("predict", result["run_dir"], "--out", "-")
    assert printed == (here / answer["path"]).read_text()
    status, printed, err = call("predict", result["run_dir"], "--out", "-", "--json")
    assert (status, printed) == (2, "")
    assert "--out -: standard output is taken by --json; name a file." in err
    assert not (here / "-").exists()
    listed = only_json(call("datasets", "--json"))
    assert {row["name"] for row in listed["datasets"]} >= set(NODE_SETS)


@pytest.mark.parametrize("source", ["nodes", "signals"])
def test_a_run_is_the_same_from_a_fresh_and_from_a_cached_spectrum(source, folder, call, here):
    epochs = ["--set", "schedule.epochs=10"]
    if source == "nodes":
        source, epochs = folder, [*epochs, "--set", "form=paper"]
    else:
        image = np.random.default_rng(0).integers(0, 255, (21, 17), dtype=np.uint8)
        Image.fromarray(image).save(source := here / "small.png")
    words = ["train", source, "--runs", 1, *epochs, "--device", "cpu", "--json"]
    fresh, cached = (only_json(call(*words, "--out", out)) for out in ("fresh", "cached"))
    assert fresh["test"] == cached["test"]
    assert_equal_models(here / "fresh", here / "cached")


def assert_equal_models(one, other):
    """To the bit."""
    found = sorted(one.glob("model/*/model.safetensors"))
    assert found
    for path in found:
        left, right = load_file(path), load_file(other / path.relative_to(one))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)


@pytest.mark.parametrize("model", ["specformer", "gcn"])
def test_a_diverged_training_is_not_a_success(model, folder, call, here):
    changes = ["schedule.learning_rate=1e30", *one_form(model)]
    words = ["--model", model, "--runs", 1, *(f"--set={change}" for change in changes), "-q"]
    status, out, err = call("train", folder, *words, "--out", "far")
    assert (status, out) == (2, "")
    assert err.startswith("Error: training diverged: run 1 of 1 has no model, as the loss was not")
    assert err.endswith("start a new run with a lower schedule.learning_rate.\n")
    assert not (here / "far").exists()


@pytest.mark.parametrize("runs", ["1", "2"])
def test_a_killed_run_resumes_to_the_same_result(runs, folder, call, here):
    changes = ["schedule.epochs=200", "schedule.patience=200", "form=paper"]
    changes += ["model.num_heads=1", "model.hidden_channels=8"]
    settings = ["--runs", runs, "--device", "cpu", *(f"--set={change}" for change in changes)]
    whole = only_json(call("train", folder, *settings, "--out", "whole", "--json"))
    killed = subprocess.Popen(
        [sys.executable, "-m", "specformer", "train", str(folder), *settings, "--out", "killed"],
        cwd=here,
        env=environment(here),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    checkpoint = here / "killed" / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    assert checkpoint.exists()
    assert not (here / "killed" / "result.json").exists()
    spent = load_file(checkpoint)["seconds"].item()
    resumed = only_json(call("resume", "killed", "--json"))
    for key in ("test", "val", "test_by_accuracy"):
        assert whole[key] == resumed[key]
    assert resumed["seconds"] > spent > 0  # of both parts
    assert_equal_models(here / "whole", here / "killed")
    status, _, err = call("resume", "killed")
    assert status == 2
    assert "killed: the run is finished" in err


@pytest.mark.parametrize("changed", ["edges", "features", "labels"])
def test_a_graph_that_was_changed_meanwhile_is_refused(tmp_path, monkeypatch, changed):
    usual = NodeRuns.fit.__kwdefaults__
    monkeypatch.setattr(NodeRuns.fit, "__kwdefaults__", usual | {"save_every": 2})
    graph = csbm(0.6, num_nodes=60, num_features=5, seed=2)
    state = tmp_path / "checkpoint.safetensors"

    def train(graph):
        write_npz(tmp_path / "mine.npz", graph)
        options = {"model": "gcn", "recipe": None, "assignments": ["schedule.epochs=4"]}
        source = str(tmp_path / "mine.npz")
        options |= {"runs": 1, "begin": lambda: RunFolder(tmp_path)}
        return train_on(source, **options)[0]["test"]

    train(replace(graph, adjacency=csr_array((60, 60))))  # a checksum of no edges is one too
    state.unlink()
    first = train(graph)
    assert state.is_file()
    assert train(graph) == first  # from the state
    x, adjacency = graph.x.copy(), graph.adjacency.tolil()
    x[7, 3] += 1
    adjacency[0, 1] = adjacency[1, 0] = 1 - adjacency[0, 1]
    other = {
        "edges": {"adjacency": adjacency.tocsr()},
        "features": {"x": x},
        "labels": {"y": 1 - graph.y},
    }
    with pytest.raises(RunError, match="belongs to another run, other data or other settings"):
        train(replace(graph, **other[changed]))
