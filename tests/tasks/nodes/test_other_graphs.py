"""Train on one graph, predict on another: real graphs, and how far their spectra are."""

from __future__ import annotations

import logging

import networkx as nx
import numpy as np
import pytest
from scipy.stats import wasserstein_distance

import specformer as sf
from specformer.datasets import csbm
from specformer.graphs import Graph, read_graph
from specformer.spectrum import approximate, decompose
from specformer.spectrum.solvers import choice
from specformer.tasks.nodes.node_predict import quantiles, say_distance
from specformer.testing import assert_eigenpairs

LOGGER = "specformer.tasks.nodes.node_predict"
#: One form, where the recipe tries several.
PAPER = {"device": "cpu", "settings": {"form": "paper"}}


def halves(graph: Graph, seed: int = 0) -> tuple[Graph, Graph, np.ndarray]:
    """Two graphs of half the nodes each, and which are in the first."""
    first = np.random.default_rng(seed).random(graph.num_nodes) < 0.5
    return part(graph, first), part(graph, ~first), first


def part(graph: Graph, mask: np.ndarray) -> Graph:
    nodes = np.flatnonzero(mask)
    return Graph(graph.adjacency[nodes][:, nodes], x=graph.x[nodes], y=graph.y[nodes])


def test_the_distance_is_wassersteins():
    one, other = (decompose(csbm(h, num_nodes=150)) for h in (0.7, -0.7))
    expected = wasserstein_distance(one.eigenvalues, other.eigenvalues)
    found = say_distance(quantiles(one), other, "other")
    assert found == pytest.approx(expected, rel=0.05)


def test_a_density_has_the_quantiles_of_the_spectrum():
    graph = csbm(0.5, num_nodes=300)
    found = quantiles(approximate(graph, degree=64))
    assert say_distance(found, decompose(graph), "the same") < 0.02


def test_half_of_a_citation_graph_predicts_the_other(shared_data, caplog):
    whole = read_graph(shared_data / "cora.npz")
    one, other, first = halves(whole)
    clf = sf.NodeClassifier(epochs=30, **PAPER).fit(one)
    with caplog.at_level(logging.INFO, LOGGER):
        score = clf.score(other)
    assert score > 0.6  # of seven classes
    (record,) = (record for record in caplog.records if record.name == LOGGER)
    assert record.levelno == logging.INFO
    assert "data: its eigenvalues are" in record.getMessage()
    # Some of those nodes, added with their edges to the graph trained on.
    more = first.copy()
    more[np.flatnonzero(~first)[:300]] = True
    grown = part(whole, more)
    added = (clf.predict(grown) == grown.y)[~first[more]]
    assert added.mean() > 0.6


def test_added_nodes_are_predicted_with_a_refreshed_spectrum(shared_data, tmp_path, monkeypatch):
    """The way of docs/how-to/nodes.md: the refreshed spectrum waits in the cache."""
    whole = read_graph(shared_data / "cora.npz")
    old = part(whole, np.arange(whole.num_nodes) < 2650)  # the last 58 nodes are added
    settings = {"settings": {"form": "paper", "k": 100}, "cache": tmp_path}
    clf = sf.NodeClassifier(epochs=20, device="cpu", **settings).fit(old)
    before = sf.decompose(old, k=100, cache=tmp_path)
    assert before.report.solver == "chebyshev"
    grown = sf.decompose(whole, k=100, start=before, cache=tmp_path)
    assert_eigenpairs(whole.adjacency, grown)

    def refuse(*_):
        raise AssertionError("an eigenproblem was solved")

    monkeypatch.setattr(choice, "choose", refuse)
    right = clf.predict(whole) == whole.y
    assert right[2650:].mean() > 0.6


def test_a_far_spectrum_is_warned_of(caplog):
    graph = csbm(0.7, num_nodes=120, num_features=4, signal=12.0)
    clf = sf.NodeClassifier(epochs=5, **PAPER).fit(graph)
    with caplog.at_level(logging.INFO, LOGGER):
        clf.predict(graph)
    assert LOGGER not in {record.name for record in caplog.records}  # the graph itself
    stars = nx.disjoint_union_all([nx.star_graph(5)] * 20)
    x = np.random.default_rng(0).standard_normal((120, 4))
    clf.predict((x, nx.to_scipy_sparse_array(stars)))
    (record,) = (record for record in caplog.records if record.name == LOGGER)
    assert record.levelno == logging.WARNING
    assert "so that the filters are used where they were not tested" in record.getMessage()


def test_other_models_need_no_spectrum(caplog):
    graph = csbm(0.7, num_nodes=120, num_features=4, signal=12.0)
    clf = sf.NodeClassifier("gcn", epochs=5, device="cpu").fit(graph)
    clf.predict(csbm(-0.7, num_nodes=60, num_features=4))
    assert LOGGER not in {record.name for record in caplog.records}


def test_predict_graph_says_it_on_standard_error(call):
    from specformer.graphs import write_npz

    graph = csbm(0.7, num_nodes=120, num_features=4, signal=12.0)
    write_npz("one.npz", graph)
    write_npz("other.npz", csbm(0.7, num_nodes=80, num_features=4, seed=3))
    train = (
        "train",
        "one.npz",
        "--runs",
        "1",
        "--set",
        "schedule.epochs=3",
        "--quiet",
        "--set",
        "form=paper",
    )
    assert call(*train, "--out", "run", "--device", "cpu")[0] == 0
    status, out, err = call("predict", "run", "--graph", "other.npz", "--device", "cpu")
    assert status == 0
    assert out.count("\n") == 81
    assert "other.npz: its eigenvalues are" in err
