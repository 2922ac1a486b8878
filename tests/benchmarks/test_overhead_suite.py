"""The paper's overhead tables on small graphs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from tests.benchmarks.small_molecules import molecules
from typer.testing import CliRunner

from benchmarks import overhead_suite as overhead
from benchmarks.__main__ import app
from benchmarks.graph_suite import our_steps
from benchmarks.measure import Plan, measure
from benchmarks.node_suite import our_epochs, peer_epochs
from benchmarks.overhead_suite import (
    PEERS,
    PooledPolynomial,
    bondless_case,
    joined_adjacency,
    polynomial,
    sized_case,
)
from benchmarks.sized_graph import GraphSizes
from benchmarks.tables import bench_grid
from specformer.baselines import Propagation
from specformer.paper.published import OVERHEAD
from specformer.spectrum import decompose_many

CPU = torch.device("cpu")


def test_a_graph_as_large_as_asked_for() -> None:
    case = sized_case(GraphSizes(nodes=300, edges=900, features=40, pairs=20))
    assert case.graph.num_nodes == 300
    assert 700 < case.graph.num_edges <= 900
    assert (case.spectrum.num_eigenpairs, case.spectrum.num_nodes) == (20, 300)
    assert case.recipe.model.space == "hidden"
    candidates = [
        our_epochs(case, CPU),
        *(peer_epochs(name, case, CPU) for name in PEERS),
    ]
    found = measure(candidates, CPU, Plan(1, 1, 1), memory=False)
    assert set(found) == {"ours", *PEERS}


def test_molecules_without_kinds_of_bonds() -> None:
    graphs = molecules()
    case = bondless_case(graphs, decompose_many(graphs))
    assert len(case.batches(case.store)) == 1
    assert case.fresh().config["hidden_channels"] == 64
    candidates = [
        our_steps(case, CPU),
        *(polynomial(name, case, graphs, CPU) for name in PEERS),
    ]
    found = measure(candidates, CPU, Plan(1, 1, 1), memory=False)
    assert set(found) == {"ours", *PEERS}


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
        "paper": OVERHEAD["squirrel"],
    }
    header, (line,) = bench_grid({"rows": [row]})
    shown = dict(zip(header, line, strict=True))
    assert shown["ours, ms"] == "0.500 [7.11]"
    assert shown["GPR-GNN, ms"] == "2.00 [4.65]"
    assert shown["ours, MB"] == "300 [1,845]"
    assert shown["decomposition, s"] == "1.50 [2.71]"


def test_the_command_measures_ours_and_the_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a small graph in place of one as large as Penn94."""
    small = GraphSizes(nodes=300, edges=900, features=40, pairs=20)
    monkeypatch.setattr(overhead, "GraphSizes", lambda: small)
    out = tmp_path / "overhead.json"
    words = ["overhead", "--datasets", "penn94-sized", "--device", "cpu", "--json"]
    words += ["--epochs", "1", "--repeats", "1", "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (row,) = found["rows"]
    assert (found["suite"], row["paper"]) == ("overhead", OVERHEAD["penn94-sized"])
    assert list(row["peers"]) == list(PEERS)
    # A difference of two short runs may be negative on a busy machine.
    assert math.isfinite(row["ours_ms"] + row["reference_ms"])
    assert row["floor_ms"] > 0
    assert row["decomposition_seconds"] is None
    assert json.loads(out.read_text(encoding="utf-8"))["rows"] == found["rows"]
