"""Features as models take them, against the rule written out row by row."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from specformer.datasets import (
    NODE_SETS,
    FeaturePreparation,
    csbm,
    dense_features,
    node_graph,
    prepare_features,
    random_60_20_20,
    sparse_features,
)
from specformer.datasets.features import preparation_lines
from specformer.errors import ConfigError, GraphError, RunError
from specformer.graphs import Graph

ROWS = [[1.0, 3.0, 0.0], [0.5, 0.0, 0.25], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
NO_EDGES = sp.csr_array((4, 4))


@pytest.mark.parametrize(("scaling", "scaled"), [("rows", True), ("none", False)])
def test_a_row_that_sums_to_more_than_one_is_divided_by_its_sum(scaling, scaled):
    expected = [[x / max(sum(row), 1.0) for x in row] if scaled else row for row in ROWS]
    kept = Graph(NO_EDGES, x=np.array(ROWS)), Graph(NO_EDGES, x=sp.csr_array(ROWS))
    for graph in kept:
        found = dense_features(graph, scaling)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-7)
    sparse = sparse_features(kept[1], scaling)
    assert sparse.nnz == 5
    np.testing.assert_allclose(sparse.toarray(), expected, rtol=1e-7)


def table(rng: np.random.Generator, nodes: int = 60) -> Graph:
    """Numbers with gaps, words, zeros and ones."""
    x = rng.normal(50, 9, (nodes, 2))
    x[rng.random(nodes) < 0.1, 0] = np.nan
    columns = [x, rng.integers(3, size=(nodes, 1)), rng.integers(2, size=(nodes, 1))]
    return Graph(
        sp.csr_array((nodes, nodes)),
        x=np.hstack(columns),
        feature_names=("age", "score", "city", "member"),
        feature_words={"city": ("Graz", "Linz", "Wels")},
    )


def test_nothing_but_the_training_nodes_is_learned_from():
    rng = np.random.default_rng(0)
    graph, train = table(rng), np.arange(60) < 36
    fitted = FeaturePreparation.fit(graph, train)
    x = graph.x.copy()
    x[~train] = [[1e9, np.nan, 0, 0]]
    assert FeaturePreparation.fit(replace(graph, x=x), train) == fitted
    x[0, 1] += 1
    assert FeaturePreparation.fit(replace(graph, x=x), train) != fitted
    splits = [random_60_20_20(np.arange(60) % 2, seed) for seed in range(3)]
    own = prepare_features(graph, [*splits, splits[0]])
    assert own[0] == own[3] != own[1]
    for split, prepared in zip(splits, own, strict=False):
        score = graph.x[split.train, 1]
        assert prepared.columns[1].centre == pytest.approx(score.mean(), rel=1e-6)


def test_columns_are_prepared_side_by_side_and_found_by_name():
    graph, train = table(np.random.default_rng(0)), np.arange(60) < 36
    fitted = FeaturePreparation.fit(graph, train)
    assert [column.how for column in fitted.columns] == ["standard", "standard", "category", "none"]
    x = fitted.dense(graph)
    assert (x.shape, x.dtype, fitted.width) == ((60, 7), np.float32, 7)
    np.testing.assert_array_equal(x[:, 3:6].argmax(axis=1), graph.x[:, 2])
    turned = replace(graph, x=graph.x[:, ::-1], feature_names=graph.feature_names[::-1])
    np.testing.assert_array_equal(fitted.dense(turned), x)
    wider = replace(fitted, width=9)  # as another split's is
    np.testing.assert_array_equal(wider.dense(graph), np.pad(x, ((0, 0), (0, 2))))
    assert FeaturePreparation.from_json(json.loads(json.dumps(fitted.to_json()))) == fitted
    with pytest.raises(RunError, match="not a preparation of features"):
        FeaturePreparation.from_json({"scaling": "columns"})


def test_splits_share_one_width():
    """A word that is rare in some splits alone makes a column of its own in the others."""
    graph = table(np.random.default_rng(0))
    x = graph.x.copy()
    x[:, 2] = 0
    x[:3, 2], x[3:, 2] = 1, np.arange(57) % 2 * 2
    splits = [random_60_20_20(np.arange(60) % 2, seed) for seed in range(8)]
    own = prepare_features(replace(graph, x=x), splits)
    widths = {sum(column.width for column in each.columns) for each in own}
    assert len(widths) > 1
    assert {each.width for each in own} == {max(widths)}
    assert {each.dense(replace(graph, x=x)).shape for each in own} == {(60, max(widths))}


def test_bags_of_words_are_divided_by_their_sums_and_other_tables_are_not():
    rng, train = np.random.default_rng(0), np.arange(50) < 30
    words = (rng.random((50, 40)) < 0.2).astype(float)

    def scaling(x):
        return FeaturePreparation.fit(Graph(sp.csr_array((50, 50)), x=x), train).scaling

    assert scaling(words) == scaling(sp.csr_array(words)) == "rows"
    assert scaling(sp.csr_array(words[:, :5])) == "rows"  # stored as words are
    assert scaling(words[:, :5]) == "columns"
    assert scaling(words - 1e-3) == scaling(sp.csr_array(-words)) == "columns"
    assert scaling(1 - words) == "columns"
    income = rng.lognormal(10, 1, (50, 1))
    assert scaling(np.hstack([words, income])) == "columns"  # it would be all that is left
    assert scaling(np.hstack([words, income * (rng.random((50, 1)) < 0.3)])) == "columns"
    assert scaling(words * rng.integers(1, 20, (50, 40))) == "rows"


def test_many_columns_are_told_together_and_odd_ones_alone():
    x = np.arange(60.0).reshape(4, 15) ** 2
    x[:, 3], x[:, 5], x[:, 9] = [0, 1, 0, 1], 7, 7
    fitted = FeaturePreparation.fit(Graph(NO_EDGES, x=x), np.ones(4, dtype=bool))
    assert preparation_lines(fitted) == [
        "12 columns, '0' to '14': standardised",
        "2 columns, '5' to '9': left out",
        "column '3': as it is",
    ]


def test_what_is_asked_of_a_table():
    graph, train = table(np.random.default_rng(0)), np.arange(60) < 36
    with pytest.raises(ConfigError, match="features=rows: column 'city' holds words; use features"):
        FeaturePreparation.fit(graph, train, "rows")
    numbers = replace(graph, feature_words=None)
    with pytest.raises(ConfigError, match="features=none: column 'age' has missing values; use fe"):
        FeaturePreparation.fit(numbers, train, "none")
    x = numbers.x.copy()
    x[0, 1] = 1e9
    assert FeaturePreparation.fit(replace(numbers, x=x), train).columns[1].how == "robust"
    standard = FeaturePreparation.fit(replace(numbers, x=x), train, "standard")
    assert standard.columns[1].how == "standard"
    asked = FeaturePreparation.fit(graph, train, "auto", {"score": "drop", "age": "robust"})
    assert [column.how for column in asked.columns] == ["robust", "drop", "category", "none"]
    assert asked.needed == ("age", "city", "member")
    with pytest.raises(ConfigError, match=r"columns\.scor: graph has no such feature; did you"):
        FeaturePreparation.fit(graph, train, "auto", {"scor": "drop"})
    with pytest.raises(GraphError, match="every column of features has a single value on the"):
        FeaturePreparation.fit(Graph(sp.csr_array((4, 4)), x=np.ones((4, 2))), train[:4])


def test_named_sets_of_words_are_what_they_were(shared_data):
    """To the bit, for every split: recorded results stand on it."""
    found = 0
    for path in sorted(shared_data.glob("*.npz")):
        if path.stem not in NODE_SETS or path.stem == "wordnet":
            continue
        graph = node_graph(path.stem, shared_data)
        assert graph.y is not None
        (first, *rest) = prepare_features(
            graph, [random_60_20_20(graph.y, seed) for seed in range(3)]
        )
        assert first == FeaturePreparation("rows", graph.num_features)
        assert all(each == first for each in rest)
        found += 1
    assert found >= 5


def test_counts_leaves_words_as_they_are_and_prepares_columns() -> None:
    """Of a bag of words as ``none``, of any other table as ``auto``."""
    train = np.arange(50) < 30
    words = np.random.default_rng(0).poisson(0.2, (50, 40)).astype(np.float32)
    table = np.random.default_rng(0).normal(5.0, 3.0, (50, 4)).astype(np.float32)
    graph = csbm(0.5, num_nodes=50, num_features=4)
    for x, same in ((words, "none"), (table, "auto")):
        own = replace(graph, x=x)
        found = FeaturePreparation.fit(own, train, "counts")
        assert found == FeaturePreparation.fit(own, train, same)
