"""Learnable bases: never built in the linear form, built in the entry-wise one."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import SPECTRA, assert_twins, scrambled, state_of

from specformer import reference
from specformer.errors import ConfigError
from specformer.nn import Specformer, model_checks
from specformer.nn.conv.bases import FeedForwardBases, LinearBases

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
    monkeypatch.setattr(model_checks, "ENTRY_LIMIT", 7 * 7 * 3 - 1)
    module = FeedForwardBases(num_heads=2, channels=3).double()
    with pytest.raises(ConfigError, match=r"would hold 0\.0 GiB for 7 nodes and 3 channels; use"):
        module(random(7, 3), random(7, 2), SPECTRA["star"])


def test_unknown_bases_are_refused() -> None:
    with pytest.raises(ConfigError, match="bases='odd': choose 'linear' or 'ffn'"):
        Specformer(3, 4, 2, bases="odd")  # type: ignore[arg-type]


def test_repr() -> None:
    assert repr(LinearBases(2, 3)) == "LinearBases(num_heads=2, channels=3, dropout=0.0)"
    assert repr(FeedForwardBases(2, 3)).startswith("FeedForwardBases(\n  num_heads=2, channels=3")
