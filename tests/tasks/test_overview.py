"""What was read: figures counted by hand, and the words for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tests.tasks.jobs import train_source

from specformer.datasets import csbm
from specformer.errors import SpectrumError
from specformer.graphs import Columns, Graph, GraphSet, as_graph, write_npz
from specformer.tasks.graphs.graph_recipe import GraphRecipe
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.overview import in_words, of_graphs, of_nodes, warnings_of
from specformer.tasks.train import inspect_source

#: A triangle, an edge and a node alone.
ENDS = np.array([[0, 1, 2, 3], [1, 2, 0, 4]])


def graph(**more) -> Graph:
    one_way = csr_array((np.ones(4), ENDS), shape=(6, 6))
    return Graph(csr_array(one_way + one_way.T), name="tiny", **more)


def test_a_graph_by_hand() -> None:
    found = of_nodes(
        graph(x=np.eye(6, 4), y=np.array([0, 1, 1, 1, -1, 0]), class_names=("red", "blue")),
        NodeRecipe(),
        [],
    )
    assert found == {
        "kind": "nodes", "name": "tiny", "nodes": 6, "edges": 4, "components": 3,
        "isolated_nodes": 1, "weighted": False, "features": 4,
        "classes": {"red": 2, "blue": 3}, "unlabelled": 1,
    }  # fmt: skip
    assert in_words(found) == (
        "tiny: 6 nodes, 4 edges, 3 components (1 node without edges), 4 features\n"
        "  2 classes: red (2), blue (3); 1 node without a label"
    )


def test_labels_that_are_unknown_or_numbers_by_hand() -> None:
    unknown = of_nodes(graph(y=np.full(6, -1)), NodeRecipe(), [])
    assert in_words(unknown).splitlines()[1:] == ["  no node has a label"]
    numbers = graph(y=np.array([0.5, 2.5, np.nan, 1.5, 1.5, 1.5]))
    assert in_words(of_nodes(numbers, NodeRecipe(), [])).splitlines()[1] == (
        "  target: known of 5 nodes, from 0.5 to 2.5, mean 1.5"
    )


def test_many_classes_are_told_by_the_largest() -> None:
    y = np.append(np.arange(14), [13, 13])
    many = Graph(csr_array((16, 16)), x=np.ones((16, 1)), y=y)
    told = in_words(of_nodes(many, NodeRecipe(), []))
    assert "14 classes: 13 (3), 0 (1)" in told
    assert told.endswith(" and 4 more")


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({}, "the graph has no labels"),
        ({"y": np.array([0, 1, -1, -1, -1, -1])}, "too few to split"),
    ],
)
def test_what_train_would_refuse_is_told(labels, problem, tmp_path: Path) -> None:
    write_npz(tmp_path / "tiny.npz", graph(x=np.eye(6), **labels))
    found = inspect_source(str(tmp_path / "tiny.npz"))
    assert problem in found["problem"]
    assert found["nodes"] == 6
    assert in_words(found).splitlines()[-1].startswith("  train would refuse it: ")


@pytest.mark.parametrize(
    ("targets", "why"),
    [
        ("0.5 1.0 2.5", "test part of 1 graph says almost nothing: another draw may give quite"),
        # Wilson's interval of a half of 2: 0.5 ± 1.96 / 2.92 · (0.125 + 0.240)^½ = 0.5 ± 0.405.
        ("0 0 0 1 1 1", "test part of 2 graphs says almost nothing: an accuracy of 50% would be "
         "uncertain by ±41 points"),
    ],
)  # fmt: skip
def test_a_test_part_that_tells_little_is_warned_of(targets: str, why: str, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    file = tmp_path / "few.csv"
    rows = (f"{'C' * n},{value}\n" for n, value in enumerate(targets.split(), start=1))
    file.write_text("smiles,y\n" + "".join(rows))
    found = inspect_source(str(file))
    (told,) = found["warnings"]
    assert why in told
    assert f"  warning: {told}" in in_words(found).splitlines()


@pytest.mark.parametrize(("weight", "warned"), [(3000.0, True), (900.0, False)])
def test_giant_weights_are_warned_of(weight: float, warned: bool) -> None:
    weighted = as_graph(ENDS, edge_weight=[1.0, 1.0, 1.0, weight])
    told = warnings_of(of_nodes(weighted, NodeRecipe(), []))
    assert [" the largest weight is 3,000 times the median" in each for each in told] == (
        [True] if warned else []
    )


def test_copies_of_molecules_are_warned_of(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    file = tmp_path / "mine.csv"
    rows = [f"{'C' * n},{n / 7}\n" for n in range(1, 231)]
    file.write_text("smiles,logS\n" + "".join(rows) + "OC,1\nCO,1\nCO,2\nOC,\nCO,1\n")
    assert inspect_source(str(file))["warnings"] == [
        "mine: 4 of 235 molecules repeat earlier ones, 1 with other targets; what is tested may "
        "have been learned. --set split=scaffold keeps copies together."
    ]


def test_a_split_that_keeps_copies_together_is_not_warned_of() -> None:
    found = of_graphs(GraphSet([1], [0], [], y=[1.0]), GraphRecipe(task="regression"), [])
    copied = {**found, "copies": 3, "conflicting": 0}
    for protocol, warned in (("random-80-10-10", 1), ("scaffold", 0), ("resampled-scaffold", 0)):
        split = {"protocol": protocol, "test": 99, "tested": 99}
        assert len(warnings_of({**copied, "split": split})) == warned


def test_large_targets_are_written_out(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    file = tmp_path / "mine.csv"
    file.write_text("smiles,y\n" + "".join(f"{'C' * n},{n * 1000}.5\n" for n in range(1, 31)))
    assert "from 1000 to 30,000, mean 15,500" in in_words(inspect_source(str(file)))


@pytest.mark.parametrize(("atoms", "share"), [(1500, 99), (299, None)])
def test_a_giant_is_warned_of(atoms: int, share: int | None) -> None:
    sizes = np.append(np.full(200, 10), atoms)  # 200 · 10² pairs of nodes beside atoms²
    many = GraphSet(sizes, np.zeros(201, int), [], y=np.arange(201.0))
    told = warnings_of(of_graphs(many, GraphRecipe(task="regression"), []))
    assert [f"about {share}% of the time" in each for each in told] == ([True] if share else [])


def test_molecules(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    file = tmp_path / "mine.csv"
    file.write_text("smiles,logS\n" + "".join(f"{'C' * n},{n / 2}\n" for n in range(1, 31)))
    found = inspect_source(str(file))
    assert (found["graphs"], found["nodes"], found["edges"]) == (30, 465, 435)
    assert (found["smallest"], found["largest"]) == (1, 30)
    assert found["targets"] == {"logS": {"known": 30, "lowest": 0.5, "mean": 7.75, "highest": 15.0}}
    parts = {"train": 24, "val": 3, "test": 3}
    assert found["split"] == {
        "protocol": "random-80-10-10", "runs": 5, **parts, "tested": found["split"]["tested"],
    }  # fmt: skip
    assert 3 < found["split"]["tested"] <= 15
    assert in_words(found).splitlines()[:3] == [
        "mine: 30 molecules, 465 atoms (1 to 30 in a molecule), 435 bonds",
        "  target logS: known of 30 molecules, from 0.5 to 15, mean 7.75",
        "  split: random-80-10-10, 24 training, 3 validation, 3 test; 5 runs",
    ]


def test_numbers_that_look_like_classes_are_named(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    file = tmp_path / "mine.csv"
    rows = (f"{'C' * n},{n % 3},{n % 2},{n / 7}\n" for n in range(1, 41))
    file.write_text("smiles,grade,active,logS\n" + "".join(rows))
    grade, active, *_ = inspect_source(str(file))["warnings"]
    assert grade == (
        "mine: target grade has only 3 different values, which are learned as numbers; --targets "
        "grade --task classification learns classes."
    )
    assert "target active has only 2 different values" in active
    alone = inspect_source(str(file), columns=Columns(targets=("grade",)))["warnings"]
    assert alone[0].endswith("learned as numbers; --task classification learns classes.")


def test_whole_numbers_without_a_gap_look_like_classes_too() -> None:
    def told(y: np.ndarray) -> list[str]:
        many = GraphSet(np.full(60, 10), np.zeros(60, int), [], y=y)
        return warnings_of(of_graphs(many, GraphRecipe(task="regression"), []))

    grades = np.arange(60) % 6 + 1
    assert told(grades) == [
        "graphs: target 0 has only 6 different values, which are learned as numbers; --task "
        "classification learns classes."
    ]
    assert told(2 * grades) == told(grades + 0.5) == told(np.arange(60)) == []


@pytest.mark.parametrize(("most", "warned"), [(3000.0, True), (900.0, False)])
def test_targets_of_very_different_sizes_are_warned_of(most: float, warned: bool) -> None:
    y = np.where(np.arange(60) == 7, most, 1.0)
    many = GraphSet(np.full(60, 10), np.zeros(60, int), [], y=y + np.arange(60) % 2 / 1e6)
    told = warnings_of(of_graphs(many, GraphRecipe(task="regression"), []))
    assert ["target 0 reaches 3,000 times its median" in each for each in told] == (
        [True] if warned else []
    )


def test_giants_beside_zeros_and_sizes_that_differ_are_warned_of() -> None:
    def told(
        y: np.ndarray, task: Literal["regression", "classification"] = "regression", **more: Any
    ) -> list[str]:
        many = GraphSet(np.full(60, 10), np.zeros(60, int), [], y=y, **more)
        return warnings_of(of_graphs(many, GraphRecipe(task=task, metric="accuracy"), []))

    y = np.arange(60) / 7.0  # from 0
    y[7] = 5e4
    (giant,) = told(y)
    assert "target 0 reaches 11," in giant
    (sizes,) = told(np.stack([np.arange(60) / 7, np.arange(60) * 1e5 / 7], axis=1))
    assert "target 1 has a range of 8.43e+05 and target 0 of 8.43" in sizes
    (most,) = told((np.arange(60) == 3) * 1.0, "classification", class_names=("no", "yes"))
    assert most.startswith("graphs: 98% of the labels are 'no'")


def test_many_whole_numbers_as_classes_are_named() -> None:
    pairs = as_graph(np.arange(198).reshape(2, -1), num_nodes=198).adjacency
    ages = Graph(pairs, y=np.arange(198) % 66, class_names=tuple(map(str, range(20, 86))))
    (told,) = warnings_of(of_nodes(ages, NodeRecipe(), []))
    assert told.startswith("graph: 66 whole numbers are learned as classes")


def test_what_to_do_with_a_graph_that_is_too_large_to_decompose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npz(tmp_path / "large.npz", csbm(0.5, num_nodes=400))
    assert "problem" not in inspect_source(str(tmp_path / "large.npz"))
    monkeypatch.setattr("specformer.spectrum.solvers.dense.CPU_LIMIT", 399)
    monkeypatch.setattr("specformer.tasks.train.choose_device", lambda _: torch.device("cpu"))
    found = inspect_source(str(tmp_path / "large.npz"))
    told = found["problem"]
    assert told.startswith("LAPACK on the CPU takes at most 399 nodes, the graph has 400")
    assert told.endswith("--set spectrum=density none of it.")
    assert "estimate" not in found
    assert in_words(found).endswith(f"  train would refuse it: {told}")
    with pytest.raises(SpectrumError, match=re.escape(told)):
        train_source(str(tmp_path / "large.npz"), runs=1)


def test_a_graph_without_edges_is_warned_of() -> None:
    lonely = as_graph(np.empty((2, 0), int), num_nodes=3)
    (told,) = warnings_of(of_nodes(lonely, NodeRecipe(), []))
    assert told.startswith("graph: there are no edges; all is learned from features")


def test_a_class_that_nearly_all_nodes_have_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(
        f"{n},{n + 1}\n" for n in range(99)))  # fmt: skip
    (tmp_path / "nodes.csv").write_text("id,age,label\n" + "".join(
        f"{n},{n % 7},{'rare' if n == 3 else 'usual'}\n" for n in range(100)))  # fmt: skip
    found = inspect_source(str(tmp_path))
    assert found["split"] == {
        "protocol": "stratified-60-20-20", "runs": 10, "train": 60, "val": 20, "test": 20,
        "tested": found["split"]["tested"],
    }  # fmt: skip
    assert found["warnings"] == [
        f"{tmp_path.name}: 99% of the labels are 'usual', and a model that always says so has that "
        "accuracy; --metric f1 counts all classes alike."
    ]
    assert "no test node is of class 'rare', so that it is not tested" in caplog.text


def test_words_with_line_breaks_keep_to_their_line() -> None:
    found = of_nodes(graph(y=np.arange(6) % 2, class_names=("a\nb", "c")), NodeRecipe(), [])
    assert in_words(found).splitlines()[1:] == ["  2 classes: a b (3), c (3)"]
