"""The convolution and every one of its options."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import SPECTRA, assert_twins, scrambled, state_of

from specformer import reference
from specformer.errors import ConfigError
from specformer.nn import Specformer, argument_checks
from specformer.nn.conv.node_conv import FeedForwardBases, LinearBases, NodeConv

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


BASES = {"linear": LinearBases, "ffn": FeedForwardBases}


@pytest.mark.parametrize("kind", ["linear", "ffn"])
@pytest.mark.parametrize("name", SPECTRA)
def test_bases_are_the_papers(name: str, kind) -> None:
    spectrum = SPECTRA[name]
    module = scrambled(BASES[kind](num_heads=3, channels=4, dropout=0.0))
    x = random(spectrum.num_nodes, 4).requires_grad_()
    response = random(spectrum.num_eigenpairs, 3, seed=2).requires_grad_()

    def plain() -> torch.Tensor:
        state = state_of(module)
        built = reference.combined_bases(state, response, spectrum.eigenvectors, kind)
        off = {"transform": False, "norm": None, "activation": None, "residual": False}
        return reference.convolution({}, x, built, off)

    assert_twins(module, lambda: module(x, response, spectrum), plain, x, response)


def test_linear_starts_as_the_plain_sum() -> None:
    spectrum = SPECTRA["star"]
    module = LinearBases(num_heads=2, channels=3).double()
    x, response = random(7, 3), random(7, 2)
    expected = x + spectrum.filter(x, response.sum(dim=1))
    torch.testing.assert_close(module(x, response, spectrum), expected)
    module.weight.data.zero_()
    module.reset_parameters()
    torch.testing.assert_close(module(x, response, spectrum), expected)


def test_dropout_paths_agree_when_nothing_is_dropped(monkeypatch) -> None:
    spectrum = SPECTRA["weighted"]
    module = scrambled(LinearBases(num_heads=2, channels=3, dropout=0.5))
    x, response = random(14, 3), random(14, 2, seed=2)
    module.eval()
    exact = module(x, response, spectrum)
    module.train()
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p: x)
    torch.testing.assert_close(module(x, response, spectrum), exact)


def test_one_model_drops_in_many_signals(monkeypatch) -> None:
    spectrum = SPECTRA["star"]
    module = scrambled(LinearBases(num_heads=2, channels=3, dropout=0.5))
    signals, response = random(4, spectrum.num_nodes, 3), random(spectrum.num_nodes, 2)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p: x)

    def apart() -> torch.Tensor:
        return torch.stack([module(x, response, spectrum) for x in signals])

    assert_twins(module, lambda: module(signals, response, spectrum), apart, atol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "ffn"])
def test_dropout_only_in_training_and_right_on_average(kind) -> None:
    spectrum = SPECTRA["star"]
    module = scrambled(BASES[kind](num_heads=2, channels=3, dropout=0.5))
    x, response = random(7, 3), random(7, 2)
    module.eval()
    exact = module(x, response, spectrum)
    assert torch.equal(module(x, response, spectrum), exact)
    module.train()
    torch.manual_seed(0)
    draws = torch.stack([module(x, response, spectrum) for _ in range(1500)])
    assert not torch.equal(draws[0], draws[1])
    torch.testing.assert_close(draws.mean(dim=0), exact, rtol=0, atol=0.4)


def test_bases_too_large_to_hold_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(argument_checks, "ENTRY_LIMIT", 7 * 7 * 3 - 1)
    module = FeedForwardBases(num_heads=2, channels=3).double()
    with pytest.raises(ConfigError, match=r"would hold 0\.0 GiB for 7 nodes and 3 channels; use"):
        module(random(7, 3), random(7, 2), SPECTRA["star"])


def test_unknown_bases_are_refused() -> None:
    with pytest.raises(ConfigError, match="bases='odd': choose linear or ffn"):
        Specformer(3, 4, 2, bases="odd")  # type: ignore[arg-type]


def test_repr() -> None:
    assert repr(LinearBases(2, 3)) == "LinearBases(num_heads=2, channels=3, dropout=0.0)"
    assert repr(FeedForwardBases(2, 3)).startswith("FeedForwardBases(\n  num_heads=2, channels=3")
