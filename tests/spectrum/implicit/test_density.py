"""The density without a decomposition: exact where it can be, its moments where it cannot."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from tests.spectrum.known_graphs import CLOSED_FORMS, SMALL, adjacency, closed_form, graphs, union

from specformer.datasets import grid_graph
from specformer.errors import SpectrumError
from specformer.graphs import normalised_laplacian
from specformer.spectrum import Tokens, approximate, devices
from specformer.spectrum.implicit import density

ISOLATED = ["one", "zero"]


def estimated(graph: sp.csr_array, isolated="one", **options) -> Tokens:
    return approximate(graph, isolated=isolated, dtype=torch.float64, **options).tokens


def eigenvalues(graph: sp.csr_array, isolated="one") -> np.ndarray:
    return np.linalg.eigvalsh(normalised_laplacian(graph, isolated=isolated).toarray())


def expanded(tokens: Tokens) -> np.ndarray:
    """Each value as often as its weight says; weights must be whole numbers."""
    counts = tokens.weights.round()
    torch.testing.assert_close(tokens.weights, counts, rtol=0, atol=1e-8)
    return np.repeat(tokens.values.numpy(), counts.long().numpy())


def weight_at(tokens: Tokens, value: float) -> float:
    return float(tokens.weights[tokens.values == value].sum())


@pytest.mark.parametrize("isolated", ISOLATED)
@pytest.mark.parametrize("name", SMALL)
def test_with_every_node_a_probe_the_density_is_exact(name: str, isolated) -> None:
    graph = SMALL[name]
    found = expanded(estimated(graph, isolated, probes=graph.shape[0], steps=graph.shape[0]))
    np.testing.assert_allclose(found, eigenvalues(graph, isolated), atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_any_small_graph(graph: sp.csr_array) -> None:
    found = expanded(estimated(graph, probes=graph.shape[0], steps=graph.shape[0]))
    np.testing.assert_allclose(found, eigenvalues(graph), atol=1e-7)


@pytest.mark.parametrize("kind", CLOSED_FORMS)
def test_as_many_steps_as_distinct_eigenvalues_suffice(kind: str) -> None:
    graph, expected = closed_form(kind, 24)
    distinct = len(np.unique(expected.round(9)))
    tokens = estimated(graph, probes=24, steps=distinct)
    np.testing.assert_allclose(expanded(tokens), expected, atol=1e-9)


def test_known_eigenvalues_grow_back_into_no_point() -> None:
    # Without projecting again and again, rounding would find 0 once more and lose another value.
    graph = adjacency(nx.gnp_random_graph(60, 0.15, seed=3))
    found = expanded(estimated(graph, probes=60, steps=60))
    np.testing.assert_allclose(found, eigenvalues(graph), atol=1e-9)


@pytest.mark.parametrize("isolated", ISOLATED)
def test_components_count_exactly_whatever_the_probes(isolated) -> None:
    parts = [nx.cycle_graph(5), nx.cycle_graph(6), nx.path_graph(3), nx.complete_graph(7)] * 6
    graph = adjacency(union(*parts, nx.empty_graph(11), nx.gnp_random_graph(80, 0.1, seed=0)))
    exact = eigenvalues(graph, isolated)
    tokens = estimated(graph, isolated, probes=2, steps=5)
    assert weight_at(tokens, 0.0) == np.sum(np.abs(exact) < 1e-9) == 25 + 11 * (isolated == "zero")
    assert weight_at(tokens, 2.0) == np.sum(np.abs(exact - 2) < 1e-9) == 12  # bipartite: even
    assert float(tokens.weights.sum()) == pytest.approx(graph.shape[0], rel=1e-12)
    assert tokens.values.min() >= 0
    assert tokens.values.max() <= 2
    assert (tokens.values.diff() > 0).all()


def test_moments_are_the_traces_of_powers() -> None:
    graph = adjacency(nx.gnp_random_graph(600, 0.01, seed=1))
    laplacian = normalised_laplacian(graph).toarray()
    tokens = estimated(graph, probes=64, steps=20)
    power = np.eye(600)
    for p in range(12):
        moment = float((tokens.weights * tokens.values**p).sum())
        # Hutchinson's variance is 2 (‖L^p‖² − Σ diag²) / probes; four deviations are allowed.
        spread = np.sqrt(2 * ((power**2).sum() - (np.diag(power) ** 2).sum()) / 64)
        assert abs(moment - np.trace(power)) <= 4 * spread + 1e-8, p
        power = power @ laplacian


def test_each_probes_rule_integrates_its_own_quadratic_form() -> None:
    graph = adjacency(nx.gnp_random_graph(50, 0.2, seed=2))
    laplacian = normalised_laplacian(graph).toarray()
    signs = 2.0 * np.random.default_rng(7).integers(0, 2, (1, 50), dtype=np.int8)[0] - 1.0
    null = np.sqrt(np.asarray(graph.sum(axis=1)).ravel())
    null /= np.linalg.norm(null)
    probe = signs - null * (null @ signs)
    probe *= np.sqrt(49) / np.linalg.norm(probe)
    tokens = estimated(graph, probes=1, steps=6, seed=7)
    for p in range(1, 12):  # below degree 2 · steps; the eigenvalue 0 adds nothing
        moment = float((tokens.weights * tokens.values**p).sum())
        exact = probe @ np.linalg.matrix_power(laplacian, p) @ probe
        assert moment == pytest.approx(exact, rel=1e-10), p


def test_probes_a_few_at_a_time_are_the_same(monkeypatch) -> None:
    graph = adjacency(nx.gnp_random_graph(90, 0.1, seed=4))
    together = estimated(graph, probes=7, steps=10)
    monkeypatch.setattr(density, "_HELD", 2 * 90 * 10)
    for part, whole in zip(estimated(graph, probes=7, steps=10), together, strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-9, atol=1e-9)


def test_seeds() -> None:
    graph = adjacency(nx.gnp_random_graph(90, 0.1, seed=4))
    one, again, other = (estimated(graph, probes=3, steps=9, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.values, again.values)
    assert torch.equal(one.weights, again.weights)
    assert not torch.equal(one.values, other.values)


@pytest.mark.parametrize("name", ["probes", "steps"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "few"])
def test_bad_counts(name: str, value: object) -> None:
    with pytest.raises(SpectrumError, match=f"{name}={value!r} must be a whole number, at least 1"):
        estimated(SMALL["ring"], **{name: value})


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_bad_seeds(seed: object) -> None:
    with pytest.raises(SpectrumError, match=f"seed={seed} must be a whole number, at least 0"):
        estimated(SMALL["ring"], seed=seed)


def test_memory_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 probes, 128 steps and 40,000 nodes are 82 million numbers."""
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**29)
    message = (
        r"the density of 40,000 nodes needs about 0\.6 GiB on cpu with steps=128, 0\.5 GiB are "
        "free; pass fewer steps"
    )
    with pytest.raises(SpectrumError, match=message):
        approximate(grid_graph(200, 200))
    assert approximate(grid_graph(200, 200), steps=2, degree=1).tokens.weights.sum() == 40_000
