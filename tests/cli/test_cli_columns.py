"""Options that say which column is what: through training, going on, predicting and searching."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import networkx as nx
import pytest
import yaml

from specformer.datasets import csbm

QUICK = ["--model", "gcn", "--runs", 1, "--device", "cpu", "--set", "epochs=4", "--quiet"]


def write_graphml(path: Path, *, seed: int = 0, labels: bool = True) -> None:
    generated = csbm(0.6, num_nodes=60, num_features=3, seed=seed)
    graph = nx.from_scipy_sparse_array(generated.adjacency)
    for node, row in enumerate(generated.x.tolist()):
        own = {"club": f"c{generated.y[node]}"} if labels else {}
        graph.add_node(node, noise=float(node), **dict(zip("abc", row, strict=True)), **own)
    nx.write_graphml(graph, path)


def test_a_graph_of_another_program_from_the_file_to_predictions(call, here: Path) -> None:
    write_graphml(here / "clubs.graphml")
    write_graphml(here / "others.graphml", seed=1, labels=False)
    said = ["--label", "club", "--features", "a,b"]
    status, _, err = call("train", "clubs.graphml", *QUICK, "--out", "run")
    assert status == 2
    assert err == (
        "Error: clubs.graphml: the graph has no labels to learn from; name the column that holds "
        "them with --label: 'noise', 'a', 'b', 'c', 'club'.\n"
    )
    assert call("train", "clubs.graphml", *said, *QUICK, "--out", "run")[0] == 0
    config = yaml.safe_load((here / "run" / "config.yaml").read_text())
    assert config["columns"] == {"label": "club", "features": ["a", "b"]}
    for words in ((), ("--graph", "others.graphml")):
        status, out, err = call("predict", "run", *words)
        assert status == 0, err
        rows = list(csv.DictReader(io.StringIO(out)))
        assert list(rows[0]) == ["id", "prediction", "p(c0)", "p(c1)"]
        assert [row["id"] for row in rows] == [str(node) for node in range(60)]


def test_a_run_that_goes_on_knows_its_columns(call, here: Path) -> None:
    write_graphml(here / "clubs.graphml")
    assert call("train", "clubs.graphml", "--label", "club", *QUICK, "--out", "run")[0] == 0
    for name in ("result.json", "report.html", "manifest.json"):
        (here / "run" / name).unlink(missing_ok=True)
    status, _, err = call("resume", "run", "--from-scratch")
    assert status == 0, err
    config = here / "run" / "config.yaml"
    written = yaml.safe_load(config.read_text())
    written["columns"]["label"] = ["club"]
    config.write_text(yaml.safe_dump({k: v for k, v in written.items() if k != "checksum"}))
    (here / "run" / "result.json").unlink()
    status, _, err = call("resume", "run")
    assert (status, err.partition("damaged")[2]) == (2, " (columns: label is ['club']).\n")


def test_a_search_says_how_to_train(call, here: Path) -> None:
    write_graphml(here / "clubs.graphml")
    quick = ["--trials", 1, "--splits", 1, "--finalists", 1, "--model", "gcn", "--device", "cpu"]
    status, out, _ = call("tune", "clubs.graphml", "--label", "club", *quick, *QUICK[4:])
    assert status == 0
    assert "--recipe runs/tune-clubs-gcn/best.yaml --label club" in " ".join(out.split())


def test_targets_are_chosen_by_name(call, here: Path) -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    rows = [f"{'C' * (number % 6 + 1)}O,{number % 5},{number % 7}" for number in range(40)]
    (here / "mine.csv").write_text("\n".join(["drug,a,b", *rows]))
    said = ["--smiles-column", "drug", "--targets", "b"]
    status, out, _ = call("inspect", "mine.csv", *said)
    assert status == 0
    assert "target b: known of 40 molecules" in out
    assert "target a" not in out
    quick = ["--set", "epochs=1", "--set", "model.hidden_channels=8", "--device", "cpu", "-q"]
    assert call("train", "mine.csv", *said, *quick, "--out", "run")[0] == 0
    config = yaml.safe_load((here / "run" / "config.yaml").read_text())
    assert (config["columns"], config["settings"]["targets"]) == ({"smiles": "drug"}, ["b"])
    status, out, _ = call("predict", "run")
    assert (status, len(out.splitlines())) == (0, 41)
    status, _, err = call("train", "mine.csv", *said, "--set", "targets=[a]")
    assert err.endswith("Error: --targets and --set targets=…: give one of them.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cora", "--label", "x"], "--label: applies to a table of your own; cora has no columns"),
        (["own.csv", "--label", "x"], "`--label` applies to single graphs only; own.csv is a set"),
        (["photographs", "--id", "x"], "`--id` applies to single graphs and molecules only; photo"),
        (["clubs.graphml", "--targets", "x"], "`--targets` applies to molecules only; clubs"),
        (["club", "--targets", "x"], "`--targets` applies to molecules only; club is a single"),
        (["club", "--smiles-column", "x"], "`--smiles-column` applies to molecules only; club is"),
        (["own.csv", "--targets", ","], "--targets: name at least one column."),
    ],
)
def test_options_that_do_not_apply_are_refused(words, message, call, here: Path) -> None:
    (here / "own.csv").write_text("smiles,y\nCCO,1\n")
    write_graphml(here / "clubs.graphml")
    (here / "club").mkdir()
    (here / "club" / "edges.csv").write_text("source,target\na,b\n")
    status, _, err = call("train", *words)
    assert status == 2
    assert f"Error: {message}" in err
