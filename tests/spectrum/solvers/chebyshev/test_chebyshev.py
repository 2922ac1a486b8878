"""Filtered subspace iteration: the contract, warm starts, resumed solves, memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.known_graphs import Array, adjacency, closed_form, random_weighted, union
from tests.spectrum.solvers.solver_contract import Single, SolverContract

from specformer.errors import SpectrumError
from specformer.graphs import normalised_laplacian
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import max_orthogonality_error, max_residual
from specformer.spectrum.solvers import dense
from specformer.spectrum.solvers.chebyshev import chebyshev, filtering, subspace
from specformer.spectrum.solvers.problem import Problem


def solve(
    laplacian: sp.csr_array,
    lowest: int,
    highest: int,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> tuple[Array, torch.Tensor]:
    """Solve in this precision."""
    kind = Single if dtype == torch.float32 else Problem
    return chebyshev.solve(kind(laplacian, lowest, highest, **options))


class TestChebyshev(SolverContract):
    size = 120

    def solve(
        self, laplacian: sp.csr_array, lowest: int, highest: int
    ) -> tuple[Array, torch.Tensor]:
        return solve(laplacian, lowest, highest)

    def test_every_pair_of_a_small_graph(self) -> None:
        graph = adjacency(nx.grid_2d_graph(5, 6))
        assert len(self.check(graph, 30, 0)) == 30

    def test_ends_of_a_bipartite_graph_mirror_each_other(self) -> None:
        graph = adjacency(nx.bipartite.random_graph(80, 60, 0.06, seed=1))
        values = self.check(graph, 12, 12)
        np.testing.assert_allclose(values, 2.0 - values[::-1], atol=1e-9)

    def test_twins_at_the_cut_come_along(self) -> None:
        pendants = nx.random_regular_graph(4, 60, seed=0)
        pendants.add_edges_from((hub, f"leaf {hub} {i}") for hub in range(6) for i in range(12))
        graph = adjacency(pendants)  # twin leaves: λ = 1 at least 6 · 11 times
        exact = np.linalg.eigvalsh(normalised_laplacian(graph).toarray())
        below = int((exact < 1.0 - 1e-9).sum())
        assert len(self.check(graph, below + 1, 0)) >= below + 66


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[filtering.Operator]:
    """The operators of solves, which count their products."""
    made: list[filtering.Operator] = []

    class Counted(filtering.Operator):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(chebyshev, "Operator", Counted)
    return made


def citations(seed: int = 0) -> nx.Graph:
    """About cora's size and shape: hubs, triangles, islands and nodes without edges."""
    graph = nx.powerlaw_cluster_graph(1500, 2, 0.3, seed=seed)
    return union(graph, *[nx.path_graph(3)] * 10, nx.empty_graph(5))


GRAPH = citations()
LAPLACIAN = normalised_laplacian(adjacency(GRAPH))
EXACT = np.linalg.eigvalsh(LAPLACIAN.toarray())


@pytest.mark.parametrize(
    ("dtype", "value", "residual"), [(torch.float32, 1e-7, 2e-5), (torch.float64, 1e-12, 1e-9)]
)
@pytest.mark.parametrize("ask", [(60, 0), (0, 40), (40, 40)])
def test_a_graph_like_cora(
    ask: tuple[int, int], dtype: torch.dtype, value: float, residual: float
) -> None:
    values, vectors = solve(LAPLACIAN, *ask, dtype=dtype)
    low = len(values) if not ask[1] else int((values < 1.0).sum())
    assert low >= ask[0]
    assert len(values) - low >= ask[1]
    np.testing.assert_allclose(values[:low], EXACT[:low], atol=value)
    np.testing.assert_allclose(values[low:], EXACT[len(EXACT) - len(values) + low :], atol=value)
    assert vectors.dtype == dtype
    found = torch.as_tensor(values).to(dtype)
    assert max_residual(LAPLACIAN, found, vectors) < residual
    assert max_orthogonality_error(vectors) < 2e-6


def test_agrees_with_arpack() -> None:
    graph = adjacency(
        nx.powerlaw_cluster_graph(1500, 2, 0.3, seed=0)
    )  # connected: no copies missed
    laplacian = normalised_laplacian(graph)
    shifted = sp.csr_array(sp.eye_array(1500) - laplacian)
    arpack = 1.0 - np.sort(sp.linalg.eigsh(shifted, k=30, which="LA")[0])[::-1]
    np.testing.assert_allclose(solve(laplacian, 30, 0)[0][:30], arpack, atol=1e-10)


def test_the_null_space_of_a_weighted_graph_costs_nothing(products: list) -> None:
    graph = adjacency(union(random_weighted(100, seed=1), random_weighted(80, seed=2)))
    laplacian = normalised_laplacian(graph)
    components, _ = sp.csgraph.connected_components(graph)
    lonely = int((graph.sum(axis=1) == 0).sum())
    values, vectors = solve(laplacian, 1, 0, degrees=graph.sum(axis=1))
    assert values.tolist() == [0.0] * (components - lonely)
    assert max_residual(laplacian, torch.as_tensor(values), vectors) < 1e-14
    assert products[0].products == 0
    without, _ = solve(laplacian, 1, 0)  # degrees unknown: found the long way
    np.testing.assert_allclose(without, values, atol=1e-12)
    assert products[1].products > 0


def change(graph: nx.Graph, edges: int, seed: int) -> sp.csr_array:
    """Remove some edges and add as many others."""
    generator = np.random.default_rng(seed)
    changed = graph.copy()
    gone = generator.permutation(list(graph.edges))[:edges]
    changed.remove_edges_from(map(tuple, gone))
    changed.add_edges_from(generator.integers(0, len(graph), (edges, 2)))
    return adjacency(changed)


@pytest.mark.parametrize(("edges", "share"), [(4, 0.9), (GRAPH.number_of_edges() // 100, 1.0)])
@pytest.mark.parametrize("ask", [(60, 0), (40, 40)])
def test_a_changed_graph_is_refreshed_with_fewer_products(
    ask: tuple[int, int], edges: int, share: float, products: list
) -> None:
    old = solve(LAPLACIAN, *ask, dtype=torch.float32)
    laplacian = normalised_laplacian(change(GRAPH, edges, seed=3))
    products.clear()
    scratch, _ = solve(laplacian, *ask, dtype=torch.float32)
    cold = sum(operator.products for operator in products)
    products.clear()
    values, vectors = solve(laplacian, *ask, dtype=torch.float32, start=old)
    warm = sum(operator.products for operator in products)
    np.testing.assert_allclose(values, scratch, atol=1e-7)
    assert max_residual(laplacian, torch.as_tensor(values).float(), vectors) < 2e-5
    assert warm < share * cold, (warm, cold)


def test_a_start_that_misses_pairs_is_not_believed() -> None:
    values, vectors = solve(LAPLACIAN, 60, 0)
    partial = np.arange(len(values)) % 3 > 0
    found, _ = solve(LAPLACIAN, 40, 0, start=(values[partial], vectors[:, partial]))
    np.testing.assert_allclose(found, EXACT[: len(found)], atol=1e-12)


def test_a_start_that_is_right_already_is_checked_all_the_same(products: list) -> None:
    old = solve(LAPLACIAN, 80, 0)
    cold = products[0].products
    values, _ = solve(LAPLACIAN, 60, 0, start=old)  # more vectors than the block takes
    np.testing.assert_allclose(values, EXACT[: len(values)], atol=1e-12)
    assert products[1].products < cold


def exact_pairs(graph: nx.Graph, n: int) -> tuple[Array, torch.Tensor]:
    """All eigenpairs, by NumPy; zero on nodes added to make n."""
    values, vectors = np.linalg.eigh(normalised_laplacian(adjacency(graph)).toarray())
    return values, torch.as_tensor(np.pad(vectors, ((0, n - len(values)), (0, 0))))


def grown(added: nx.Graph, weight: float = 0.0) -> tuple[nx.Graph, nx.Graph]:
    """A graph, and the same with nodes added at the end."""
    old = nx.watts_strogatz_graph(300, 6, 0.1, seed=0)
    new = nx.disjoint_union(old, added)
    if weight:
        new.add_edge(0, 300, weight=weight)
    return old, new


def rewired() -> tuple[nx.Graph, nx.Graph]:
    """The same nodes, half of them with other edges."""
    parts = nx.random_regular_graph(4, 150, seed=1), nx.circulant_graph(150, [1, 2])
    old, new = (nx.disjoint_union(nx.cycle_graph(400), part) for part in parts)
    return old, new


@pytest.mark.parametrize("columns", [20, 36, 60, None])
@pytest.mark.parametrize("ask", [(20, 0), (5, 5)])
@pytest.mark.parametrize(
    "change",
    [
        grown(nx.path_graph(60)),
        grown(nx.cycle_graph(60)),
        grown(nx.path_graph(60), weight=1e-8),
        grown(nx.path_graph(600)),  # all wanted pairs are new
        rewired(),
    ],
)
def test_pairs_orthogonal_to_the_start_are_found(
    change: tuple[nx.Graph, nx.Graph], ask: tuple[int, int], columns: int | None
) -> None:
    old, new = change
    laplacian = normalised_laplacian(adjacency(new))
    exact = np.linalg.eigvalsh(laplacian.toarray())
    values, vectors = exact_pairs(old, len(exact))
    start = values[:columns], vectors[:, :columns]
    found, _ = solve(laplacian, *ask, start=start)
    low = len(found) if not ask[1] else int((found < 1.0).sum())
    np.testing.assert_allclose(found[:low], exact[:low], atol=1e-9)
    np.testing.assert_allclose(found[low:], exact[len(exact) - len(found) + low :], atol=1e-9)


class KilledError(Exception):
    """Stands for a signal."""


def kill_after(calls: int) -> Callable[[int, int], None]:
    """A progress callback that ends the solve."""
    left = [calls]

    def progress(done: int, wanted: int) -> None:
        assert 0 <= done <= wanted
        left[0] -= 1
        if left[0] < 0:
            raise KilledError

    return progress


def test_a_killed_solve_goes_on(
    tmp_path: Path, products: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subspace, "SAVE_EVERY", 0.0)
    whole, _ = solve(LAPLACIAN, 40, 40)
    total = sum(operator.products for operator in products)
    state = tmp_path / "state"
    saved: list[int] = []
    for calls in (1, 2, 2):
        with pytest.raises(KilledError):
            solve(LAPLACIAN, 40, 40, state=state, progress=kill_after(calls))
        saved.append(len(list(tmp_path.iterdir())))
    assert saved[0] == 1
    assert saved[-1] >= 1
    products.clear()
    values, vectors = solve(LAPLACIAN, 40, 40, state=state)
    assert sum(operator.products for operator in products) < total
    np.testing.assert_allclose(values, whole, atol=1e-12)
    assert max_residual(LAPLACIAN, torch.as_tensor(values), vectors) < 1e-9
    assert not list(tmp_path.iterdir())


def test_a_killed_refresh_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subspace, "SAVE_EVERY", 0.0)
    old, new = grown(nx.path_graph(60))
    laplacian = normalised_laplacian(adjacency(new))
    state, start = tmp_path / "state", exact_pairs(old, len(new))
    with pytest.raises(KilledError):
        solve(laplacian, 20, 0, start=start, state=state, progress=kill_after(1))
    assert len(list(tmp_path.iterdir())) == 1
    values, _ = solve(laplacian, 20, 0, state=state)
    exact = np.linalg.eigvalsh(laplacian.toarray())
    np.testing.assert_allclose(values, exact[: len(values)], atol=1e-12)


@pytest.mark.parametrize("damage", ["cut", "altered", "another solve's"])
def test_a_damaged_state_is_ignored(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subspace, "SAVE_EVERY", 0.0)
    state = tmp_path / "state"
    with pytest.raises(KilledError):
        solve(LAPLACIAN, 30, 0, state=state, progress=kill_after(1))
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "altered":
        content[-50] ^= 1
        file.write_bytes(content)
    laplacian = LAPLACIAN
    if damage == "another solve's":
        laplacian = normalised_laplacian(closed_form("ring", 200)[0])
    values, _ = solve(laplacian, 30, 0, state=state)
    exact = EXACT if laplacian is LAPLACIAN else closed_form("ring", 200)[1]
    np.testing.assert_allclose(values, exact[: len(values)], atol=1e-12)


def crowded(n: int, outliers: tuple[float, ...], radius: float = 0.2) -> tuple[sp.csr_array, Array]:
    """A matrix with a few values far from a crowd on [1 − radius, 1 + radius]; and all values.

    The crowd has the density of a semicircle, as a random graph's eigenvalues have.
    """
    grid = np.linspace(-1.0, 1.0, 20_001)
    share = np.cumsum(np.sqrt(1.0 - grid**2))
    ranks = (np.arange(n - len(outliers)) + 0.5) / (n - len(outliers))
    values = 1.0 - np.append(radius * np.interp(ranks, share / share[-1], grid), outliers)
    return sp.csr_array(sp.diags_array(values)), np.sort(values)


@pytest.mark.parametrize("outliers", [(0.84, 0.76, 0.6), (0.95,), (0.7,) * 5, ()])
def test_outliers_do_not_hold_up_a_crowd_at_the_cut(outliers: tuple[float, ...]) -> None:
    laplacian, exact = crowded(1200, outliers)
    told: list[int] = []
    values, vectors = solve(
        laplacian, 200, 0, dtype=torch.float32, progress=lambda done, _: told.append(done)
    )
    np.testing.assert_allclose(values, exact[: len(values)], atol=1e-7)
    assert max_residual(laplacian, torch.as_tensor(values), vectors) < 1.01e-5
    assert max_orthogonality_error(vectors) < 1e-6
    assert len(told) < 12


def test_a_stall_is_met_with_a_change(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lenient = {torch.float32: 1.0}  # lock outliers too early: what lock_limits is there to prevent
    monkeypatch.setattr(filtering, "_FLOOR", lenient)
    monkeypatch.setattr(filtering, "_limit", lambda *_: np.array([np.inf]))
    laplacian, exact = crowded(1200, (0.84, 0.76, 0.6))
    with caplog.at_level("INFO", logger="specformer"):
        values, vectors = solve(laplacian, 200, 0, dtype=torch.float32)
    assert "pairs do not converge: rotating all pairs again" in caplog.text
    np.testing.assert_allclose(values, exact[: len(values)], atol=1e-7)
    assert max_orthogonality_error(vectors) < 1e-6


def test_an_accuracy_out_of_reach_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(subspace.RESIDUAL, torch.float32, 1e-9)
    with pytest.raises(SpectrumError, match=r"stay above a residual of 1e-09, after \d\d steps"):
        solve(LAPLACIAN, 30, 0, dtype=torch.float32)


def test_overlapping_ends_are_refused() -> None:
    with pytest.raises(SpectrumError, match="ends of the spectrum overlap"):
        solve(normalised_laplacian(closed_form("ring", 100)[0]), 60, 60)


def test_no_convergence_is_our_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subspace, "_MAX_STEPS", 1)
    with pytest.raises(SpectrumError, match=r"eigenpairs stay above .*, after 1 steps"):
        solve(LAPLACIAN, 40, 0)


@pytest.mark.parametrize(("refused", "steps"), [(None, 100), ("no room", 4)])
def test_copies_without_an_end_are_told_as_such(
    monkeypatch: pytest.MonkeyPatch, refused: str | None, steps: int
) -> None:
    """Soon, if a dense solve can take over; else after the last step."""
    monkeypatch.setattr(dense, "refusal", lambda *_: refused)
    monkeypatch.setattr(subspace, "_MAX_STEPS", steps)
    star = normalised_laplacian(closed_form("star", 6_000)[0])
    message = r"at least [\d,]+ copies, and no end was found, after \d steps; ask for fewer"
    with pytest.raises(SpectrumError, match=message):
        solve(star, 10, 0)


def test_a_crowd_of_copies_at_the_cut_widens_the_block() -> None:
    """The cliques of n nodes have the eigenvalue n / (n − 1) 2 (n − 2) times; k cuts through it."""
    barbell = adjacency(nx.barbell_graph(100, 20))
    exact = np.linalg.eigvalsh(normalised_laplacian(barbell).toarray())
    values, _ = solve(normalised_laplacian(barbell), 30, 0)
    np.testing.assert_allclose(values, exact[: len(values)], atol=1e-9)
    assert len(values) >= np.sum(exact < 1.0101011)


def test_memory_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    arxiv: Any = SimpleNamespace(shape=(169_343, 169_343), nnz=2_484_941)
    problem = Problem(arxiv, 5_000, 0)
    assert 7 < chebyshev.required_bytes(problem) / 2**30 < 12
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**30)
    refused = chebyshev.refusal(problem)
    assert refused is not None
    assert refused.startswith("5,000 eigenpairs of 169,343 nodes need about ")
    assert refused.endswith("GiB on cpu with solver 'chebyshev', 1.0 GiB are free")
    monkeypatch.setattr(devices, "available_bytes", lambda device: 1000)
    with pytest.raises(SpectrumError, match=r"need about .* ask for fewer eigenpairs, k="):
        solve(LAPLACIAN, 10, 0)


def test_a_null_space_too_large_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = sp.csr_array(sp.kron(sp.eye_array(20_000), np.array([[0.0, 1.0], [1.0, 0.0]])))
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**30)
    message = (
        r"repeated so often that 20,000 vectors, 6\.0 GiB, are needed on cpu; 1\.0 GiB are free"
    )
    with pytest.raises(SpectrumError, match=message):
        solve(normalised_laplacian(pairs), 1, 0)
