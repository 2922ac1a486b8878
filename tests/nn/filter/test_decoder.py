"""Both decoders."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import assert_twins, scrambled, state_of

from specformer import reference
from specformer.errors import ConfigError
from specformer.nn import SpectralFilter
from specformer.nn.filter import HeadsDecoder, JointDecoder


def test_joint() -> None:
    decoder = scrambled(JointDecoder(8, 3))
    z = random(5, 8).requires_grad_()

    def plain() -> torch.Tensor:
        linear = reference.part(state_of(decoder), "linear")
        return reference.linear(linear, z)

    assert_twins(decoder, lambda: decoder(z, z, torch.ones(5)), plain, z)


@pytest.mark.parametrize("num_heads", [1, 4])
def test_heads(num_heads: int) -> None:
    decoder = scrambled(HeadsDecoder(8, num_heads))
    assert decoder.linear.weight.shape == (1, 8 // num_heads)  # one vector, shared by all heads
    z = random(5, 8).requires_grad_()

    def plain() -> torch.Tensor:
        state = state_of(decoder)
        normed = reference.layer_norm(reference.part(state, "norm"), z)
        heads = reference.attention_heads(reference.part(state, "attention"), normed, num_heads)
        linear = reference.part(state, "linear")
        columns = [reference.linear(linear, head)[:, 0] for head in heads]
        return torch.stack(columns, dim=1)

    ones = torch.ones(5, dtype=torch.float64)
    assert_twins(decoder, lambda: decoder(z, z, ones), plain, z)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="decoder='odd': choose joint or heads"):
        SpectralFilter(8, 2, decoder="odd")  # type: ignore[arg-type]
