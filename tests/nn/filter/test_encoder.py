"""The Transformer over eigenvalues, against its literal twin."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import SPECTRA, assert_twins, scrambled, state_of

from specformer import reference
from specformer.errors import ConfigError
from specformer.nn import EigenvalueEncoding, GraphSpecformer, Specformer
from specformer.nn.filter import EncoderBlock, SpectralFilter, SpectrumEncoder
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


def test_by_hand() -> None:
    encoding = EigenvalueEncoding(4, epsilon=100.0)
    out = encoding(torch.tensor([0.5], dtype=torch.float64))[0].tolist()
    # i = 0: 100·0.5 / 1; i = 1: 100·0.5 / 10000^(2/4) = 0.5
    assert out == pytest.approx([0.5, math.sin(50), math.cos(50), math.sin(0.5), math.cos(0.5)])


@pytest.mark.parametrize("channels", [2, 16, 30])
@pytest.mark.parametrize("epsilon", [1.0, 100.0])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 3e-5), (torch.float64, 1e-13)])
def test_is_the_papers_formula(channels, epsilon, dtype, atol) -> None:
    values = torch.linspace(0, 2, 9, dtype=torch.float64)
    expected = reference.encoding(values, channels, epsilon)
    out = EigenvalueEncoding(channels, epsilon)(values.to(dtype))
    assert out.dtype == dtype
    assert out.shape == (9, channels + 1)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)


def test_has_nothing_to_learn_or_to_save() -> None:
    encoding = EigenvalueEncoding(8)
    assert not list(encoding.parameters())
    assert not encoding.state_dict()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_cast_encoding_is_rounded_only_at_its_end(dtype: torch.dtype) -> None:
    values = torch.linspace(0, 2, 50)
    exact = reference.encoding(values.double(), 32).to(dtype)
    torch.testing.assert_close(EigenvalueEncoding(32).to(dtype)(values), exact)
    filt = SpectralFilter(32, 4).to(dtype)
    assert filt(values).dtype == filt(values.to(dtype)).dtype == dtype


@pytest.mark.parametrize("channels", [0, 1, 7, -2])
def test_bad_widths_are_refused(channels: int) -> None:
    with pytest.raises(ConfigError, match=f"channels={channels} must be (an even|at least 1)"):
        EigenvalueEncoding(channels)


@pytest.mark.parametrize("model", [Specformer, GraphSpecformer])
@pytest.mark.parametrize("channels", [1, 7])
def test_models_name_their_own_argument(model: Any, channels: int) -> None:
    sizes: dict[str, Any] = {"in_channels": 3}
    if model is GraphSpecformer:
        sizes = {"node_cardinalities": [3], "edge_cardinalities": [2]}
    with pytest.raises(ConfigError, match=f"hidden_channels={channels} must be an even number"):
        model(**sizes, out_channels=2, hidden_channels=channels, num_heads=1)


def test_repr() -> None:
    assert repr(EigenvalueEncoding(8, 10.0)) == "EigenvalueEncoding(8, epsilon=10.0)"
