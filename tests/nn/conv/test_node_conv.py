"""The convolution and every one of its options."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import SPECTRA, assert_twins, scrambled, state_of

from specformer import reference
from specformer.errors import ConfigError
from specformer.nn.conv.bases import LinearBases
from specformer.nn.conv.node_conv import NodeConv

OPTIONS = [
    {"transform": t, "norm": n, "activation": a, "residual": r, "bias": b}
    for t, n, a, r, b in itertools.product(
        (False, True),
        (None, "layer", "batch"),
        (None, "relu", "gelu"),
        (False, True),
        (True, False),
    )
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
def test_every_option_is_the_papers(options) -> None:
    spectrum = SPECTRA["star"]
    conv = scrambled(NodeConv(LinearBases(2, 4, 0.0), 4, **options))
    x = random(7, 4).requires_grad_()
    response = random(7, 2, seed=2).requires_grad_()
    for training in (True, False):  # the first pass also moves the running statistics
        conv.train(training)

        def plain(training: bool = training) -> torch.Tensor:
            state = state_of(conv)
            built = reference.combined_bases(
                reference.part(state, "bases"), response, spectrum.eigenvectors, "linear"
            )
            return reference.convolution(state, x, built, options, training)

        assert_twins(conv, lambda: conv(x, response, spectrum), plain, x, response)


def test_with_every_option_off_it_is_the_filter_alone() -> None:
    spectrum = SPECTRA["weighted"]
    bases = LinearBases(1, 2, 0.0).double()
    conv = NodeConv(bases, 2)
    x, response = random(14, 2), random(14, 1)
    torch.testing.assert_close(conv(x, response, spectrum), bases(x, response, spectrum))
    assert sum(p.numel() for p in conv.parameters()) == 4


def test_unknown_names_are_refused() -> None:
    bases = LinearBases(1, 2, 0.0)
    with pytest.raises(ConfigError, match="norm='odd': choose 'batch', 'layer' or None"):
        NodeConv(bases, 2, norm="odd")
    with pytest.raises(ConfigError, match="activation='odd'"):
        NodeConv(bases, 2, activation="odd")
