"""Landmarks: quadrature for the keys, interpolation for the queries."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.interpolate
import scipy.sparse
import torch
from tests.undropped import undropped

from specformer import SpectralFilter, decompose
from specformer.datasets import csbm
from specformer.errors import SpectrumError
from specformer.spectrum.landmarks import (
    chebyshev_points,
    interpolation_matrix,
    pieced_interpolation,
)
from specformer.training.engine.stacking import stack

GRAPH = csbm(0.4, num_nodes=300, num_features=2, seed=4)
SPECTRUM = decompose(GRAPH, dtype=torch.float64)
#: The graph and a copy of it: every eigenvalue comes twice.
TWICE = decompose(
    scipy.sparse.block_diag([GRAPH.adjacency, GRAPH.adjacency], format="csr"),
    dtype=torch.float64,
)


def test_interpolation_is_scipys():
    places = np.sort(np.random.default_rng(0).uniform(0, 2, 40))
    nodes = chebyshev_points(17)
    values = np.sin(9 * nodes)
    theirs = scipy.interpolate.barycentric_interpolate(nodes, values, places)
    np.testing.assert_allclose(interpolation_matrix(places, 17) @ values, theirs, atol=1e-12)


def test_polynomials_come_back_exactly():
    places = np.array([0.0, 1e-9, 0.7, 1.0, 2.0])
    matrix = interpolation_matrix(places, 9)
    for degree in range(9):
        expected = (places - 1) ** degree
        np.testing.assert_allclose(
            matrix @ (chebyshev_points(9) - 1) ** degree, expected, atol=1e-13
        )


@pytest.mark.parametrize("count", [2, 9, 16, 17, 31, 100])
def test_pieces_give_polynomials_back(count):
    values = np.unique(np.random.default_rng(1).beta(0.3, 2.0, 150)) * 2
    points, matrix = pieced_interpolation(values, count)
    assert len(points) <= count
    np.testing.assert_allclose(points[[0, -1]], values[[0, -1]], atol=1e-15)
    assert (np.diff(points) > 0).all()
    for degree in range(min(count, 16)):
        np.testing.assert_allclose(
            matrix @ (points - 1) ** degree, (values - 1) ** degree, atol=1e-12
        )


def test_pieces_find_a_notch_among_many_values():
    rng = np.random.default_rng(0)
    values = np.unique(
        np.concatenate([rng.uniform(0, 2, 1000), rng.normal(1, 0.02, 1000)]).clip(0, 2)
    )
    notch = lambda x: -np.exp(-(((x - 1) / 0.005) ** 2))  # noqa: E731
    points, matrix = pieced_interpolation(values, 512)
    near = np.abs(matrix @ notch(points) - notch(values)).max()
    evenly = interpolation_matrix(values, 512) @ notch(chebyshev_points(512))
    assert near < 1e-4 < 1e-2 < np.abs(evenly - notch(values)).max()


def test_points_are_left_out_where_tokens_are_fewer():
    assert SPECTRUM.landmarks(20, points=10_000).points is None
    with pytest.raises(SpectrumError, match="points=1"):
        SPECTRUM.landmarks(20, points=1)


@pytest.mark.parametrize("decoder", ["joint", "heads"])
@pytest.mark.parametrize("num_blocks", [1, 2])
@torch.no_grad()
def test_attention_at_points_is_attention_at_tokens(decoder, num_blocks):
    torch.manual_seed(0)
    filt = SpectralFilter(16, 2, num_blocks, decoder=decoder, epsilon=10.0).double()
    tokens = SPECTRUM.distinct.tokens
    exact = filt.decode(tokens)
    errors = [
        float((filt.decode(tokens, SPECTRUM.landmarks(keys, points=2 * keys)) - exact).abs().max())
        for keys in (20, 40, 80)
    ]
    scale = float(exact.abs().max())
    assert errors[2] < 1e-9 * scale
    assert errors[2] < errors[1] < errors[0]


# With the least dropout equal eigenvalues are represented one by one, and nothing is dropped.
@pytest.mark.parametrize("dropout", [0.0, 1e-12])
@pytest.mark.parametrize("points", [None, 160])
@pytest.mark.parametrize("spectrum", [SPECTRUM, TWICE], ids=["once", "twice"])
def test_gradients_and_runs(spectrum, points, dropout):
    torch.manual_seed(0)
    options = {"num_heads": 2, "epsilon": 10.0, "transformer_dropout": dropout}
    models = [undropped(2, 8, 2, **options).double() for _ in range(3)]
    x = torch.randn(spectrum.num_nodes, 2, dtype=torch.float64)
    few = spectrum.landmarks(80, points=points)
    assert (few.points is None) == (points is None)
    assert few.points is None or len(few.points) % 8 == 0
    stacked = stack(models)
    out = stacked(x, spectrum, few)
    factors = torch.randn_like(out)
    (out * factors).sum().backward()
    gradients = dict(stacked.named_parameters())
    for run, model in enumerate(models):
        plain = model(x, spectrum)
        torch.testing.assert_close(out[run], plain, rtol=1e-7, atol=1e-7)
        (plain * factors[run]).sum().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                gradients[name].grad[run], parameter.grad, rtol=1e-6, atol=1e-6
            )
