"""The suites on small graphs: contracts of the JSON and the tables, never a time."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.benchmarks.small_molecules import molecules
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.graph_suite import graph_case, our_steps, pyg_gps
from benchmarks.measure import Plan, Setting, measure
from benchmarks.node_suite import PEERS, node_case, our_epochs, plain_nodes
from benchmarks.tables import bench_markdown
from specformer.datasets import csbm
from specformer.errors import ConfigError, SpecformerError
from specformer.training.runs.progress import Silent

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
    result = CliRunner().invoke(app, [*arguments, *options])
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
    assert list(row["peers"]) == list(PEERS)
    assert 0 < row["floor_ms"] < 10
    assert all(math.isfinite(value) for value in row["peers"].values())
    recorded = json.loads(out.read_text())
    assert recorded["schema"] == "specformer.bench/1"
    assert recorded["name"] == "node-small"
    assert recorded["rows"] == found["rows"]
    assert recorded["command"].startswith("python -m benchmarks")
    assert torch.__version__.startswith(recorded["environment"]["packages"]["torch"][:5])
    text = bench_markdown([recorded])
    assert "BernNet, ms" in text
    assert "| small |" in text


def test_graph(graph_file: Path, tmp_path: Path) -> None:
    found = run("graph", "--datasets", str(graph_file), "--cache", str(tmp_path))
    (row,) = found["rows"]
    assert row.keys() >= KEYS
    assert row["ours10_ms"] is None
    assert row["peers"].keys() == {"pyg", "gps in pyg"}
    assert row["floor_ms"] > 0


def test_pair_states(graph_file: Path, tmp_path: Path) -> None:
    case = graph_case(str(graph_file), Setting(CPU, Silent(), cache=tmp_path))
    pairs = replace(case.recipe.model, form="pairs")
    case = replace(case, recipe=replace(case.recipe, model=pairs))
    for candidate in (our_steps, pyg_gps):
        candidate(case, CPU).build()(2)


def test_spectrum(tmp_path: Path) -> None:
    found = run("spectrum", "--datasets", "8x9")
    (row,) = found["rows"]
    assert row.keys() >= KEYS
    assert row["floor_ms"] is None
    assert row["eigenpairs"] == 50
    assert row["ours_ms"] > 0


def test_a_table_for_people() -> None:
    words = ["spectrum", "--datasets", "5x6", "--repeats", "1", "--device", "cpu"]
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

    for place in ("node_suite.measure", "spectrum_suite.measure", "same_suite.same_row"):
        monkeypatch.setattr(f"benchmarks.{place}", measured)
    monkeypatch.setattr("benchmarks.overhead_suite._nodes", measured)
    first = "penn94-sized" if suite == "overhead" else "csbm"
    words = [suite, "--datasets", f"{first},nosuch", "--device", "cpu", "--quiet"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SpecformerError), result.exception
    assert "nosuch" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "unknown suite 'fly'"),
        (["overhead", "--datasets", "cora"], "the overhead tables have squirrel"),
    ],
)
def test_what_is_not_there_is_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def test_candidates_train_the_same_model(node_file: Path) -> None:
    case = node_case(str(node_file), Setting(CPU, Silent()))
    assert case.recipe.k is None
    plain = plain_nodes(case, CPU)
    ten = our_epochs(case, CPU, runs=10)
    assert (plain.runs, ten.runs) == (1, 10)
    found = measure([ten, plain], CPU, Plan(1, 1, 1), memory=False)
    assert list(found) == ["ours", "reference"]
