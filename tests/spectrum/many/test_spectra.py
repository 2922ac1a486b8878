"""Spectra of many graphs at once, against NumPy and SciPy graph by graph."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.many_graphs import from_networkx, mixed_set, odd_graphs, random_graphs

from specformer.errors import ConfigError, SpectrumError
from specformer.graphs import GraphSet, as_adjacency, normalised_laplacian
from specformer.spectrum import ManyReport, ManySpectra, decompose, decompose_many
from specformer.spectrum.eigenpairs import distinct, max_orthogonality_error, max_residual
from specformer.spectrum.many import spectra as solver

GRAPHS = mixed_set()
#: Their eigenvectors have entries of one size and either sign: a tie that rounding could break.
SYMMETRIC = [
    *(nx.path_graph(n) for n in range(2, 12)),
    *(nx.ladder_graph(n) for n in range(3, 7)),
    *(nx.barbell_graph(n, 2) for n in (3, 5)),
    nx.cycle_graph(9),
    nx.star_graph(5),
    nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4)),
    nx.convert_node_labels_to_integers(nx.full_rary_tree(2, 15)),
    nx.disjoint_union(nx.path_graph(4), nx.path_graph(6)),
]


def matrix_of(graphs: GraphSet, number: int, matrix: str) -> np.ndarray:
    bonds = slice(*graphs.edge_start[number : number + 2])
    edges, n = graphs.edge_index[:, bonds], int(graphs.num_nodes[number])
    adjacency = as_adjacency(edges, num_nodes=n)
    if matrix == "laplacian":
        return normalised_laplacian(adjacency).toarray()
    loops = adjacency.toarray() + np.eye(n)
    root = np.diag(loops.sum(axis=1) ** -0.5)
    return root @ loops @ root


@pytest.fixture(params=[torch.float64, torch.float32], ids=str)
def solve_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """Solve in this precision on a CPU: the second is a GPU's."""
    monkeypatch.setitem(solver._PRECISION, "cpu", request.param)
    return request.param


@pytest.mark.parametrize("matrix", ["laplacian", "adjacency-with-loops"])
@pytest.mark.usefixtures("solve_in")
def test_every_graph_has_its_own_eigenpairs(matrix: Any) -> None:
    spectra = decompose_many(GRAPHS, matrix=matrix)
    assert len(spectra) == len(GRAPHS)
    assert spectra.eigenvalues.dtype == spectra.eigenvectors.dtype == torch.float32
    for number in range(len(GRAPHS)):
        dense = matrix_of(GRAPHS, number, matrix)
        values, vectors = (part.double().numpy() for part in spectra[number])
        np.testing.assert_allclose(values, np.linalg.eigvalsh(dense), atol=3e-7)
        np.testing.assert_allclose((vectors * values) @ vectors.T, dense, atol=5e-6)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=5e-6)


@pytest.mark.usefixtures("solve_in")
def test_repeated_eigenvalues_are_equal_to_the_bit() -> None:
    spectra = decompose_many(from_networkx([nx.complete_graph(7)]))
    values, _ = spectra[0]
    assert values[0] == 0.0
    assert len(values[1:].unique()) == 1
    assert values[1].item() == pytest.approx(7 / 6)
    petersen, _ = decompose_many(from_networkx([nx.petersen_graph()]))[0]
    assert petersen.unique(return_counts=True)[1].tolist() == [1, 5, 4]
    star, _ = decompose_many(from_networkx([nx.star_graph(5)]))[0]
    assert star.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 2.0]


def test_a_single_atom() -> None:
    atom = GraphSet([1], [0], [])
    assert decompose_many(atom).eigenvalues.tolist() == [1.0]
    assert decompose_many(atom, matrix="adjacency-with-loops").eigenvalues.tolist() == [1.0]
    assert decompose_many(atom).eigenvectors.tolist() == [1.0]


def test_signs_are_canonical() -> None:
    spectra = decompose_many(GRAPHS)
    for number in range(len(spectra)):
        _, vectors = spectra[number]
        for column in vectors.T:
            largest = column.abs().max()
            first = int((column.abs() >= largest * (1 - 2e-4)).nonzero()[0])
            assert column[first] > 0


def test_a_graph_has_the_same_spectrum_in_any_company() -> None:
    alone = decompose_many(GRAPHS.subset([5]))
    together = decompose_many(GRAPHS)
    torch.testing.assert_close(together[5][0], alone[0][0], rtol=0, atol=1e-7)


def test_one_graph_and_many_give_the_same(solve_in: torch.dtype) -> None:
    """Eigenvalues and their groups to the bit, and signs, ties of entries and all."""
    graphs = SYMMETRIC + random_graphs(40, seed=3)
    spectra = decompose_many(from_networkx(graphs))
    apart = {torch.float64: 0.0, torch.float32: 2e-7}[solve_in]
    for number, graph in enumerate(graphs):
        values, vectors = spectra[number]
        alone = decompose(as_adjacency(graph))
        torch.testing.assert_close(values, alone.eigenvalues, rtol=0, atol=apart)
        groups = distinct(values)
        assert torch.equal(groups.index, alone.distinct.index)
        single = groups.counts[groups.index] == 1
        torch.testing.assert_close(
            vectors[:, single], alone.eigenvectors[:, single], rtol=0, atol=2e-5
        )


def test_many_are_solved_some_after_others(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts, honest = decompose_many(GRAPHS), [], solver._solve_shard
    monkeypatch.setattr("specformer.spectrum.many.spectra._SHARD", {"cpu": 600, "cuda": 600})

    def watched(graphs: GraphSet, part: range, *rest: Any) -> Any:
        parts.append(part)
        return honest(graphs, part, *rest)

    monkeypatch.setattr(solver, "_solve_shard", watched)
    found = decompose_many(GRAPHS)
    assert len(parts) > 5
    sizes = [GRAPHS.num_nodes[part.start : part.stop] for part in parts]
    assert all(len(own) == 1 or (own**2).sum() <= 600 for own in sizes)
    assert torch.equal(found.sizes, whole.sizes)
    torch.testing.assert_close(found.eigenvalues, whole.eigenvalues, rtol=0, atol=1e-7)


def test_batches_of_one_size_may_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    rings = from_networkx([nx.cycle_graph(6)] * 5 + [nx.path_graph(6)])
    whole = decompose_many(rings)
    one_matrix = {"cpu": 40, "cuda": 40}
    monkeypatch.setattr("specformer.spectrum.many.spectra._BATCH", one_matrix)
    torch.testing.assert_close(decompose_many(rings).eigenvectors, whole.eigenvectors)


def test_the_report_holds_the_worst_of_all() -> None:
    report = decompose_many(GRAPHS).report
    assert 0 < report.max_residual < 1e-6
    assert 0 < report.max_orthogonality_error < 1e-6
    assert report.seconds > 0


def test_a_failed_solve_is_repaired_on_the_cpu_or_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest = solver.eigenpairs
    good = decompose_many(GRAPHS)

    def wrong_in_float32(operator: torch.Tensor, precision: torch.dtype) -> Any:
        values, vectors = honest(operator, precision)
        return values, vectors * (1.01 if precision == torch.float32 else 1.0)

    monkeypatch.setattr(solver, "eigenpairs", wrong_in_float32)
    with monkeypatch.context() as gpu:
        gpu.setitem(solver._PRECISION, "cpu", torch.float32)
        repaired = decompose_many(GRAPHS)
    assert torch.equal(repaired.eigenvectors, good.eigenvectors)
    assert "solved in float64 on the CPU" in caplog.text
    monkeypatch.setattr(solver, "eigenpairs", lambda m, p: (honest(m, p)[0], torch.nan * m))
    with pytest.raises(SpectrumError, match=r"batched solver of graphs 0\.\.50 failed its checks"):
        decompose_many(GRAPHS)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match="matrix='lap': choose from laplacian, adjacency"):
        decompose_many(GRAPHS, matrix="lap")  # type: ignore[arg-type]
    with pytest.raises(SpectrumError, match="do not match the sizes"):
        ManySpectra(torch.tensor([2]), torch.ones(2), torch.ones(3), ManyReport(0, 0, 0))


def test_odd_graphs_of_known_spectrum() -> None:
    names = ("one", "four", "pair")
    spectra = decompose_many(from_networkx(odd_graphs()[:3]))
    found = {name: spectra[i][0].tolist() for i, name in enumerate(names)}
    assert found == {"one": [1.0], "four": [1.0] * 4, "pair": [0.0, 2.0]}
    assert repr(spectra) == "ManySpectra(graphs=3, nodes=7, device=cpu)"
    assert torch.equal(spectra[-1][0], spectra[2][0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("matrix", ["laplacian", "adjacency-with-loops"])
def test_a_gpu_finds_the_same(matrix: Any) -> None:
    ours = decompose_many(GRAPHS, matrix=matrix, device="cuda")
    theirs = decompose_many(GRAPHS, matrix=matrix)
    torch.testing.assert_close(ours.eigenvalues.cpu(), theirs.eigenvalues, rtol=0, atol=2e-7)
    for number in range(len(GRAPHS)):
        values, vectors = (part.cpu() for part in ours[number])
        dense = torch.as_tensor(matrix_of(GRAPHS, number, matrix)).float()
        torch.testing.assert_close((vectors * values) @ vectors.T, dense, rtol=0, atol=1e-5)


CPU = torch.device("cpu")


def test_blocks_of_one_size_are_cut_out_of_the_diagonal() -> None:
    generator = np.random.default_rng(0)
    parts = [generator.normal(size=(n, n)) for n in (2, 3, 3, 3, 1)]
    parts[2][1] = 0.0  # a row without entries
    joined = sp.block_diag(parts, format="csr")
    found = solver.dense_blocks(joined, 5, 2, 3, CPU)
    np.testing.assert_array_equal(found, parts[2:4])
    np.testing.assert_array_equal(solver.dense_blocks(joined, 11, 1, 1, CPU), [parts[4]])


def test_rayleigh_quotients_repair_a_float32_solve() -> None:
    graph = nx.random_regular_graph(3, 60, seed=0)
    laplacian = normalised_laplacian(nx.to_scipy_sparse_array(graph, dtype=float))
    operator = torch.as_tensor(laplacian.toarray())[None]
    exact = torch.linalg.eigvalsh(operator)
    plain = torch.linalg.eigvalsh(operator.float()).double()
    refined, vectors = solver.eigenpairs(operator, torch.float32)
    assert (refined - exact).abs().max() < 1e-9 < (plain - exact).abs().max()
    assert (refined.diff() >= 0).all()
    assert max_residual(operator, refined, vectors) < 1e-5
    assert max_orthogonality_error(vectors) < 1e-5
