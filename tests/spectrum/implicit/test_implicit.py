"""Filters as interpolants: against dense eigenvectors, forward, gradients and error."""

from __future__ import annotations

import copy

import networkx as nx
import numpy as np
import pytest
import torch
from tests.drawn import random
from tests.spectrum.known_graphs import SMALL, adjacency
from torch import Tensor
from torch_geometric.data import Data

import specformer as sf
from specformer.datasets.parts import AllRows
from specformer.errors import SpectrumError
from specformer.spectrum import sharded
from specformer.spectrum.implicit import implicit

GRAPH = adjacency(nx.gnp_random_graph(40, 0.12, seed=5))


def both(graph=GRAPH, **options) -> tuple[sf.Spectrum, sf.ImplicitSpectrum]:
    shared = {"dtype": torch.float64, "isolated": options.pop("isolated", "one")}
    return sf.decompose(graph, **shared), sf.approximate(graph, **shared, **options)


def test_it_moves_with_the_data_it_belongs_to() -> None:
    """PyG passes ``non_blocking``, and leaves in silence what it cannot move."""
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    data.spectrum = sf.approximate(data, degree=4)
    moved = data.apply(lambda part: part.to(torch.float64, non_blocking=True))
    assert moved.spectrum.dtype == moved.spectrum.operator.dtype == torch.float64


def polynomial(values: Tensor, coefficients: Tensor) -> Tensor:
    """Σ_p a_p (λ − 1)^p for ``[..., degree + 1, channels]``."""
    powers = (values[:, None] - 1.0) ** torch.arange(coefficients.shape[-2], dtype=values.dtype)
    return powers @ coefficients


@pytest.mark.parametrize("isolated", ["one", "zero"])
@pytest.mark.parametrize("name", SMALL)
def test_polynomials_are_exact(name: str, isolated) -> None:
    exact, interpolated = both(SMALL[name], degree=9, isolated=isolated)
    x, coefficients = random(exact.num_nodes, 3), random(10, 3, seed=1)
    torch.testing.assert_close(
        interpolated.filter(x, polynomial(interpolated.points.values, coefficients)),
        exact.filter(x, polynomial(exact.eigenvalues, coefficients)),
        rtol=0,
        atol=1e-9,
    )


@pytest.mark.parametrize("degree", [1, 2, 7, 64])
def test_every_degree(degree: int) -> None:
    exact, interpolated = both(degree=degree)
    x, coefficients = random(40, 2), random(min(degree, 12) + 1, 2, seed=1)
    torch.testing.assert_close(
        interpolated.filter(x, polynomial(interpolated.points.values, coefficients)),
        exact.filter(x, polynomial(exact.eigenvalues, coefficients)),
        rtol=0,
        atol=1e-9,
    )


def test_a_vector_and_one_response() -> None:
    exact, interpolated = both(degree=30)
    x = random(40)
    out = interpolated.filter(x, torch.exp(-interpolated.points.values))
    torch.testing.assert_close(out, exact.filter(x, torch.exp(-exact.eigenvalues)))
    assert out.shape == (40,)


def test_the_error_is_the_interpolants() -> None:
    """exp(−4(λ−1)²) is entire: the error falls fast, never above what interpolation leaves."""
    x = random(40, 1)
    grid = torch.linspace(0, 2, 4001, dtype=torch.float64)
    errors = []
    for degree in (4, 8, 16, 32):
        exact, interpolated = both(degree=degree)
        at_points = torch.exp(-4 * (interpolated.points.values - 1) ** 2)
        predicted = interpolated.interpolate(at_points[:, None], grid)[:, 0]
        bound = (predicted - torch.exp(-4 * (grid - 1) ** 2)).abs().max()
        truth = exact.filter(x, torch.exp(-4 * (exact.eigenvalues - 1) ** 2))
        error = (interpolated.filter(x, at_points) - truth).norm() / x.norm()
        assert error <= bound + 1e-12
        errors.append(float(bound))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[3] < 1e-10


def test_ends_and_middle_are_met() -> None:
    """A star has only the eigenvalues 0, 1 and 2, so that any response is exact at degree 2."""
    exact, interpolated = both(SMALL["star"], degree=2)
    x = random(7, 4)
    response = random(3, 4, seed=1)
    torch.testing.assert_close(
        interpolated.filter(x, response), exact.filter(x, response[exact.distinct.index])
    )


def test_runs_and_channels_are_columns() -> None:
    _, interpolated = both(degree=5)
    x, gains = random(2, 3, 40, 4), random(2, 3, 6, 4, seed=1)
    out = interpolated.filter(x, gains)
    for one in range(2):
        for other in range(3):
            alone = interpolated.filter(x[one, other], gains[one, other])
            torch.testing.assert_close(out[one, other], alone)
    shared = interpolated.filter(x[0, 0], gains)
    torch.testing.assert_close(shared[1, 2], interpolated.filter(x[0, 0], gains[1, 2]))
    same = interpolated.filter(x, gains[0, 0])
    torch.testing.assert_close(same[1, 2], interpolated.filter(x[1, 2], gains[0, 0]))


def test_a_bank_is_its_filters() -> None:
    exact, interpolated = both(degree=6)
    x, responses = random(2, 40, 3), random(2, 7, 4, seed=1)
    bank = interpolated.filter_bank(x, responses)
    assert bank.shape == (2, 40, 4, 3)
    for head in range(4):
        alone = interpolated.filter(x, responses[..., head : head + 1])
        torch.testing.assert_close(bank[..., head, :], alone)
    responses = random(2, exact.num_eigenpairs, 4, seed=1)
    bank = exact.filter_bank(x, responses)
    for head in range(4):
        alone = exact.filter(x, responses[..., head : head + 1])
        torch.testing.assert_close(bank[..., head, :], alone)


@pytest.mark.parametrize("kept", [0, 2**28])
def test_gradients(kept: int, monkeypatch) -> None:
    monkeypatch.setattr(implicit, "_KEPT", kept)
    interpolated = sf.approximate(SMALL["weighted"], degree=5, dtype=torch.float64)
    x, gains = random(2, 14, 3).requires_grad_(), random(2, 6, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(interpolated.filter, (x, gains))
    responses = random(2, 6, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(interpolated.filter_bank, (x, responses))
    assert torch.autograd.gradcheck(interpolated.filter, (x.detach(), gains))
    assert torch.autograd.gradcheck(interpolated.filter, (x, gains.detach()))


def test_weights_and_sources() -> None:
    edges, weight = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    options = {"num_nodes": 5, "edge_weight": weight, "dtype": torch.float64}
    exact = sf.decompose(edges, **options)
    interpolated = sf.approximate(edges, degree=4, **options)
    x = random(5, 2)
    torch.testing.assert_close(
        interpolated.filter(x, interpolated.points.values**2),
        exact.filter(x, exact.eigenvalues**2),
    )
    assert float(interpolated.tokens.weights[0]) == 1.0  # one component with edges
    assert sf.approximate(nx.path_graph(3), degree=4).num_nodes == 3


def test_quantiles_are_the_spectrum() -> None:
    exact, interpolated = both(SMALL["grid"], probes=16, steps=16)
    np.testing.assert_allclose(interpolated.quantiles(16), exact.eigenvalues, atol=1e-9)


def test_moving_and_other_degrees() -> None:
    _, interpolated = both(degree=8)
    brief = interpolated.to(dtype=torch.float32)
    assert brief.dtype == brief.points.values.dtype == brief.tokens.values.dtype == torch.float32
    assert brief.cpu().degree == 8
    x = random(40, 2)
    torch.testing.assert_close(
        brief.filter(x.float(), brief.points.values).double(),
        interpolated.filter(x, interpolated.points.values),
        rtol=1e-5,
        atol=1e-5,
    )
    other = interpolated.with_degree(3)
    assert len(other.points.values) == 4
    assert other.tokens is interpolated.tokens


def test_what_it_says_of_itself() -> None:
    spectrum = sf.approximate(SMALL["ring"], degree=8, probes=3, steps=6, seed=2)
    summary = spectrum.summary()
    assert {key: summary[key] for key in ("num_nodes", "degree", "probes", "steps", "seed")} == {
        "num_nodes": 8,
        "degree": 8,
        "probes": 3,
        "steps": 6,
        "seed": 2,
    }
    assert "num_nodes=8" in repr(spectrum)
    assert "degree=8" in repr(spectrum)


@pytest.mark.parametrize("degree", [0, -1, 2.5])
def test_bad_degree(degree) -> None:
    with pytest.raises(SpectrumError, match=f"degree={degree} must be a whole number, at least 1"):
        sf.approximate(SMALL["ring"], degree=degree)
    with pytest.raises(SpectrumError, match=f"degree={degree}"):
        sf.approximate(SMALL["ring"]).with_degree(degree)


def test_a_bad_degree_is_told_before_the_work(monkeypatch) -> None:
    monkeypatch.setattr(implicit, "spectral_density", None)
    with pytest.raises(SpectrumError, match="degree=0"):
        sf.approximate(SMALL["ring"], degree=0)
    monkeypatch.setattr(sharded, "spectral_density", None)
    with pytest.raises(SpectrumError, match="degree=0"):
        sharded.approximate_rows(SMALL["ring"], AllRows(8), degree=0)


@pytest.mark.parametrize(
    ("x", "response", "message"),
    [
        (torch.ones(1, 2), torch.ones(5), r"x has shape \[1, 2\], but the spectrum has 8 nodes"),
        (torch.ones(8, 2), torch.ones(8), "response has 8 values, but the spectrum has 5 points"),
        (torch.ones(8, 2).double(), torch.ones(5), "x is torch.float64, but the spectrum"),
    ],
)
def test_signals_and_responses_that_do_not_fit_are_named(x, response, message: str) -> None:
    with pytest.raises(SpectrumError, match=message):
        sf.approximate(SMALL["ring"], degree=4).filter(x, response)


@pytest.mark.parametrize(
    ("x", "responses", "message"),
    [
        (torch.ones(8), torch.ones(5, 2), r"x has shape \[8\], but \[..., 8, channels\]"),
        (torch.ones(8, 3), torch.ones(5), r"response has shape \[5\], but \[..., 5, channels\]"),
        (torch.ones(8, 3), torch.ones(4, 2), "response has 4 values, .* 5 points"),
    ],
)
def test_a_bank_that_does_not_fit_is_named(x, responses, message: str) -> None:
    with pytest.raises(SpectrumError, match=message):
        sf.approximate(SMALL["ring"], degree=4).filter_bank(x, responses)


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_have_gradients(lead: tuple[int, ...], transposed: bool) -> None:
    spectrum = sf.approximate(SMALL["weighted"], degree=3, dtype=torch.float64)
    x, response = random(*lead, spectrum.num_nodes, 2), random(4, 2, seed=1).requires_grad_()
    x = (x.mT.contiguous().mT if transposed else x).requires_grad_()
    assert torch.autograd.gradgradcheck(spectrum.filter, (x, response))


def test_the_gradient_of_a_gradient_is_that_of_dense_eigenvectors() -> None:
    """A gradient penalty: ‖∂ Σ y / ∂x‖² depends on the response alone."""
    exact, interpolated = both(degree=6)
    coefficients = random(4, 2, seed=1).requires_grad_()
    x = random(exact.num_nodes, 2).requires_grad_()
    found = []
    for spectrum, values in (
        (exact, exact.eigenvalues),
        (interpolated, interpolated.points.values),
    ):
        out = spectrum.filter(x, polynomial(values, coefficients)).sum()
        (slope,) = torch.autograd.grad(out, x, create_graph=True)
        found.append(torch.autograd.grad((slope**2).sum(), coefficients)[0])
    torch.testing.assert_close(found[1], found[0])


def test_a_deep_copy_filters_alike_and_shares_nothing() -> None:
    spectrum = sf.approximate(SMALL["ring"], degree=4)
    twin = copy.deepcopy(spectrum)
    x, response = torch.ones(8, 1), torch.arange(5.0)
    assert torch.equal(twin.filter(x, response), spectrum.filter(x, response))
    assert twin.operator.values().data_ptr() != spectrum.operator.values().data_ptr()
    assert twin.tokens.values.data_ptr() != spectrum.tokens.values.data_ptr()
    assert twin.report == spectrum.report
