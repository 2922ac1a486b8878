"""The suites on small graphs: contracts of the JSON and the tables, never a time."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from specformer.baselines import Propagation
from specformer.benchmarks import graph_suite, node_suite
from specformer.benchmarks.measure import Plan, measure
from specformer.benchmarks.overhead import (
    PAPER,
    PEERS,
    PooledPolynomial,
    Sizes,
    bondless_case,
    joined_adjacency,
    polynomial,
    sized_case,
)
from specformer.cli import app
from specformer.datasets import csbm
from specformer.errors import ConfigError, SpecformerError
from specformer.graphs import GraphSet
from specformer.paper.bench_tables import bench_grid, bench_markdown
from specformer.spectrum import decompose_many

CPU = torch.device("cpu")
KEYS = {
    "case",
    "ours_ms",
    "ours10_ms",
    "reference_ms",
    "ratio",
    "ours_mb",
    "reference_mb",
    "floor_ms",
    "peers",
}


@pytest.fixture(scope="module")
def node_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = csbm(0.4, num_nodes=40, num_features=6, seed=0)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    ends = np.stack(graph.adjacency.nonzero())
    np.savez(path, edge_index=ends, num_nodes=40, directed=False, x=graph.x, y=graph.y)
    return path


def molecules() -> GraphSet:
    graphs = [nx.path_graph(3), nx.cycle_graph(5), nx.star_graph(3), nx.path_graph(2)] * 5
    random = np.random.default_rng(0)
    edges = [np.array(graph.edges).T for graph in graphs]
    nodes = [graph.number_of_nodes() for graph in graphs]
    return GraphSet(
        nodes,
        [each.shape[1] for each in edges],
        np.concatenate(edges, axis=1),
        node_feat=random.integers(4, size=(sum(nodes), 1)),
        edge_feat=random.integers(3, size=(sum(each.shape[1] for each in edges), 1)),
        y=random.normal(size=(len(graphs), 1)),
    )


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graphs = molecules()
    path = tmp_path_factory.mktemp("data") / "molecules.npz"
    np.savez(
        path,
        num_nodes_list=graphs.num_nodes,
        num_edges_list=graphs.num_edges,
        edge_index=graphs.edge_index,
        node_feat=graphs.node_feat,
        edge_feat=graphs.edge_feat,
        bonds_once=True,
        y=graphs.y,
    )
    return path


def run(*arguments: str) -> dict[str, Any]:
    options = ["--device", "cpu", "--epochs", "2", "--repeats", "1", "--json"]
    result = CliRunner().invoke(app, ["bench", *arguments, *options])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_node(node_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench" / "node-small.json"
    arguments = ["--datasets", str(node_file), "--cache", str(tmp_path / "cache")]
    found = run("node", *arguments, "--out", str(out))
    assert found["suite"] == "node"
    assert found["threads"] == torch.get_num_threads()
    assert found["plan"] == {"epochs": 2, "repeats": 1, "warmup": 1}
    (row,) = found["rows"]
    assert row.keys() >= KEYS
    assert row["nodes"] == row["eigenpairs"] == 40
    assert list(row["peers"]) == list(node_suite.PEERS)
    assert 0 < row["floor_ms"] < 10
    assert all(math.isfinite(value) for value in row["peers"].values())
    recorded = json.loads(out.read_text())
    assert recorded["schema"] == "specformer.bench/1"
    assert recorded["name"] == "node-small"
    assert recorded["rows"] == found["rows"]
    assert recorded["command"].startswith("specformer")
    assert torch.__version__.startswith(recorded["environment"]["packages"]["torch"][:5])
    text = bench_markdown([recorded])
    assert "BernNet, ms" in text
    assert "| small |" in text


def test_graph(graph_file: Path, tmp_path: Path) -> None:
    found = run("graph", "--datasets", str(graph_file), "--cache", str(tmp_path))
    (row,) = found["rows"]
    assert row.keys() >= KEYS
    assert row["ours10_ms"] is None
    assert row["peers"] == {}
    assert row["floor_ms"] > 0


def test_spectrum(tmp_path: Path) -> None:
    found = run("spectrum", "--datasets", "8x9")
    (row,) = found["rows"]
    assert row.keys() >= KEYS
    assert row["floor_ms"] is None
    assert row["eigenpairs"] == 50
    assert row["ours_ms"] > 0


def test_a_table_for_people() -> None:
    words = ["bench", "spectrum", "--datasets", "5x6", "--repeats", "1", "--device", "cpu"]
    result = CliRunner().invoke(app, [*words, "--quiet"])
    assert result.exit_code == 0, result.output
    assert "grid-5x6" in result.stdout
    assert "ARPACK, ms" in result.stdout


@pytest.mark.parametrize("suite", ["node", "same", "spectrum", "overhead"])
def test_a_case_that_is_not_there_is_told_before_any_is_measured(
    suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: Any, **__: Any) -> None:
        raise AssertionError("measured")

    for place in ("node_suite.measure", "spectrum_suite.measure", "overhead._nodes"):
        monkeypatch.setattr(f"specformer.benchmarks.{place}", measured)
    monkeypatch.setattr("specformer.benchmarks.same_suite.same_row", measured)
    first = "penn94-sized" if suite == "overhead" else "csbm"
    words = ["bench", suite, "--datasets", f"{first},nosuch", "--device", "cpu", "--quiet"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SpecformerError), result.exception
    assert "nosuch" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "unknown suite 'fly'"),
        (["overhead", "--datasets", "cora"], "the overhead suite has squirrel"),
    ],
)
def test_what_is_not_there_is_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments, "--device", "cpu"])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def test_contestants_train_the_same_model(node_file: Path) -> None:
    case = node_suite.node_case(str(node_file), device=CPU)
    assert case.recipe.k is None
    plain = node_suite.reference(case, CPU)
    ten = node_suite.ours(case, CPU, runs=10)
    assert (plain.runs, ten.runs) == (1, 10)
    found = measure([ten, plain], CPU, Plan(1, 1, 1), memory=False)
    assert list(found) == ["ours", "reference"]


def test_a_graph_as_large_as_asked_for() -> None:
    case = sized_case(Sizes(nodes=300, edges=900, features=40, pairs=20))
    assert case.graph.num_nodes == 300
    assert 700 < case.graph.num_edges <= 900
    assert (case.spectrum.num_eigenpairs, case.spectrum.num_nodes) == (20, 300)
    assert case.recipe.model.space == "hidden"
    contestants = [
        node_suite.ours(case, CPU),
        node_suite.reference(case, CPU),
        *(node_suite.peer(name, case, CPU) for name in PEERS),
    ]
    found = measure(contestants, CPU, Plan(1, 1, 1), memory=False)
    assert set(found) == {"ours", "reference", *PEERS}


def test_molecules_without_kinds_of_bonds() -> None:
    graphs = molecules()
    case = bondless_case(graphs, decompose_many(graphs))
    assert len(case.batches(case.store)) == 1
    assert case.fresh().config["hidden_channels"] == 64
    contestants = [
        graph_suite.ours(case, CPU),
        graph_suite.reference(case, CPU),
        *(polynomial(name, case, graphs, CPU) for name in PEERS),
    ]
    found = measure(contestants, CPU, Plan(1, 1, 1), memory=False)
    assert set(found) == {"ours", "reference", *PEERS}


def test_many_graphs_as_one_of_many_pieces() -> None:
    graphs = molecules().subset([0, 1, 2])
    expected = nx.disjoint_union_all([nx.path_graph(3), nx.cycle_graph(5), nx.star_graph(3)])
    order = sorted(expected.nodes)
    np.testing.assert_array_equal(
        joined_adjacency(graphs).toarray(), nx.to_numpy_array(expected, nodelist=order)
    )


def test_pooling_is_the_mean_over_each_graph() -> None:
    graphs = molecules().subset([0, 1])
    model = PooledPolynomial("gprgnn", 4, 1).double()
    propagation = Propagation(joined_adjacency(graphs), dtype=torch.float64)
    x = torch.eye(4, dtype=torch.float64)[torch.as_tensor(graphs.node_feat[:, 0].astype(int))]
    graph, sizes = torch.tensor([0] * 3 + [1] * 5), torch.tensor([3, 5])
    out = model(x, propagation, graph, sizes)
    nodes = model.filter(x, propagation)
    expected = model.readout(torch.stack([nodes[:3].mean(dim=0), nodes[3:].mean(dim=0)]))
    torch.testing.assert_close(out, expected)


def test_the_papers_figures_stand_in_brackets() -> None:
    row = {
        "case": "squirrel",
        "ours_ms": 0.5,
        "ours10_ms": None,
        "reference_ms": 9.0,
        "ratio": 18.0,
        "ours_mb": 300.0,
        "reference_mb": 900.0,
        "floor_ms": 0.1,
        "peers": {"gprgnn": 2.0, "bernnet": 3.0},
        "decomposition_seconds": 1.5,
        "paper": PAPER["squirrel"],
    }
    header, (line,) = bench_grid({"rows": [row]})
    shown = dict(zip(header, line, strict=True))
    assert shown["ours, ms"] == "0.500 [7.11]"
    assert shown["GPR-GNN, ms"] == "2.00 [4.65]"
    assert shown["ours, MB"] == "300 [1,845]"
    assert shown["decomposition, s"] == "1.50 [2.71]"
