"""Links, start to end: a graph to a trained model, its figures, scores and missing links."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.metrics import roc_auc_score
from tests.cli.command_line import only_json
from tests.tasks.jobs import CPU, train_on
from torch_geometric.data import Data

from specformer.baselines import Propagation
from specformer.cli.terminal import show_rows
from specformer.datasets import FeaturePreparation, csbm
from specformer.datasets.structural_features import with_structural_features
from specformer.errors import ConfigError, GraphError, RunError
from specformer.files.documents import read_json, unsealed
from specformer.graphs import Columns, Graph, as_graph, write_npz
from specformer.nn import Specformer
from specformer.spectrum import decompose
from specformer.tasks.job import Request, Workplace
from specformer.tasks.link_work import LinkWork, likeliest, read_pairs
from specformer.tasks.nodes.node_recipe import NODE_MODELS
from specformer.tasks.resolve import refuse_foreign, resolve
from specformer.training.loops.nodes import NodeRuns

PLACE = Workplace(CPU)
QUICK = ("schedule.epochs=6",)


def communities(seed: int = 0) -> Graph:
    """Six groups of twelve nodes, dense within and sparse between, with noisy features."""
    drawn = nx.random_partition_graph([12] * 6, 0.6, 0.01, seed=seed)
    x = np.eye(6)[np.arange(72) // 12] + np.random.default_rng(seed).normal(0, 0.5, (72, 6))
    names = [f"n{node}" for node in range(72)]
    return replace(as_graph(drawn), x=x, node_ids=names, name="groups")


@pytest.fixture
def file(tmp_path) -> Path:
    write_npz(tmp_path / "groups.npz", communities())
    return tmp_path / "groups.npz"


def work_on(graph: Graph, model: str = "gcn", changes=QUICK, runs: int = 2):
    job = resolve(Request("groups", model, changes=tuple(changes)), runs, "links")
    return LinkWork.of_links(job, graph).with_spectra(PLACE)


@pytest.mark.parametrize("model", ["gcn", "specformer"])
def test_a_diverged_training_names_run_epoch_and_layer(model) -> None:
    work = work_on(communities(), model, ("schedule.learning_rate=1e30", "schedule.epochs=3"))
    with pytest.raises(RunError, match=r"runs 1, 2 of 2 have .* from epoch 1 on, first in \w"):
        work.train(PLACE, None)


@pytest.mark.parametrize("model", NODE_MODELS)
def test_every_model_learns_links(model) -> None:
    outcome = work_on(communities(), model).train(PLACE, None)
    assert outcome.arrays[f"links/groups/{model}/curve"].shape == (6, 2, 3)
    for part in ("val", "test"):
        assert all(0 <= figure <= 1 for figure in outcome.row["figures"][part]["ap"]["values"])
    assert len(set(outcome.row["splits"])) == 1


@pytest.mark.parametrize("model", ["specformer", "gcn"])
def test_links_within_groups_are_found(model) -> None:
    changes = ["schedule.epochs=150", "model.feature_dropout=0.0"][: 1 + (model == "specformer")]
    outcome = work_on(communities(), model, changes).train(PLACE, None)
    assert outcome.row["test"]["mean"] > 0.85


@pytest.mark.parametrize("loops", [True, False])
def test_the_spectrum_is_that_of_the_training_links(loops) -> None:
    changes = () if loops else ("loops=false",)  # the recipe has them
    work = work_on(communities(), "specformer", changes)
    held_out = np.concatenate([work.links.val, work.links.test], axis=1)
    left = work.whole.adjacency.toarray()
    left[held_out[0], held_out[1]] = left[held_out[1], held_out[0]] = 0.0
    left += loops * np.eye(len(left))
    degree = left.sum(axis=1)
    scale = 1 / np.sqrt(np.where(degree > 0, degree, 1.0))
    laplacian = np.eye(len(left)) - scale[:, None] * left * scale
    found = work.spectrum.eigenvalues.double().numpy()
    np.testing.assert_allclose(found, np.linalg.eigvalsh(laplacian), atol=1e-5)


@pytest.mark.parametrize("model", ["specformer", "gcn", "h2gcn", "graphormer"])
def test_other_held_out_links_change_no_training_output(model) -> None:
    """The same training links, quite other ones held out: losses and outputs are the same bits."""
    work = work_on(communities(), model, ["schedule.epochs=8", "schedule.patience=100"])
    links = work.links
    swapped = replace(
        links,
        val=links.val_others, test=links.test_others, val_others=links.val, test_others=links.test,
    )  # fmt: skip
    assert not np.array_equal(swapped.val, links.val)
    curves = [
        each.train(PLACE, None).arrays[f"links/groups/{model}/curve"]
        for each in (work, replace(work, links=swapped))
    ]
    np.testing.assert_array_equal(curves[0][..., 0], curves[1][..., 0])
    assert not np.array_equal(curves[0][..., 2], curves[1][..., 2])


def test_figures_are_those_of_the_models_that_are_kept() -> None:
    work = work_on(communities(), "gcn", ["schedule.epochs=20"])
    outcome = work.train(PLACE, None)
    task = work.task(CPU)
    for model, figure in zip(outcome.models, outcome.row["test"]["values"], strict=True):
        with torch.no_grad():
            gram = (z := model(task.x, Propagation(work.graph.adjacency))) @ z.T
        linked, other = (gram[pairs[0], pairs[1]].numpy() for pairs in task.pairs("test"))
        labels = np.arange(len(linked) + len(other)) < len(linked)
        expected = roc_auc_score(labels, np.concatenate([linked, other]))
        assert figure == pytest.approx(expected, abs=1e-4)


def test_a_stopped_run_resumes_to_the_same_result(call, file, monkeypatch) -> None:
    command = ("--task", "links", "--runs", 2, "--set", "schedule.epochs=6", "--device", "cpu")
    whole = only_json(call("train", file, "--out", "whole", *command, "--json"))
    monkeypatch.setitem(NodeRuns.fit.__kwdefaults__, "save_every", 2)
    taken, updates = NodeRuns.take_evaluation, []

    def killed(self, *record):
        taken(self, *record)
        updates.append(1)
        if len(updates) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(NodeRuns, "take_evaluation", killed)
    assert call("train", file, "--out", "again", *command, "--json")[0] != 0
    monkeypatch.setattr(NodeRuns, "take_evaluation", taken)
    again = only_json(call("resume", "again", "--json"))
    assert again["figures"] == whole["figures"]


def test_command_line_trains_reports_and_predicts(call, file) -> None:
    quick = ("--runs", 2, "--set", "schedule.epochs=5", "--device", "cpu")
    found = only_json(
        call("train", file, "--task", "links", "--model", "gcn", *quick, "--out", "run", "--json")
    )
    needed = {"dataset", "model", "recipe", "runs", "metric", "test", "val", "parameters"}
    assert needed | {"seconds", "run_dir"} <= found.keys()
    assert (found["kind"], found["metric"], found["split"]) == ("links", "rocauc", "random-85-5-10")
    assert set(found["test"]) == {"mean", "ci95", "values"}
    page = Path("run/report.html").read_text()
    assert "Predicting links" in page
    assert "ROC-AUC" in page
    reading = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[0])
    assert "val_rocauc" in reading
    Path("pairs.csv").write_text("one,other\nn0,n1\nn0,n70\n")
    _, out, _ = call("predict", "run", "--pairs", "pairs.csv")
    Path("pairs.txt").write_text("n0 n1\nn0 n70\n")  # as lists of edges, without a header
    assert call("predict", "run", "--pairs", "pairs.txt")[1] == out
    Path("named.csv").write_text("rank,to,from\n1,n1,n0\n2,n70,n0\n")
    named = ("--pairs", "named.csv", "--source", "from", "--target", "to")
    assert call("predict", "run", *named)[1] == out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["source"], row["target"]) for row in rows] == [("n0", "n1"), ("n0", "n70")]
    for row in rows:
        assert float(row["probability"]) == pytest.approx(
            1 / (1 + np.exp(-float(row["score"]))), abs=1e-5
        )
    _, out, _ = call("predict", "run", "--top", 5)
    rows = list(csv.DictReader(io.StringIO(out)))
    graph = communities()
    assert len(rows) == 5
    for row in rows:
        ends = (graph.node_ids.index(row[end]) for end in ("source", "target"))
        assert not graph.adjacency[tuple(ends)]
    assert only_json(call("predict", "run", "--json"))["rows"] == 100


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n0,n1\nn2,n3\n", "the first row, n0 and n1, is a pair of nodes, not a header"),
        ("36.0,106.0\n", "there are no pairs below the header 36.0,106.0"),
        ("one\nn1\n", "needs two columns"),
    ],
)
def test_pairs_that_would_be_lost_are_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(GraphError, match=told):
        read_pairs(path, communities().node_ids, "g", Columns())


def test_the_table_at_the_end_has_all_figures(capsys) -> None:
    outcome = work_on(communities()).train(PLACE, None)
    show_rows("links", [outcome.row])
    shown = capsys.readouterr().out
    assert "ROC-AUC" in shown
    assert "AP" in shown


def test_scores_of_pairs_are_means_over_models(call, file) -> None:
    quick = ("--runs", 2, "--set", "schedule.epochs=2", "--device", "cpu", "--json")
    only_json(call("train", file, "--task", "links", *quick, "--out", "run"))
    Path("pairs.csv").write_text("source,target\nn3,n4\nn5,n60\n")
    _, out, _ = call("predict", "run", "--pairs", "pairs.csv")
    found = [float(row["score"]) for row in csv.DictReader(io.StringIO(out))]
    graph, each = communities(), []
    spectrum = decompose(sp.eye_array(72, format="csr") + graph.adjacency)  # with loops
    for number in range(2):
        folder = Path(f"run/model/00{number}")
        prepared = FeaturePreparation.from_json(unsealed(read_json(folder / "features.json")))
        x = torch.as_tensor(prepared.dense(graph))
        with torch.no_grad():
            z = Specformer.from_pretrained(folder)(x, spectrum)
        each.append([float(z[3] @ z[4]), float(z[5] @ z[60])])
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-4, atol=1e-5)


def test_the_likeliest_are_those_of_all_pairs(monkeypatch) -> None:
    graph = communities()
    outputs = torch.randn(3, 72, 5, generator=torch.Generator().manual_seed(0))
    scores = (outputs @ outputs.mT).mean(dim=0).numpy()
    free = [(i, j) for i in range(72) for j in range(i + 1, 72) if not graph.adjacency[i, j]]
    expected = sorted(free, key=lambda pair: -scores[pair])[:40]
    monkeypatch.setattr("specformer.tasks.link_work._MOST", 500)  # rows by sevens
    found = likeliest(outputs, graph, 40)
    assert [tuple(pair) for pair in found.T.tolist()] == expected
    assert likeliest(outputs, graph, 10_000).shape == (2, len(free))


def test_sources_of_all_kinds(tmp_path) -> None:
    graph = communities()
    ends = np.stack(graph.adjacency.nonzero())
    x = torch.as_tensor(np.asarray(graph.x), dtype=torch.float32)
    torch.save(Data(x=x, edge_index=torch.as_tensor(ends)), tmp_path / "groups.pt")  # noqa: TID251
    drawn = nx.Graph(zip(*ends.tolist(), strict=True))
    for node in drawn:
        drawn.nodes[node].update({f"f{i}": float(x[node, i]) for i in range(6)})
    nx.write_graphml(drawn, tmp_path / "groups.graphml")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "edges.csv").write_text(
        "source,target\n" + "".join(f"{i},{j}\n" for i, j in ends.T.tolist() if i < j)
    )
    for name in ("groups.pt", "groups.graphml", "own"):
        result, _ = train_on(tmp_path / name, task="links", model="gcn", assignments=QUICK, runs=1)
        assert result["task"] == "links"


def test_models_are_compared_on_the_same_links(call, file) -> None:
    quick = ("--runs", 2, "--set", "schedule.epochs=5", "--device", "cpu", "--json")
    found = only_json(
        call("compare", file, "--task", "links", "--models", "gcn,mlp", *quick, "--out", "both")
    )
    assert {row["model"] for row in found["rows"]} == {"gcn", "mlp"}
    splits = [
        json.loads(Path(f"both/{model}/result.json").read_text())["links"][0]["splits"]
        for model in ("gcn", "mlp")
    ]
    assert splits[0] == splits[1]


@pytest.mark.parametrize("model", ["specformer", "gcn"])
def test_settings_are_searched_on_validation_links(call, file, model) -> None:
    plan = ("--trials", 3, "--splits", 1, "--finalists", 1, "--runs", 2)
    quick = ("--model", model, "--set", "schedule.epochs=3", "--device", "cpu", "--json")
    found = only_json(call("tune", file, "--task", "links", *plan, *quick, "--out", "search"))
    assert found["metric"] == "rocauc"
    lines = [json.loads(line) for line in Path("search/trials.jsonl").read_text().splitlines()]
    first = next(line for line in lines if (line["trial"], line["splits"]) == (0, 1))
    alone = work_on(communities(), model, ["schedule.epochs=3"], runs=1).train(PLACE, None)
    # The recipe's own settings come first, on the same links.
    assert first["val"]["values"] == pytest.approx(alone.row["val"]["values"])
    taken = ("--recipe", "search/best.yaml", "--model", model, "--runs", 2, "--device", "cpu")
    again = only_json(call("train", file, "--task", "links", *taken, "--json", "--out", "run"))
    assert again["val"]["values"] == pytest.approx(found["val"]["values"])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("train", "zinc", "--task", "links"), "links applies to a single graph; zinc is"),
        (("train", "csbm", "--task", "link"), "choose regression, classification or links"),
        (("train", "csbm", "--task", "links", "--metric", "rmse"), "metric=rmse does not go with"),
        (("train", "csbm", "--task", "links", "--set", "loss=mse"), "would change nothing"),
        (("train", "csbm", "--task", "links", "--set", "split=kfold-5"), "random-85-5-10"),
        (("train", "csbm", "--task", "links", "--set", "out_channels=0"), "at least 1"),
    ],
)
def test_what_cannot_be_learned_is_refused(call, command, told) -> None:
    status, out, err = call(*command)
    assert (status, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


def test_what_cannot_be_predicted_is_refused(call, file) -> None:
    quick = ("--runs", 1, "--set", "schedule.epochs=2", "--model", "gcn", "--json")
    only_json(call("train", file, "--task", "links", *quick, "--out", "run"))
    Path("unknown.csv").write_text("source,target\nn0,nobody\n")
    Path("one.csv").write_text("source\nn0\n")
    for words, told in (
        (("--pairs", "unknown.csv"), "there is no node 'nobody'"),
        (("--pairs", "one.csv"), "needs two columns"),
        (("--pairs", "nowhere.csv"), "there is no such file"),
        (("--top", 0), "at least one is needed"),
        (("--top", 3, "--pairs", "one.csv"), "give one of them"),
    ):
        status, out, err = call("predict", "run", *words)
        assert (status, out) == (2, "")
        assert told in err
    with pytest.raises(ConfigError, match="`--top` applies to runs of --task links only"):
        refuse_foreign("nodes", "run", {"top": 3})


def test_metric_goes_into_the_recipe() -> None:
    job = resolve(Request("csbm", "gcn", task="links", metric="ap"))
    assert (job.kind, job.settings.metric, job.runs) == ("links", "ap", 5)
    with pytest.raises(ConfigError, match="no recipe paper"):
        resolve(Request("cora", task="links", recipe="paper"))


def test_a_graph_without_features_is_learned_by_its_structure() -> None:
    bare = replace(csbm(0.5, num_nodes=90, seed=0), x=None, name="bare")
    work = work_on(with_structural_features(bare))
    degree = np.asarray(work.graph.adjacency.sum(axis=1)).ravel()
    np.testing.assert_allclose(np.asarray(work.graph.x)[:, 0], np.log1p(degree))
