"""Attention between frequency bands, against the double sum and by hand."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import SPECTRA, scrambled, state_of

from specformer import reference
from specformer.nn import SpectralFilter, condensation
from specformer.nn.condensation import band_of, condense, condensed_attention
from specformer.nn.filter import WeightedAttention
from specformer.spectrum import Tokens


def test_bands_are_half_open() -> None:
    values = torch.tensor([0.0, 0.66, 2 / 3, 1.0, 1.33, 4 / 3, 2.0], dtype=torch.float64)
    assert band_of(values).tolist() == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("rows", [3, 1024])
@pytest.mark.parametrize("name", SPECTRA)
def test_condensed_is_the_double_sum(monkeypatch, name: str, rows: int) -> None:
    monkeypatch.setattr(condensation, "_ROWS", rows)
    encoder = scrambled(SpectralFilter(8, 2)).encoder
    spectrum = SPECTRA[name]
    with torch.no_grad():
        ours = condensed_attention(encoder, spectrum.distinct.tokens)
        plain = reference.condensed_attention(state_of(encoder), spectrum.eigenvalues, 2)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
    present = torch.bincount(band_of(spectrum.eigenvalues), minlength=3) > 0
    torch.testing.assert_close(ours.sum(dim=-1), present.double().expand(2, 3))


def test_condensing_by_hand() -> None:
    module = WeightedAttention(2, 1).double()
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    # Without queries or keys attention is uniform over all eigenvalues: 1 + 2 low, 1 high.
    values = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)
    tokens = Tokens(values, torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64))
    expected = torch.tensor([[0.75, 0, 0.25], [0, 0, 0], [0.75, 0, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(condense(module, random(3, 2), tokens)[0], expected)
    # A density counts less than one eigenvalue here and there; the shares are the same.
    thin = Tokens(values, tokens.weights / 4)
    torch.testing.assert_close(condense(module, random(3, 2), thin)[0], expected)
