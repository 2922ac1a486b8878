"""The layer for models of one's own, against the equations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import specformer as sf
from specformer.errors import ConfigError
from specformer.reference import linear, part, spectral_filter
from specformer.testing import assert_basis_invariant, assert_permutation_equivariant

RING = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
SPECTRUM = sf.decompose(RING, dtype=torch.float64)


def conv_of(*arguments: Any, **options: Any) -> sf.SpectralConv:
    torch.manual_seed(0)
    return sf.SpectralConv(*arguments, **options).double().eval()


def test_computes_its_formula() -> None:
    conv, x = conv_of(6, 3, 2, activation="tanh"), torch.randn(5, 6, dtype=torch.float64)
    state, U = conv.state_dict(), SPECTRUM.eigenvectors
    new = spectral_filter(part(state, "filter"), SPECTRUM.eigenvalues, 2)
    weights = state["bases.weight"]
    filtered = weights[0] * x
    for m in range(2):
        filtered = filtered + weights[m + 1] * (U @ torch.diag(new[:, m]) @ U.T @ x)
    expected = linear(part(state, "lin"), filtered).tanh()
    torch.testing.assert_close(conv(x, SPECTRUM), expected, rtol=0, atol=1e-10)


def test_layers_share_a_filter_and_make_a_model() -> None:
    filt = sf.SpectralFilter(16, num_heads=2)
    first = sf.SpectralConv(6, 8, filter=filt, norm="layer", activation="relu")
    second = sf.SpectralConv(8, 3, filter=filt)
    model = torch.nn.ModuleList([first, second]).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    second(first(x, SPECTRUM), SPECTRUM).sum().backward()
    assert first.filter is second.filter
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert first.bases.num_heads == 2


def test_blind_to_labels_and_to_the_eigenbasis() -> None:
    conv, x = conv_of(4, 4, residual=True), torch.randn(5, 4, dtype=torch.float64)
    assert_permutation_equivariant(conv, x, RING)
    assert_basis_invariant(conv, x, SPECTRUM)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_channels": 0}, "in_channels=0 must be at least 1"),
        ({"residual": True}, "equal widths, not in_channels=16 and out_channels=2"),
        ({"filter": 3}, "filter must be a SpectralFilter, not a int"),
        ({"filter": sf.SpectralFilter(8, 2), "num_heads": 4}, "the filter has num_heads=2, not 4"),
        ({"dropout": 2.0}, "dropout=2.0 must lie between 0 and 1"),
        ({"norm": "odd"}, "norm='odd': choose batch or layer or None"),
        ({"activation": "odd"}, "activation='odd': choose relu or gelu or tanh or None"),
    ],
)
def test_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sf.SpectralConv(**{"in_channels": 16, "out_channels": 2, **arguments})


@pytest.mark.parametrize(
    ("x", "spectrum", "message"),
    [
        (torch.ones(5, 1), SPECTRUM, r"x has shape \[5, 1\], .* the model in_channels=4"),
        (torch.ones(3, 4), SPECTRUM, r"x has shape \[3, 4\], but the spectrum has 5 nodes"),
        (torch.ones(5, 4), RING, "spectrum must come from sf.decompose .* not a Tensor"),
        (torch.ones(5, 4).to_sparse(), SPECTRUM, "x must be a dense tensor, not a tensor of"),
        (torch.ones(5, 4), SPECTRUM, "convert them to one dtype"),
    ],
)
def test_what_does_not_fit_is_named(x: Any, spectrum: Any, message: str) -> None:
    """One column is not taken for all, although it could be broadcast."""
    with pytest.raises(ConfigError, match=message):
        conv_of(4, 2)(x, spectrum)
