"""Attention over fewer points: landmarks instead of tokens."""

from __future__ import annotations

import pytest
import torch
from tests.nn.plain_twin import SPECTRA, scrambled

from specformer.nn.filter import SpectrumEncoder
from specformer.nn.tokens import encoded
from specformer.spectrum import Tokens


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_landmarks_that_are_the_tokens_change_nothing(num_blocks: int) -> None:
    encoder = scrambled(SpectrumEncoder(8, 2, num_blocks))
    tokens = SPECTRA["weighted"].distinct.tokens
    exact = encoder(*tokens)
    hidden, keys, _ = encoded(encoder, tokens, Tokens(*tokens), updates_keys=True)
    torch.testing.assert_close(hidden, exact, rtol=0, atol=1e-13)
    torch.testing.assert_close(keys, exact, rtol=0, atol=1e-13)
