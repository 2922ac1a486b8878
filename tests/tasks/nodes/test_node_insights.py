r"""What a report shows of nodes: where a model is right, and what it learned."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.tasks.jobs import classify

from specformer.datasets import grid_graph, make_splits
from specformer.graphs import Graph
from specformer.spectrum import decompose
from specformer.tasks.nodes.node_insights import drawing, drawn_part, failures, worst_nodes
from specformer.tasks.nodes.node_recipe import node_recipe
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
#: The only eigenvalues that labels depend on.
BAND = (1.35, 1.6)


@pytest.fixture(scope="module")
def planted():
    """White noise on a grid, whose labels are the signs of what a band-pass leaves of it."""
    grid = grid_graph(16, 20)
    spectrum = decompose(grid)
    values, vectors = spectrum.eigenvalues.numpy(), spectrum.eigenvectors.numpy()
    x = np.random.default_rng(0).normal(size=(320, 2)).astype(np.float32)
    passed = vectors * ((values > BAND[0]) & (values < BAND[1])) @ vectors.T @ x[:, 0]
    graph = Graph(grid.adjacency, x=x, y=(passed > 0).astype(int), name="planted")
    changes = [
        "schedule.epochs=200", "schedule.learning_rate=0.01", "model.feature_dropout=0",
        "model.propagation_dropout=0", "model.transformer_dropout=0", "features=none",
    ]  # fmt: skip
    recipe = node_recipe("default", "own", changes)[1].settled(graph)
    splits = make_splits(graph, recipe.split, 2, 0)
    outcome = classify(
        graph, spectrum, splits, "specformer", recipe, device=CPU, seed=0, progress=Silent()
    )
    where = "nodes/planted/specformer/"
    arrays = {name.removeprefix(where): array for name, array in outcome.arrays.items()}
    return graph, spectrum, outcome, arrays


def in_band(values):
    return (values > BAND[0]) & (values < BAND[1])


def test_energy_points_to_the_band_that_labels_depend_on(planted):
    _, _, outcome, arrays = planted
    assert outcome.row["test"]["mean"] > 0.8
    middles = (np.arange(64) + 0.5) / 32
    before, after, labels = arrays["energy"][in_band(middles)].sum(axis=0)

    np.testing.assert_allclose(arrays["energy"].sum(axis=0), 1.0, rtol=1e-5)
    assert before < 0.25
    assert labels > 0.5
    assert after > 2 * before


def test_filters_of_every_run_are_kept(planted):
    _, spectrum, outcome, arrays = planted
    runs, layers, points, heads = arrays["filters"].shape
    assert (runs, points) == (2, len(arrays["filters_at"]))

    every = outcome.models[1].responses(spectrum)
    assert (layers, heads) == (len(every), every[0].shape[1])
    at = torch.as_tensor(arrays["filters_at"])
    nearest = (spectrum.eigenvalues[:, None] - at).abs().argmin(dim=0)
    np.testing.assert_allclose(
        arrays["filters"][1, 0], every[0][nearest].detach(), rtol=1e-4, atol=1e-4
    )


def test_an_impulse_spreads_as_the_dense_filter_says(planted):
    _, spectrum, outcome, arrays = planted
    response = outcome.models[0].responses(spectrum)[0].detach().double()
    vectors = spectrum.eigenvectors.double()
    for number, centre in enumerate(arrays["drawn/centres"]):
        for head, drawn in enumerate(arrays["drawn/spread"][number]):
            dense = vectors @ torch.diag(response[:, head]) @ vectors.T
            expected = dense[:, centre][torch.as_tensor(arrays["drawn/nodes"])]
            np.testing.assert_allclose(drawn, expected, rtol=1e-3, atol=1e-4)


def test_attention_adds_up_and_is_the_encoders(planted):
    _, spectrum, outcome, arrays = planted
    heads, rows, columns = arrays["attention_full"].shape
    assert rows == columns == len(arrays["attention_at"])
    np.testing.assert_allclose(arrays["attention_full"].sum(axis=-1), 1.0, rtol=1e-4)

    # Condensed to bands, the rows that were kept are close to all rows' means.
    condensed = outcome.models[0].condensed_attention(spectrum)[0].detach().numpy()
    band = np.searchsorted([2 / 3, 4 / 3], arrays["attention_at"], side="right")
    shares = np.stack([arrays["attention_full"][..., band == b].sum(axis=-1) for b in range(3)])
    assert condensed.shape[0] == heads
    for b in range(3):
        mean = shares[:, :, band == b].mean(axis=-1).T
        np.testing.assert_allclose(mean, condensed[:, b], atol=0.1)


def star() -> Graph:
    """Node 0 in the middle of 1, 2, 3; node 4 alone with 5; node 6 without edges."""
    rows, columns = np.array([[0, 1], [0, 2], [0, 3], [4, 5]]).T
    half = sp.coo_array((np.ones(4), (rows, columns)), shape=(7, 7))
    y = np.array([0, 0, 1, -1, 1, 1, 0])
    return Graph(
        sp.csr_array(half + half.T), y=y, class_names=("a", "b"), node_ids=tuple("ABCDEFG")
    )


#: Of two runs the chance of class b for each node.
CHANCES = np.array(
    [[0.92, 0.2, 0.62, 0.5, 0.35, 0.9, 0.08], [0.1, 0.18, 0.28, 0.5, 0.6, 0.9, 0.72]]
)
BOTH = np.stack([1 - CHANCES, CHANCES], axis=-1)
TESTED = np.array([[1, 0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 0, 1]], dtype=bool)


def test_accuracy_by_degree_homophily_and_confidence():
    tables = failures(star(), BOTH, TESTED)

    # Run 1 tests 0 (wrong), 2 (right), 4 (wrong), 6 (right); run 2 tests 1 (right), 2, 6 (wrong).
    assert tables["by_degree"].tolist() == [[0, 1, 2, 1], [1, 2, 4, 2], [3, 4, 1, 0]]
    # Neighbours of its class: node 0 one of two labelled, 1 all, 2 none, 4 all, 6 has no neighbour.
    shares = tables["by_homophily"]
    np.testing.assert_allclose(shares, [[0, 0.2, 2, 1], [0.4, 0.6, 1, 0], [0.8, 1, 2, 1]])
    sure = tables["calibration"]
    np.testing.assert_allclose(sure[:, :4], [
        [0.6, 0.7, 2, 1], [0.7, 0.8, 2, 0], [0.8, 0.9, 1, 1], [0.9, 1.0, 2, 1],
    ])  # fmt: skip
    np.testing.assert_allclose(sure[:, 4], [0.62 + 0.65, 0.72 + 0.72, 0.82, 0.92 + 0.92])


def test_the_worst_nodes_come_with_their_neighbours():
    worst = worst_nodes(star(), BOTH[0], TESTED[0])

    assert [each["node"] for each in worst] == [0, 4]
    assert worst[0] | {"chance": 0} == {
        "node": 0, "name": "A", "class": "a", "predicted": "b", "chance": 0,
        "neighbours": {"a": 1, "b": 1},
    }  # fmt: skip
    assert round(worst[0]["chance"], 9) == 0.08


def test_a_drawing_has_the_edges_between_its_nodes():
    graph = star()
    nodes = np.array([0, 2, 3, 4])

    drawn = drawing(graph, nodes, BOTH[0], TESTED[0])

    assert drawn["drawn/edges"].tolist() == [[0, 1], [0, 2]]
    assert drawn["drawn/names"].tolist() == ["A", "C", "D", "E"]
    assert drawn["drawn/labels"].tolist() == [0, 1, -1, 1]
    np.testing.assert_allclose(drawn["drawn/chances"], BOTH[0][nodes], rtol=1e-6)


def test_a_large_graph_is_drawn_around_its_start():
    ring = sp.csr_array(sp.coo_array((np.ones(5000), (np.arange(5000), np.arange(1, 5001) % 5000))))
    graph = Graph(sp.csr_array(ring + ring.T), y=np.zeros(5000, dtype=int))

    nodes = drawn_part(graph, [1000])

    assert nodes.tolist() == list(range(nodes[0], nodes[-1] + 1))
    assert len(nodes) == 320
    assert abs(int(nodes.mean()) - 1000) <= 1
    assert drawn_part(star(), []).tolist() == list(range(7))
