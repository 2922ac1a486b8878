"""Both decoders."""

from __future__ import annotations

import pytest
import torch
from tests import reference
from tests.drawn import random
from tests.nn.plain_twin import assert_twins, scrambled, state_of

from specformer.errors import ConfigError
from specformer.nn.decoder import HeadsDecoder, JointDecoder, make_decoder


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "tanh"])
def test_joint(activation) -> None:
    decoder = scrambled(make_decoder("joint", 8, 3, activation))
    assert isinstance(decoder, JointDecoder)
    z = random(5, 8).requires_grad_()

    def plain() -> torch.Tensor:
        linear = reference.part(state_of(decoder), "linear")
        return reference.activate(activation, reference.linear(linear, z))

    assert_twins(decoder, lambda: decoder(z, z, torch.ones(5)), plain, z)


@pytest.mark.parametrize("activation", [None, "tanh"])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_heads(activation, num_heads: int) -> None:
    decoder = scrambled(make_decoder("heads", 8, num_heads, activation))
    assert isinstance(decoder, HeadsDecoder)
    assert decoder.linear.weight.shape == (1, 8 // num_heads)  # one vector, shared by all heads
    z = random(5, 8).requires_grad_()

    def plain() -> torch.Tensor:
        state = state_of(decoder)
        normed = reference.layer_norm(reference.part(state, "norm"), z)
        heads = reference.attention_heads(reference.part(state, "attention"), normed, num_heads)
        linear = reference.part(state, "linear")
        columns = [reference.linear(linear, head)[:, 0] for head in heads]
        return reference.activate(activation, torch.stack(columns, dim=1))

    ones = torch.ones(5, dtype=torch.float64)
    assert_twins(decoder, lambda: decoder(z, z, ones), plain, z)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="decoder='odd': choose 'joint' or 'heads'"):
        make_decoder("odd", 8, 2, None)
    with pytest.raises(ConfigError, match="activation='odd': choose relu, gelu, tanh or None"):
        make_decoder("joint", 8, 2, "odd")
