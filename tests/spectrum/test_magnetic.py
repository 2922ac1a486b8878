"""Directed graphs: the magnetic Laplacian against closed forms, and real models on it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Batch, Data

import specformer as sf
from specformer.graphs.convert import magnetic_laplacian

CYCLE = np.stack([np.arange(7), (np.arange(7) + 1) % 7])
#: Directed, with a mutual edge, a loop, a sink and a node without edges.
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 0], [1, 0, 2, 3, 1, 2, 4, 5]])


def dense_laplacian(charge: float) -> np.ndarray:
    """The definition, entry by entry."""
    A = np.zeros((7, 7))
    A[tuple(EDGES.numpy())] = 1.0
    size = np.maximum(A, A.T)
    degree = size.sum(axis=1)
    root = np.sqrt(np.where(degree > 0, degree, 1.0))
    phase = np.exp(2j * np.pi * charge * (A - A.T))
    return np.eye(7) - size * phase / root / root[:, None]


@pytest.mark.parametrize("charge", [0.0, 0.1, 0.25, -0.25])
def test_a_directed_cycle_has_its_closed_form(charge: float) -> None:
    """λ = 1 − cos(2π(k/n + q)): waves around the cycle gain a phase at every step."""
    spectrum = sf.decompose(CYCLE, charge=charge, dtype=torch.float64)
    expected = np.sort(1 - np.cos(2 * np.pi * (np.arange(7) / 7 + charge)))
    np.testing.assert_allclose(spectrum.eigenvalues.numpy(), expected, atol=1e-12)


def test_the_laplacian_is_its_definition_from_every_source() -> None:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(7))
    graph.add_edges_from(EDGES.T.tolist())
    matrix = sp.coo_array((np.ones(8), tuple(EDGES.numpy())), shape=(7, 7))
    for source in (EDGES, Data(edge_index=EDGES, num_nodes=7), graph, matrix):
        found = magnetic_laplacian(source, 0.2, num_nodes=7)
        np.testing.assert_allclose(found.toarray(), dense_laplacian(0.2), atol=1e-12)


@pytest.mark.parametrize(("edges", "n"), [([[], []], 3), ([[0], [0]], 1), ([[0, 1], [0, 1]], 2)])
def test_a_laplacian_without_entries_has_the_eigenvalue_zero(edges: list, n: int) -> None:
    ends = torch.tensor(edges, dtype=torch.long)
    assert magnetic_laplacian(ends, 0.25, n, isolated="zero").toarray().tolist() == [[0.0] * n] * n
    spectrum = sf.decompose(ends, n, charge=0.25, isolated="zero")
    assert spectrum.eigenvalues.tolist() == [0.0] * n
    stored = sf.AddSpectrum(charge=0.25, isolated="zero")(Data(edge_index=ends, num_nodes=n))
    assert stored.spectrum.eigenvalues.tolist() == [0.0] * n


def test_without_charge_it_is_the_undirected_graph() -> None:
    one = sf.decompose(EDGES, 7, charge=0.0, dtype=torch.float64)
    other = sf.decompose(EDGES, 7, dtype=torch.float64)
    torch.testing.assert_close(one.eigenvalues, other.eigenvalues)


@pytest.mark.parametrize("channels", [1, 4, 5])
def test_filters_are_those_of_the_complex_matrix(channels: int) -> None:
    spectrum = sf.decompose(EDGES, 7, charge=0.2, dtype=torch.float64)
    x = torch.randn(7, channels, dtype=torch.float64)
    gains = torch.randn(7, dtype=torch.float64)
    U = spectrum.eigenvectors
    operator = U @ torch.diag(gains).to(U) @ U.mH
    half = (channels + 1) // 2
    imaginary = torch.nn.functional.pad(x[:, half:], (0, 2 * half - channels))
    z = operator @ torch.complex(x[:, :half], imaginary)
    expected = torch.cat([z.real, z.imag], dim=1)[:, :channels]
    torch.testing.assert_close(spectrum.filter(x, gains), expected)
    bank = spectrum.filter_bank(x, torch.stack([gains, gains**2], dim=1))
    torch.testing.assert_close(bank[:, 0], expected)
    laplacian = torch.as_tensor(dense_laplacian(0.2))
    torch.testing.assert_close(U @ torch.diag(spectrum.eigenvalues).to(U) @ U.mH, laplacian)


def model_of(**options: Any) -> sf.Specformer:
    torch.manual_seed(0)
    return sf.Specformer(3, 8, 4, **options).double().eval()


@pytest.mark.parametrize("space", ["output", "hidden"])
def test_a_real_model_is_blind_to_phases_and_labels_but_not_to_directions(space: Any) -> None:
    model, x = model_of(space=space, num_layers=2), torch.randn(7, 3, dtype=torch.float64)
    spectrum = sf.decompose(EDGES, 7, charge=0.2, dtype=torch.float64)
    out = model(x, spectrum)
    assert out.dtype == torch.float64
    phases = torch.exp(1j * torch.rand(7, dtype=torch.float64))
    turned = type(spectrum)(spectrum.eigenvalues, spectrum.eigenvectors * phases)
    torch.testing.assert_close(model(x, turned), out)
    order = torch.randperm(7)
    relabelled = sf.decompose(order.argsort()[EDGES], 7, charge=0.2, dtype=torch.float64)
    torch.testing.assert_close(model(x[order], relabelled), out[order], rtol=0, atol=1e-8)
    reversed_edges = sf.decompose(EDGES.flip(0), 7, charge=0.2, dtype=torch.float64)
    torch.testing.assert_close(reversed_edges.eigenvalues, spectrum.eigenvalues)
    assert (model(x, reversed_edges) - out).abs().max() > 1e-3


def test_it_trains_and_has_gradients() -> None:
    model = model_of(norm="layer", activation="relu", transform=True).train()
    spectrum = sf.decompose(EDGES, 7, charge=0.2, dtype=torch.float64)
    model(torch.randn(7, 3, dtype=torch.float64), spectrum).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_transform_stores_it() -> None:
    data = sf.AddSpectrum(charge=0.25, k=3)(Data(torch.rand(7, 2), EDGES))
    assert data.eigenvectors.is_complex()
    again = Batch.from_data_list([data, data])[1]
    assert torch.equal(again.spectrum.eigenvectors, data.spectrum.eigenvectors)
    assert again.spectrum.num_eigenpairs >= 3
    assert sf.Specformer(2, 8, 3)(data.x, again.spectrum).shape == (7, 3)
    with pytest.raises(sf.SpectrumError, match="complex spectra: use AddSpectrum without charge"):
        sf.GraphSpecformer([1], [1], 8, 1, num_heads=2, in_channels=2)(data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"charge": "much"}, "charge='much' must be a finite number"),
        ({"charge": 0.1, "cache": "folder"}, "cache is not for directed graphs"),
        ({"charge": 0.1, "solver": "lanczos"}, "solver='lanczos' is not for directed graphs"),
    ],
)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sf.SpecformerError, match=message):
        sf.decompose(EDGES, 7, **options)


def test_what_is_for_real_spectra_says_so() -> None:
    spectrum = sf.decompose(EDGES, 7, charge=0.2)
    with pytest.raises(sf.SpectrumError, match="saving is for real spectra"):
        spectrum.save("file")
    with pytest.raises(sf.ConfigError, match="needs real eigenvectors"):
        sf.Specformer(3, 8, 4, bases="ffn")(torch.rand(7, 3), spectrum)
    assert spectrum.to(torch.float64).eigenvectors.dtype == torch.complex128


def test_signals_that_do_not_fit_are_named() -> None:
    spectrum = sf.decompose([[0, 1, 2], [1, 2, 0]], charge=0.25)
    with pytest.raises(
        sf.SpecformerError, match=r"x has shape \[4, 2\], but the spectrum has 3 nodes"
    ):
        spectrum.gft(torch.ones(4, 2))
    with pytest.raises(sf.SpecformerError, match="coefficients must be a tensor, not list"):
        spectrum.igft([1.0, 0.0, 0.0])  # type: ignore[arg-type]
