"""Terms of a signal, batch by batch, against dense matrices and against the whole graph."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest
import torch
from tests.drawn import random
from tests.spectrum.known_graphs import adjacency

import specformer as sf
from specformer.errors import SpectrumError
from specformer.graphs import normalised_laplacian
from specformer.nn.conv.node_conv import LinearBases
from specformer.spectrum.implicit import polynomial
from specformer.spectrum.implicit.polynomial import chebyshev_terms

GRAPH = adjacency(nx.gnp_random_graph(30, 0.15, seed=8))
EVERY = torch.arange(30).split(7)


def spectrum(degree: int = 6) -> sf.ImplicitSpectrum:
    return sf.approximate(GRAPH, degree=degree, dtype=torch.float64)


def dense_terms(degree: int, x: torch.Tensor) -> torch.Tensor:
    """``T_0(M) x, T_1(M) x, …`` with M = L − I as matrices, literally."""
    matrix = torch.as_tensor(normalised_laplacian(GRAPH).toarray()) - torch.eye(30)
    before, current = torch.eye(30, dtype=torch.float64), matrix
    found = [before @ x, current @ x]
    for _ in range(degree - 1):
        before, current = current, 2 * matrix @ current - before
        found.append(current @ x)
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("held", [1, 70, 2**26])
def test_terms_are_the_dense_polynomials(held: int, monkeypatch) -> None:
    monkeypatch.setattr(polynomial, "_HELD", held)
    x = random(30, 3)
    terms = chebyshev_terms(spectrum(), x, 30, storage=torch.float64)
    torch.testing.assert_close(terms.values, dense_terms(6, x))


def test_a_batch_combines_its_rows() -> None:
    """Σ_k c_k T_k(L − I) x with c_k from the response at the points, written out."""
    x, degree = random(30, 3), 6
    graph = spectrum(degree)
    gains = random(2, degree + 1, 3, seed=1)
    # Through the points: Σ_k c_k T_k(t_j) = g_j, solved as equations.
    table = torch.cos(torch.arange(degree + 1) * torch.acos(graph.points.values - 1)[:, None])
    coefficients = torch.linalg.solve(table.double(), gains)
    expected = torch.einsum("rkc,nkc->rnc", coefficients, dense_terms(degree, x))
    terms = chebyshev_terms(graph, x, 7, storage=torch.float64)
    found = [rows.filter(rows.x, gains) for rows in terms.batches(EVERY)]
    torch.testing.assert_close(torch.cat(found, dim=1), expected)


def test_batches_are_the_whole_graph_with_gradients() -> None:
    x, graph = random(30, 3), spectrum()
    terms = chebyshev_terms(graph, x, 7, storage=torch.float64)
    weight, bank_weight = random(2, 30, 3, seed=5), random(2, 30, 4, 3, seed=6)
    gains = random(2, 7, 3, seed=1).requires_grad_()
    responses = random(2, 7, 4, seed=2).requires_grad_()
    whole = (graph.filter(x, gains) * weight).sum()
    whole = whole + (graph.filter_bank(x, responses) * bank_weight).sum()
    expected = torch.autograd.grad(whole, (gains, responses))
    total = gains.new_zeros(())
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0)).split(7)
    for nodes, rows in zip(order, terms.batches(order), strict=True):
        assert rows.num_nodes == len(nodes)
        total = total + (rows.filter(rows.x, gains) * weight[:, nodes]).sum()
        total = total + (rows.filter_bank(rows.x, responses) * bank_weight[:, nodes]).sum()
    torch.testing.assert_close(total, whole)
    for own, other in zip(torch.autograd.grad(total, (gains, responses)), expected, strict=True):
        torch.testing.assert_close(own, other)


def test_bases_take_a_batch() -> None:
    torch.manual_seed(0)
    bases, x, graph = LinearBases(2, 3).double(), random(30, 3), spectrum()
    response = random(7, 2, seed=1)
    whole = bases(x, response, graph)
    terms = chebyshev_terms(graph, x, 7, storage=torch.float64)
    found = [bases(rows.x, response, rows) for rows in terms.batches(EVERY)]
    torch.testing.assert_close(torch.cat(found), whole)


def test_bfloat16_is_within_its_bound() -> None:
    """A rounded term is off by 2⁻⁸ of itself at most, a sum of them by the sum of that."""
    x, graph = random(30, 3).float(), spectrum().to(dtype=torch.float32)
    gains = random(7, 3, seed=1).float()
    whole = chebyshev_terms(graph, x, 30)
    brief = chebyshev_terms(graph, x, 30, storage=torch.bfloat16)
    assert brief.values.dtype == torch.bfloat16
    coefficients = torch.linalg.solve(
        torch.cos(torch.arange(7) * torch.acos(graph.points.values.double() - 1)[:, None]),
        gains.double(),
    )
    bound = 2.0**-8 * torch.einsum("kc,nkc->nc", coefficients.abs(), whole.values.double().abs())
    place = [torch.arange(30)]
    (own,), (other,) = (
        [rows.filter(rows.x, gains) for rows in terms.batches(place)] for terms in (whole, brief)
    )
    assert other.dtype == torch.float32
    assert ((own - other).abs() <= bound + 1e-5).all()
    assert not torch.equal(own, other)


def test_only_its_own_signal() -> None:
    x, graph = random(30, 3), spectrum()
    terms = chebyshev_terms(graph, x, 7, storage=torch.float64)
    for rows in terms.batches(EVERY[:1]):
        with pytest.raises(SpectrumError, match="only the signal whose terms it holds"):
            rows.filter(2 * rows.x, random(7, 3))


def test_memory_then_a_file_then_refused(tmp_path: Path, monkeypatch) -> None:
    x = random(30, 3)
    expected = dense_terms(6, x)
    monkeypatch.setattr(polynomial, "available_bytes", lambda _: 100)
    terms = chebyshev_terms(spectrum(), x, 30, storage=torch.float64, folder=tmp_path / "new")
    torch.testing.assert_close(terms.values, expected)
    assert list((tmp_path / "new").iterdir()) == []  # nothing is left behind
    found = [rows.x.clone() for rows in terms.batches(EVERY)]
    torch.testing.assert_close(torch.cat(found), x)
    with pytest.raises(
        SpectrumError,
        match=r"30 nodes with 3 features takes 0.0 GiB at degree 6, but 0.0 GiB of memory are "
        r"free; lower degree, use storage=bfloat16, or give a cache folder",
    ):
        chebyshev_terms(spectrum(), x, 30)
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(polynomial.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SpectrumError, match=r"on the disk of .* lower degree"):
        chebyshev_terms(spectrum(), x, 30, folder=tmp_path)
