"""Labels as they are learned: what they say themselves, and what can be asked of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specformer.datasets import csbm
from specformer.errors import GraphError
from specformer.graphs import Columns, Graph, read_graph
from specformer.graphs.node_targets import with_targets
from specformer.tasks.nodes.node_recipe import NodeRecipe

NODES = 60
BASE = csbm(0.5, num_nodes=NODES)
HALF = (np.arange(NODES * 2) % 3 == 0).reshape(NODES, 2).astype(int)


def labelled(y: object, names: tuple[str, ...] | None = None) -> Graph:
    return replace(BASE, y=np.asarray(y), class_names=names)


@pytest.mark.parametrize(
    ("y", "task", "loss", "metric"),
    [
        (np.arange(NODES) % 3, "classification", "ce", "accuracy"),
        (np.arange(NODES) % 3 * 1.0, "classification", "ce", "accuracy"),
        (np.linspace(0, 1, NODES), "regression", "mse", "rmse"),
        (np.arange(NODES), "regression", "mse", "rmse"),
        (np.arange(NODES) % 5 + 1.0, "regression", "mse", "rmse"),
        (HALF, "classification", "bce", "rocauc"),
        (HALF * 1.0, "classification", "bce", "rocauc"),
        (HALF * 2.5, "regression", "mse", "rmse"),
    ],
)
def test_labels_say_what_they_are(y, task, loss, metric):
    recipe = NodeRecipe().settled(with_targets(labelled(y)))
    assert (recipe.task, recipe.loss, recipe.metric) == (task, loss, metric)


@pytest.mark.parametrize(("count", "classes"), [(15, 0), (60, 15)])
def test_a_few_fractions_are_classes_only_if_they_repeat(count: int, classes: int) -> None:
    """Fifteen measured nodes are no fifteen classes of one node each."""
    y = np.where(np.arange(NODES) < count, np.arange(NODES) % 15, -1)
    found = with_targets(labelled(y, tuple(f"{i}.25" for i in range(15))), source="mine/")
    assert found.num_classes == classes


def test_what_is_asked_for_is_done():
    numbers = with_targets(labelled(np.arange(NODES) % 3), "regression")
    assert numbers.num_targets == 1
    assert numbers.num_classes == 0
    assert NodeRecipe(task="regression", metric="mae").settled(numbers).loss == "l1"
    both = with_targets(labelled(HALF), "regression")
    assert NodeRecipe(task="regression").settled(both).loss == "mse"
    named = labelled(np.arange(NODES) % 2, ("10", "12.5"))
    found = with_targets(named, "regression")
    assert found.y is not None
    assert found.y[:2, 0].tolist() == [10.0, 12.5]
    rated = labelled(np.arange(NODES) % 5 + 1.0)
    assert with_targets(rated, "classification").num_classes == 6


def test_one_label_of_several_is_a_class_in_a_file():
    one = np.eye(3, dtype=int)[np.arange(NODES) % 3]
    one[:4] = -1  # not known
    found = with_targets(labelled(one, ("ant", "bee", "cat")), source="mine.pt")
    assert (found.num_classes, found.class_names) == (3, ("ant", "bee", "cat"))
    assert found.y is not None
    assert found.y[:8].tolist() == [-1, -1, -1, -1, 1, 2, 0, 1]
    assert with_targets(labelled(one)).num_targets == 3  # in Python it stays what it is
    assert with_targets(labelled(one), "regression", "mine.pt").num_targets == 3
    assert with_targets(labelled(HALF), source="mine.pt").num_targets == 2


def test_unknown_ones_stay_unknown():
    y = np.arange(NODES) % 2
    y[:5] = -1
    found = with_targets(labelled(y), "regression")
    assert np.isnan(found.y[:5]).all()
    assert found.is_labelled.sum() == NODES - 5
    floats = np.where(y < 0, np.nan, y)
    assert with_targets(labelled(floats)).y.tolist() == y.tolist()
    several = HALF.copy()
    several[0] = -1
    assert np.isnan(with_targets(labelled(several)).y[0]).all()


@pytest.mark.parametrize("days", [("2024-01-31", "2024-02-01"), ("31.01.2024", "1.2.2024")])
def test_dates_are_classes_only_if_asked_for(days):
    dated = labelled(np.arange(NODES) % 2, days)
    with pytest.raises(GraphError, match=f"the labels are dates, such as {days[0]}; name the"):
        with_targets(replace(dated, feature_names=tuple(map(str, range(BASE.num_features)))))
    assert with_targets(dated, "classification").num_classes == 2
    years = labelled(np.arange(NODES) % 2, ("2023", "2024"))
    assert with_targets(years).num_classes == 2


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        (np.full(NODES, -1), None, "no labels to learn"),
        (np.full(NODES, np.nan), None, "no labels to learn"),
        (np.zeros(NODES, int), None, "every label is 0; two classes are needed"),
        (np.full(NODES, 2.5), None, "every known target is the same"),
        (np.linspace(0, 1, NODES), "classification", "a label is 0.0169492; use --task regression"),
        (HALF * 2.5, "classification", "several labels per node must be 0 or 1"),
    ],
)
def test_what_cannot_be_learned_is_named(y, task, message):
    with pytest.raises(GraphError, match=message):
        with_targets(labelled(y), task)


def test_numbers_keep_the_name_of_their_column(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text("id,height,price (€)\na,1,0.5\nb,2,1.5\nc,3,\n")
    graph = with_targets(read_graph(tmp_path, Columns(label="price (€)")), "regression")
    assert graph.class_names == ("price (€)",)
    np.testing.assert_array_equal(graph.y[:, 0], np.float32([0.5, 1.5, np.nan]))
