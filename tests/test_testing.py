"""The public assertions pass what is right and name what is wrong, with its measure."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.known_graphs import SMALL
from torch import Tensor, nn
from torch_geometric.data import Data

from specformer import Specformer, Spectrum, approximate, decompose
from specformer.errors import ConfigError
from specformer.graphs import as_graph, normalised_laplacian
from specformer.testing import (
    assert_basis_invariant,
    assert_eigenpairs,
    assert_permutation_equivariant,
)

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
STAR = SMALL["star"]


class LowPass(nn.Module):
    """A user's own model: a heat kernel and a linear map, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, spectrum: Spectrum) -> Tensor:
        return self.dropout(self.linear(spectrum.filter(x, torch.exp(-spectrum.eigenvalues))))


def test_noise_is_not_taken_for_a_lost_symmetry() -> None:
    """A function around a module hides that it is in training mode."""
    model, x = LowPass(), torch.randn(7, 2)
    spectrum = decompose(STAR)
    checks = ((assert_basis_invariant, spectrum), (assert_permutation_equivariant, STAR))
    for check, given in checks:
        with pytest.raises(AssertionError, match=r"two calls .* call eval\(\) on the model"):
            check(lambda x, s: model(x, s), x, given)
    model.eval()
    assert_basis_invariant(lambda x, s: model(x, s).sum(dim=0), x, spectrum)  # one row per graph


def test_spectra_of_directed_graphs() -> None:
    """The eigenvalues of the cycle are all different, one of the star is repeated."""
    model, cycle = Specformer(2, 8, 3), decompose(nx.cycle_graph(6, nx.DiGraph), charge=0.25)
    assert_basis_invariant(model, torch.randn(6, 2), cycle)
    out = nx.DiGraph([(0, leaf) for leaf in range(1, 6)])
    assert_basis_invariant(model, torch.randn(6, 2), decompose(out, charge=0.25))
    with pytest.raises(AssertionError, match="sign flips change the output"):
        assert_basis_invariant(lambda x, s: s.eigenvectors.real, torch.randn(6, 2), cycle)


def test_relabelled_edges_keep_their_direction_and_their_sign() -> None:
    seen: list[Tensor] = []

    def watching(x: Tensor, spectrum: Spectrum) -> Tensor:
        seen.append(spectrum.eigenvalues)
        return x

    cycle, triangle = nx.cycle_graph(5, nx.DiGraph), torch.tensor([[0, 1, 2], [1, 2, 0]])
    assert_permutation_equivariant(watching, torch.randn(5, 2), cycle, charge=0.25)
    waves = 1.0 - np.cos(2.0 * np.pi * (np.arange(5) / 5 + 0.25))
    for values in seen:
        np.testing.assert_allclose(values, np.sort(waves), atol=1e-6)
    seen.clear()
    negative = {"edge_weight": -torch.ones(3)}
    assert_permutation_equivariant(watching, torch.randn(3, 2), triangle, **negative)
    for values in seen:
        np.testing.assert_allclose(values, [0.5, 0.5, 2.0], atol=1e-6)


def test_what_cannot_be_checked_is_named() -> None:
    x, spectrum = torch.randn(7, 2), decompose(STAR)
    with pytest.raises(ConfigError, match=r"must come from sf\.decompose, not be a tuple"):
        assert_eigenpairs(STAR, (spectrum.eigenvalues, spectrum.eigenvectors))
    with pytest.raises(ConfigError, match="not be a ImplicitSpectrum"):
        assert_basis_invariant(LowPass(), x, approximate(STAR))
    with pytest.raises(ConfigError, match=r"takes real eigenvectors, not those of charge"):
        assert_eigenpairs(STAR, decompose(STAR, charge=0.25))
    with pytest.raises(ConfigError, match="the model returns a tuple, but one tensor"):
        assert_basis_invariant(lambda x, s: (x, s), x, spectrum)
    with pytest.raises(ConfigError, match=r"x has shape \[7\], but \[\.\.\., n, in\]"):
        assert_permutation_equivariant(LowPass(), x[:, 0], STAR)


# --- permutation --------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "graph",
    [
        torch.tensor([[0, 0, 0, 3], [1, 2, 3, 4]]),
        Data(edge_index=torch.tensor([[0, 0, 0, 3], [1, 2, 3, 4]]), num_nodes=6),
        nx.cycle_graph(6),
        sp.csr_matrix(nx.to_scipy_sparse_array(nx.path_graph(6))),
        as_graph([[0], [1]], num_nodes=6),
    ],
    ids=["edge_index", "PyG", "NetworkX", "SciPy", "Graph"],
)
def test_equivariance_of_any_module_on_any_source(graph, dtype: torch.dtype) -> None:
    for model in (LowPass().to(dtype), Specformer(2, 8, 3).to(dtype)):
        assert_permutation_equivariant(model, torch.randn(6, 2, dtype=dtype), graph, k=3)


def test_equivariance_with_edge_weights() -> None:
    weights = [1.0, 2.0, 3.0]
    x = torch.randn(4, 2)
    edges = [[0, 1, 2], [1, 2, 3]]
    assert_permutation_equivariant(LowPass(), x, edges, edge_weight=weights)
    seen = []
    assert_permutation_equivariant(lambda x, s: seen.append(s) or x, x, edges, edge_weight=weights)
    expected = decompose(edges, edge_weight=weights).eigenvalues
    torch.testing.assert_close(seen[0].eigenvalues, expected)


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_looks_at_positions_is_caught(seed: int) -> None:
    message = (
        r"not permutation equivariant: outputs differ by \d\.\de[+-]\d\d, more than atol=1e-05"
    )
    with pytest.raises(AssertionError, match=message):
        assert_permutation_equivariant(
            lambda x, s: x * torch.arange(7.0)[:, None], torch.ones(7, 2), STAR, seed=seed
        )


def test_a_model_that_looks_at_signs_is_caught() -> None:
    with pytest.raises(AssertionError, match="not permutation equivariant"):
        assert_permutation_equivariant(
            lambda x, s: s.eigenvectors @ s.eigenvectors.T[:, :1],
            torch.ones(14, 1),
            SMALL["weighted"],
        )


def test_tolerance_is_the_callers() -> None:
    def slightly_wrong(x: Tensor, spectrum: Spectrum) -> Tensor:
        return x + 1e-3 * torch.arange(7.0)[:, None]

    assert_permutation_equivariant(slightly_wrong, torch.ones(7, 2), STAR, atol=0.1)
    with pytest.raises(AssertionError, match=r"more than atol=0\.0001"):
        assert_permutation_equivariant(slightly_wrong, torch.ones(7, 2), STAR, atol=1e-4)


def test_not_a_number_is_never_equal() -> None:
    with pytest.raises(AssertionError, match="outputs differ by nan"):
        assert_permutation_equivariant(lambda x, s: x * torch.nan, torch.ones(7, 2), STAR)


# --- basis --------------------------------------------------------------------------------------


@BOTH
def test_invariance_of_any_module(dtype: torch.dtype) -> None:
    spectrum = decompose(STAR, dtype=dtype)
    for model in (LowPass().to(dtype), Specformer(2, 8, 3).to(dtype)):
        assert_basis_invariant(model, torch.randn(7, 2, dtype=dtype), spectrum)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x, s: s.eigenvectors, "sign flips change the output"),
        (
            lambda x, s: (s.eigenvectors**4).sum(dim=1, keepdim=True),
            "rotations inside eigenspaces change the output",
        ),
        (
            lambda x, s: s.eigenvectors[:, -1:] ** 2,
            "the order of eigenpairs changes the output: outputs differ by",
        ),
        (
            # Blind to signs and eigenspaces, but tells places apart.
            lambda x, s: s.filter(
                x, torch.arange(7.0) * (s.distinct.counts == 1)[s.distinct.index]
            ),
            "the order of eigenpairs changes the output",
        ),
    ],
)
def test_what_depends_on_the_basis_is_named(model, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_basis_invariant(model, torch.randn(7, 2), decompose(STAR))


def test_shapes_that_change_are_named() -> None:
    widths = iter((2, 2, 1))
    with pytest.raises(AssertionError, match=r"shapes \(7, 1\) and \(7, 2\) differ"):
        assert_basis_invariant(lambda x, s: x[:, : next(widths)], torch.ones(7, 2), decompose(STAR))


def test_modules_are_evaluated_and_put_back() -> None:
    model = LowPass()
    model.linear.eval()
    assert_basis_invariant(model, torch.randn(7, 2), decompose(STAR))
    assert (model.training, model.linear.training, model.dropout.training) == (True, False, True)
    with pytest.raises(ZeroDivisionError):
        assert_basis_invariant(lambda x, s: 1 / 0, torch.ones(7, 2), decompose(STAR))


# --- eigenpairs ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("name", SMALL)
def test_eigenpairs_of_a_graph_or_its_laplacian(name: str, dtype: torch.dtype) -> None:
    laplacian = normalised_laplacian(SMALL[name])
    for k in (None, 1):
        spectrum = decompose(SMALL[name], k=k, dtype=dtype)
        assert_eigenpairs(SMALL[name], spectrum)
        assert_eigenpairs(laplacian.toarray(), spectrum)
        assert_eigenpairs(torch.as_tensor(laplacian.toarray()), spectrum)
        if (laplacian.data < 0).any():
            assert_eigenpairs(laplacian, spectrum)


def test_isolated_nodes_at_zero_through_the_laplacian() -> None:
    graph = SMALL["isolated"]
    spectrum = decompose(graph, isolated="zero")
    assert_eigenpairs(normalised_laplacian(graph, isolated="zero"), spectrum)
    with pytest.raises(AssertionError, match=r"largest residual is 1\.0e\+00"):
        assert_eigenpairs(graph, spectrum)


def test_an_edge_index_gets_its_nodes_from_the_spectrum() -> None:
    edges = torch.tensor([[0], [1]])
    assert_eigenpairs(edges, decompose(edges, num_nodes=4))


def test_eigenpairs_of_a_graph_with_negative_weights() -> None:
    """A triangle whose weights have a negative product has no eigenvalue 0."""
    matrix = np.array([[0.0, -1.0, 2.0], [-1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    root = np.sqrt(np.abs(matrix).sum(axis=1))
    pairs = np.linalg.eigh(np.eye(3) - matrix / root / root[:, None])
    spectrum = Spectrum(*(torch.as_tensor(part) for part in pairs))
    graph = nx.from_numpy_array(matrix)
    row, column = matrix.nonzero()
    weights = torch.as_tensor(matrix[row, column])
    data = Data(
        edge_index=torch.as_tensor(np.stack([row, column])), edge_weight=weights, num_nodes=3
    )
    for source in (graph, data):
        assert_eigenpairs(source, spectrum, atol=1e-12)
        with pytest.raises(AssertionError, match="not eigenpairs"):
            assert_eigenpairs(source, decompose(abs(sp.csr_array(matrix))))


def test_eigenpairs_of_a_sparse_tensor() -> None:
    entries = SMALL["path"].tocoo()
    places = torch.as_tensor(np.stack(entries.coords))
    tensor = torch.sparse_coo_tensor(
        places, torch.as_tensor(entries.data), entries.shape, check_invariants=True
    )
    assert_eigenpairs(tensor, decompose(SMALL["path"]))


def wrong(values=None, vectors=None) -> Spectrum:
    right = decompose(SMALL["path"], dtype=torch.float64)
    return Spectrum(
        right.eigenvalues if values is None else values(right.eigenvalues.clone()),
        right.eigenvectors if vectors is None else vectors(right.eigenvectors.clone()),
    )


@pytest.mark.parametrize(
    ("spectrum", "message"),
    [
        (wrong(values=lambda e: e.flip(0)), "eigenvalues are not ascending: one falls by"),
        (wrong(values=lambda e: e - 0.01), r"eigenvalues leave \[0, 2\]: they span \[-0\.01"),
        (wrong(values=lambda e: e * 0.999), "not eigenpairs: the largest residual is 2.0e-03"),
        (wrong(vectors=lambda u: u * 1.01), r"not orthonormal: the largest entry .* is 2\.0e-02"),
        (wrong(vectors=lambda u: u * torch.nan), "some numbers are not finite"),
        (wrong(values=lambda e: e * torch.nan), "some numbers are not finite"),
        (wrong(vectors=lambda u: u[:5]), "the Laplacian has 7 rows, eigenvectors 5"),
    ],
)
def test_what_is_no_eigenpair_is_named(spectrum: Spectrum, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_eigenpairs(normalised_laplacian(SMALL["path"]), spectrum)


def test_a_copy_in_place_of_a_missing_pair_is_caught() -> None:
    ring = decompose(SMALL["ring"], dtype=torch.float64)
    index = torch.tensor([0, 1, 2, 3, 4, 5, 7, 7])
    doubled = Spectrum(ring.eigenvalues[index], ring.eigenvectors[:, index])
    with pytest.raises(AssertionError, match=r"\|UᵀU − I\| is 1\.0e\+00"):
        assert_eigenpairs(SMALL["ring"], doubled)


def test_tolerance_of_eigenpairs_is_the_callers() -> None:
    spectrum = wrong(values=lambda e: e * 0.999)
    assert_eigenpairs(SMALL["path"], spectrum, atol=0.01)
    with pytest.raises(AssertionError, match="more than atol=1e-05"):
        assert_eigenpairs(
            np.asarray(normalised_laplacian(SMALL["path"]).toarray()), spectrum, atol=1e-5
        )


def test_a_model_of_whole_graphs_is_named() -> None:
    with pytest.raises(AssertionError, match=r"not one row per node: the output is \[2\]"):
        assert_permutation_equivariant(lambda x, _: x.sum(dim=0), torch.ones(7, 2), SMALL["path"])
