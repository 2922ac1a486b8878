"""The Transformer over eigenvalues, against its literal twin."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import SPECTRA, assert_twins, scrambled, state_of

from specformer import reference
from specformer.errors import ConfigError
from specformer.nn.filter.encoder import EncoderBlock, SpectrumEncoder
from specformer.spectrum import Tokens


def test_a_block_is_the_papers() -> None:
    block = scrambled(EncoderBlock(8, 2))
    z = random(5, 8).requires_grad_()
    assert_twins(
        block,
        lambda: block(z, z, torch.ones(5, dtype=torch.float64)),
        lambda: reference.encoder_block(state_of(block), z, 2),
        z,
    )


@pytest.mark.parametrize("num_blocks", [0, 1, 2])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_encoder_is_the_papers(name: str, num_blocks: int) -> None:
    encoder = scrambled(SpectrumEncoder(8, 2, num_blocks, epsilon=30.0))
    groups = SPECTRA[name].distinct
    assert_twins(
        encoder,
        lambda: encoder(*groups.tokens)[groups.index],
        lambda: reference.encoder(state_of(encoder), SPECTRA[name].eigenvalues, 2, 30.0),
    )


def test_dropout_only_in_training() -> None:
    encoder = SpectrumEncoder(8, 2, dropout=0.5)
    tokens = Tokens(torch.linspace(0, 2, 20), torch.ones(20))
    assert not torch.equal(encoder(*tokens), encoder(*tokens))
    encoder.eval()
    assert torch.equal(encoder(*tokens), encoder(*tokens))


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_blocks=-1 must not be negative"):
        SpectrumEncoder(8, 2, num_blocks=-1)
