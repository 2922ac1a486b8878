"""Attention over fewer points: landmarks instead of tokens."""

from __future__ import annotations

import pytest
import torch
from tests.nn.plain_twin import SPECTRA, scrambled

from specformer.nn.attention import encoded
from specformer.nn.filter import HeadsDecoder, SpectrumEncoder
from specformer.spectrum import Tokens


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_landmarks_that_are_the_tokens_change_nothing(num_blocks: int) -> None:
    encoder = scrambled(SpectrumEncoder(8, 2, num_blocks))
    tokens = SPECTRA["weighted"].distinct.tokens
    exact = encoder(*tokens)
    decoder = HeadsDecoder(8, 2)  # reads the keys, so that the last block updates them
    hidden, keys, *_ = encoded(encoder, decoder, tokens, Tokens(*tokens), None)
    torch.testing.assert_close(hidden, exact, rtol=0, atol=1e-13)
    torch.testing.assert_close(keys, exact, rtol=0, atol=1e-13)
