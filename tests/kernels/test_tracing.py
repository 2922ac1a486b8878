"""Gradients written by hand: gradcheck of all that run on a CPU, and second derivatives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.kernels.triton.graphs import random
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from specformer.errors import ConfigError
from specformer.kernels.norms import _Scaled
from specformer.kernels.segments import (
    contiguous_segments,
    filtered_sum,
    scattered_segments,
    segment_softmax,
    segment_sum,
)
from specformer.kernels.weighted_attention import carried_attention
from specformer.nn.conv.embedding import summed_rows
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import affine, weighted_sum
from specformer.nn.layers.sparse_features import SparseFeatures

SCATTERED = scattered_segments(torch.tensor([1, 0, 1, 2]), 2)
SENT = scattered_segments(torch.tensor([1, 0, 1, 0]), 2)
FOLLOWING = contiguous_segments(torch.tensor([2, 1]), 4)
FEATURES = SparseFeatures.from_scipy(sp.csr_array(np.eye(5)[[0, 3, 3]])).to(dtype=torch.float64)
COUNTED = torch.tensor([True, True, False, True])

#: A function and the shapes of what it takes, by whether it has a second derivative.
TWICE: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "affine": (affine, [(5, 3), (4, 3), (4,)]),
    "affine of runs": (affine, [(5, 3), (2, 4, 3), (2, 4)]),
    "affine of no rows": (affine, [(0, 3), (4, 3), (4,)]),
    "scaled": (_Scaled.apply, [(5, 3), (2, 3), (2, 3)]),
    "weighted sum": (weighted_sum, [(2, 5, 3, 4), (2, 3, 4)]),
    "all rows normalised": (BatchNorm(2).double(), [(4, 2)]),
}
ONCE: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "rows of a table": (lambda w: summed_rows(torch.tensor([[0, 3], [1, 4]]), w), [(5, 2)]),
    "sparse features": (FEATURES.linear, [(3, 5), (3,)]),
    "segment sum": (lambda x: segment_sum(x, SCATTERED), [(4, 2)]),
    "segment softmax": (lambda x: segment_softmax(x, FOLLOWING), [(4, 2)]),
    "filtered sum": (lambda m, s: filtered_sum(m, s, SENT, FOLLOWING), [(2, 3), (4, 3)]),
    "some rows normalised": (lambda x: BatchNorm(2).double()(x, COUNTED), [(4, 2)]),
}


def inputs(shapes: list[tuple[int, ...]], transposed: bool) -> list[Tensor]:
    """Random numbers; with ``transposed`` no matrix of them lies row by row."""
    found = []
    for seed, shape in enumerate(shapes):
        x = random(*shape, seed=seed)
        if transposed and x.dim() > 1:
            x = x.mT.contiguous().mT
        found.append(x.requires_grad_())
    return found


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", [*TWICE, *ONCE])
def test_gradient(name: str, transposed: bool) -> None:
    function, shapes = (TWICE | ONCE)[name]
    given = inputs(shapes, transposed)
    assert gradcheck(function, given)
    for fixed in range(len(given) if len(given) > 1 else 0):
        others = [x.detach() if n == fixed else x for n, x in enumerate(given)]
        assert gradcheck(function, others)
    out = function(*given).sum()
    first = torch.autograd.grad(out, given, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(out, given)))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", TWICE)
def test_second_derivative(name: str, transposed: bool) -> None:
    function, shapes = TWICE[name]
    assert gradgradcheck(function, inputs(shapes, transposed))


@pytest.mark.parametrize("name", ONCE)
def test_no_second_derivative_is_left_out_silently(name: str) -> None:
    function, shapes = ONCE[name]
    given = inputs(shapes, transposed=False)
    with pytest.raises(ConfigError, match="has no second derivative"):
        torch.autograd.grad((function(*given) ** 2).sum(), given, create_graph=True)


@pytest.mark.parametrize("runs", [(), (2,)])
def test_attention_with_weights_as_channels(runs: tuple[int, ...]) -> None:
    weights = torch.tensor([1.0, 3.0, 2.0, 1.0], dtype=torch.float64)

    def attended(packed: Tensor) -> Tensor:
        return carried_attention([packed], weights, 0.5, torch.float64)

    assert gradcheck(attended, inputs([(*runs, 4, 3, 2, 5)], transposed=True))
