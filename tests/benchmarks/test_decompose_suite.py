"""Large spectra: cases as they are written, and rows against direct calls."""

from __future__ import annotations

import json
import weakref

import numpy as np
import pytest
import torch
from tests.training.small_graphs import small_set
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.decompose_suite import (
    DecomposeCase,
    DecomposePlan,
    _timed,
    arpack_seconds,
    bench_decompositions,
)
from benchmarks.measure import Setting
from benchmarks.sized_graph import GraphSizes, sized_graph
from benchmarks.tables import bench_grids
from specformer import decompose
from specformer.datasets import csbm
from specformer.errors import ConfigError
from specformer.graphs import write_graph_set, write_npz
from specformer.spectrum import decompose_many
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
SETTING = Setting(CPU, Silent())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write_npz(path / "blocks.npz", csbm(0.5, num_nodes=300, num_features=4, seed=1))
    return path


@pytest.mark.parametrize(
    ("text", "k", "solver"),
    [
        ("cora", 50, "auto"),
        ("cora:7", 7, "auto"),
        ("cora:7+9:chebyshev", (7, 9), "chebyshev"),
        ("cora:all:dense", None, "dense"),
    ],
)
def test_a_case_as_it_is_written(text, k, solver):
    case = DecomposeCase.of(text)
    assert (case.name, case.k, case.solver) == ("cora", k, solver)


def test_no_repeat_finds_the_result_of_the_last_in_memory():
    made, alive = [], []

    def solve():
        alive.append(sum(one() is not None for one in made))
        found = torch.zeros(3)
        made.append(weakref.ref(found))
        return found

    found, seconds, peak = _timed(solve, CPU, DecomposePlan(3), lambda *_: None)
    assert alive == [0, 0, 0]
    assert found is made[-1]()
    assert seconds >= 0
    assert peak is None


@pytest.mark.parametrize("pairs", ["few", "0", "3+", "3+0", "1+2+3"])
def test_wrong_pairs_are_told_before_anything_runs(pairs):
    with pytest.raises(ConfigError, match="give eigenpairs as"):
        bench_decompositions(["cora", f"cora:{pairs}"], SETTING, DecomposePlan())


def test_a_row_is_that_of_the_decomposition(folder):
    source = str(folder / "blocks.npz")
    cases = [f"{source}:6+4:dense", f"{source}:all"]
    rows = bench_decompositions(cases, SETTING, DecomposePlan(2))
    ends, whole = rows
    found = decompose(folder / "blocks.npz", k=(6, 4), solver="dense")
    assert ends["eigenpairs"] == found.num_eigenpairs
    assert ends["residual"] == found.report.max_residual
    assert ends["solver"] == "dense"
    assert whole["eigenpairs"] == whole["nodes"] == 300
    assert ends["arpack_seconds"] == whole["arpack_seconds"] > 0  # once a graph
    header, lines = bench_grids({"suite": "decompose", "rows": rows})[0]
    assert dict(zip(header, lines[1], strict=True))["asked"] == "all"


def test_arpack_is_stopped_in_time():
    assert arpack_seconds(csbm(0.5, num_nodes=300, num_features=4), limit=0.0) is None
    sizes = {"nodes": 9, "edges": 9, "asked": "5", "eigenpairs": 5, "case": "a", "solver": "dense"}
    sizes["graphs"] = 1
    found = {"seconds": 1.0, "mb": None, "residual": 0.0, "orthogonality": 0.0}
    arpack = {"arpack_pairs": 20, "arpack_seconds": None, "arpack_limit": 60.0}
    grid = bench_grids({"suite": "decompose", "rows": [{**sizes, **found, **arpack}]})[0]
    assert grid[1][0][-1] == "> 60"


def test_a_set_of_graphs_is_decomposed_as_one(tmp_path):
    graphs = small_set(40, seed=3)
    write_graph_set(tmp_path / "few.npz", graphs)
    source = str(tmp_path / "few.npz")
    (row,) = bench_decompositions([source], SETTING, DecomposePlan(2))
    found = decompose_many(graphs)
    assert row["graphs"] == 40
    assert row["eigenpairs"] == row["nodes"] == len(found.eigenvalues)
    assert row["edges"] == sum(graphs.num_edges)
    assert row["residual"] == found.report.max_residual
    header, lines = bench_grids({"suite": "decompose", "rows": [row]})[0]
    shown = dict(zip(header, lines[0], strict=True))
    assert shown["graph"] == "few, 40 graphs"
    assert shown["ARPACK, 20 pairs, s"] == "–"


def test_a_sized_graph_is_always_the_same():
    sizes = GraphSizes(nodes=300, edges=900, features=40)
    one, other = sized_graph(sizes), sized_graph(sizes)
    assert (one.adjacency != other.adjacency).nnz == 0
    assert (one.num_nodes, one.x.shape[1]) == (300, 40)
    assert one.num_edges <= 900
    assert np.array_equal(one.y, other.y)


def test_on_the_command_line(folder, tmp_path):
    out = tmp_path / "decompose.json"
    source = f"{folder / 'blocks.npz'}:5"
    arguments = ["decompose", "--datasets", source, "--device", "cpu", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"][0]["asked"] == "5"
    assert json.loads(out.read_text(encoding="utf-8"))["suite"] == "decompose"
    refused = CliRunner().invoke(app, ["decompose", "--epochs", "3"])
    assert "use --repeats" in str(refused.exception)
