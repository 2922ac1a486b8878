"""The set-to-set filter: its twin, its symmetries, landmarks, and what it can learn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nn.plain_twin import BOTH_DTYPES, SPECTRA, assert_twins, scrambled, state_of

from specformer import SpectralFilter, Spectrum, decompose, reference
from specformer.errors import ConfigError
from specformer.nn.graph_model import decode_together
from specformer.spectrum import Tokens
from specformer.training.engine.stacking import stack

decoders = pytest.mark.parametrize("decoder", ["joint", "heads"])
depths = pytest.mark.parametrize("num_blocks", [1, 2])


@decoders
@depths
@pytest.mark.parametrize("name", SPECTRA)
def test_is_the_papers(name: str, decoder, num_blocks: int) -> None:
    options = {"decoder": decoder, "epsilon": 50.0}
    filt = scrambled(SpectralFilter(8, 2, num_blocks, **options))
    values = SPECTRA[name].eigenvalues
    plain = lambda: reference.spectral_filter(state_of(filt), values, 2, **options)  # noqa: E731
    assert_twins(filt, lambda: filt(values), plain)


@decoders
def test_gradient_in_the_eigenvalues_is_the_papers(decoder) -> None:
    filt = scrambled(SpectralFilter(8, 2, decoder=decoder))
    values = torch.tensor([0.0, 0.3, 1.1, 2.0], dtype=torch.float64, requires_grad=True)
    assert_twins(
        filt,
        lambda: filt.decode(
            Spectrum(values, torch.zeros(1, 4)).distinct.tokens._replace(values=values)
        ),
        lambda: reference.spectral_filter(state_of(filt), values, 2, decoder=decoder),
        values,
    )


@decoders
@pytest.mark.parametrize("num_blocks", [1, 2])
def test_gradient_in_equal_eigenvalues_is_the_papers(decoder, num_blocks: int) -> None:
    filt = scrambled(SpectralFilter(8, 2, num_blocks, decoder=decoder))
    values = torch.tensor([1.1, 0.3, 1.1, 0.0, 1.1], dtype=torch.float64, requires_grad=True)
    assert_twins(
        filt,
        lambda: filt(values),
        lambda: reference.spectral_filter(state_of(filt), values, 2, decoder=decoder),
        values,
    )
    torch.testing.assert_close(filt(values), filt(values.detach()), rtol=0, atol=1e-12)


eigenvalues = st.lists(st.sampled_from([0.0, 0.25, 0.7, 1.0, 1.5, 2.0]), min_size=1, max_size=9)


@given(eigenvalues, st.randoms(use_true_random=False), st.sampled_from(BOTH_DTYPES), st.booleans())
@settings(max_examples=40, deadline=None)
def test_is_equivariant_over_the_set_and_blind_to_storage(values, random, dtype, heads) -> None:
    torch.manual_seed(0)
    filt = SpectralFilter(8, 2, decoder="heads" if heads else "joint").to(dtype)
    order = list(range(len(values)))
    random.shuffle(order)
    tensor = torch.tensor(values, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(filt(tensor)[order], filt(tensor[order]), rtol=0, atol=1e-6)


@decoders
@depths
@pytest.mark.parametrize("dtype", BOTH_DTYPES)
def test_distinct_tokens_with_multiplicities_equal_all_tokens(decoder, num_blocks, dtype) -> None:
    filt = scrambled(SpectralFilter(8, 2, num_blocks, decoder=decoder)).to(dtype)
    for spectrum in SPECTRA.values():
        values = spectrum.eigenvalues.to(dtype)
        everything = type(spectrum.distinct.tokens)(values, torch.ones_like(values))
        atol = 2e-5 if dtype == torch.float32 else 1e-12
        with torch.no_grad():
            torch.testing.assert_close(filt(values), filt.decode(everything), rtol=0, atol=atol)


def test_an_eigenvalue_sees_all_others() -> None:
    filt = scrambled(SpectralFilter(8, 2))
    one = filt(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))
    other = filt(torch.tensor([0.0, 1.0, 1.9], dtype=torch.float64))
    repeated = filt(torch.tensor([0.0, 1.0, 2.0, 2.0], dtype=torch.float64))
    assert (one[:2] - other[:2]).abs().min() > 1e-4
    assert (one - repeated[:3]).abs().min() > 1e-4


# --- landmarks ----------------------------------------------------------------------------------


def evenly(size: int) -> Spectrum:
    values = torch.linspace(0, 2, size, dtype=torch.float64)
    return Spectrum(values, torch.empty(1, size, dtype=torch.float64))


@decoders
@depths
@pytest.mark.parametrize("name", SPECTRA)
def test_as_many_landmarks_as_tokens_are_exact(name: str, decoder, num_blocks: int) -> None:
    filt = scrambled(SpectralFilter(8, 2, num_blocks, decoder=decoder))
    tokens = SPECTRA[name].distinct.tokens
    landmarks = SPECTRA[name].landmarks(len(tokens.values))
    assert_twins(filt, lambda: filt.decode(tokens, landmarks), lambda: filt.decode(tokens))


@decoders
@depths
@pytest.mark.parametrize(
    ("epsilon", "bounds"),
    [
        # Gauss rules converge once they resolve the encoding's shortest wave, 2π/ε: some ε
        # landmarks for the products in a softmax.
        (10.0, {16: 1e-3, 32: 5e-6, 64: 1e-11}),
        (100.0, {16: 0.4, 64: 0.05, 128: 2e-3, 192: 1e-4, 256: 1e-5}),
    ],
)
def test_landmarks_converge(decoder, num_blocks: int, epsilon: float, bounds) -> None:
    torch.manual_seed(0)
    filt = SpectralFilter(32, 4, num_blocks, decoder=decoder, epsilon=epsilon).double()
    spectrum = evenly(600)
    tokens = spectrum.distinct.tokens
    with torch.no_grad():
        exact = filt.decode(tokens)
        errors = {
            count: float((filt.decode(tokens, spectrum.landmarks(count)) - exact).abs().max())
            for count in bounds
        }
    assert all(errors[count] < bound for count, bound in bounds.items()), errors
    assert sorted(errors.values(), reverse=True) == list(errors.values()), errors


# --- universality -------------------------------------------------------------------------------


def fit(filt: SpectralFilter, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Bring new eigenvalues near to those wanted; the largest error that is left."""

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        error = sum((filt(values) - target).square().mean() for values, target in pairs)
        assert isinstance(error, torch.Tensor)
        error.backward()
        return error

    optimiser: torch.optim.Optimizer = torch.optim.Adam(filt.parameters(), lr=1e-2)
    for _ in range(100):
        optimiser.step(loss)
    optimiser = torch.optim.LBFGS(
        filt.parameters(),
        max_iter=250,
        history_size=50,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
    )
    optimiser.step(loss)
    with torch.no_grad():
        return max(float((filt(values) - target).abs().max()) for values, target in pairs)


@decoders
@pytest.mark.parametrize("order", [3, 10])
def test_random_polynomials_are_reached(decoder, order: int) -> None:
    """Four random polynomials at once, to 2% of their largest value (the paper's Prop. 2)."""
    torch.manual_seed(0)
    values = torch.linspace(0, 2, 64, dtype=torch.float64)
    chebyshev = torch.stack([torch.cos(k * torch.acos(values - 1)) for k in range(order + 1)], 1)
    target = chebyshev @ torch.randn(order + 1, 4, dtype=torch.float64)
    target /= target.abs().amax(dim=0)
    assert fit(SpectralFilter(32, 4, decoder=decoder).double(), [(values, target)]) < 0.02


@pytest.mark.parametrize(
    ("decoder", "attention"), [("joint", True), ("heads", True), ("joint", False)]
)
def test_the_number_of_components_is_learned_by_attention_alone(decoder, attention: bool) -> None:
    """A function of the whole set (the paper's §1 and Prop. 2): how many eigenvalues are 0.

    Twelve nodes as one, two, three or four cycles, whose eigenvalues are 1 − cos(2πj/n). All sets
    have the 0 in common, so that what maps each eigenvalue by itself is off by half of the range.
    """
    torch.manual_seed(0)
    pairs = []
    for components in (1, 2, 3, 4):
        size = 12 // components
        angles = 2 * torch.pi * torch.arange(size, dtype=torch.float64) / size
        values = (1 - angles.cos()).round(decimals=12).repeat(components)
        pairs.append((values, torch.full((12, 1), float(components), dtype=torch.float64)))
    filt = SpectralFilter(32, 4, decoder=decoder, attention=attention, epsilon=1.0)
    error = fit(filt.double(), pairs)
    assert error < 0.1 if attention else error >= 1.5


# --- options ------------------------------------------------------------------------------------


def test_dropout_only_in_training() -> None:
    filt = SpectralFilter(8, 2, dropout=0.5)
    values = torch.linspace(0, 2, 20)
    assert not torch.equal(filt(values), filt(values))
    filt.eval()
    assert torch.equal(filt(values), filt(values))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_channels": 7}, "hidden_channels=7"),
        ({"num_heads": 3}, "num_heads=3"),
        ({"num_heads": 0}, "num_heads=0"),
        ({"num_blocks": -1}, "num_blocks=-1"),
        ({"decoder": "odd"}, "decoder='odd'"),
        ({"hidden_channels": 8.0}, "hidden_channels=8.0 must be a whole number"),
        ({"num_heads": 0, "attention": False}, "num_heads=0 must be at least 1"),
        ({"dropout": 1.5}, "dropout=1.5 must lie between 0 and 1"),
        ({"epsilon": float("nan")}, "epsilon=nan must be a finite number"),
    ],
)
def test_bad_options_are_named(options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SpectralFilter(**options)


def test_number_of_parameters() -> None:
    d, heads = 16, 4
    embedding, block = (d + 1) * d + d, 6 * (d * d + d) + 4 * d
    count = sum(p.numel() for p in SpectralFilter(d, heads).parameters())
    assert count == embedding + block + d * heads + heads
    own_attention = 2 * d + 3 * (d * d + d) + d // heads + 1
    count = sum(p.numel() for p in SpectralFilter(d, heads, 2, decoder="heads").parameters())
    assert count == embedding + 2 * block + own_attention


def test_repr() -> None:
    assert repr(SpectralFilter(32, 4)).startswith("SpectralFilter(\n  32, num_heads=4\n")


@pytest.mark.parametrize("num_blocks", [1, 2])
@pytest.mark.parametrize("decoder", ["joint", "heads"])
def test_dropout_treats_equal_eigenvalues_one_by_one(num_blocks, decoder):
    torch.manual_seed(0)
    values = torch.tensor([0.0, 0.5, *[1.0] * 20, 1.5, 2.0], dtype=torch.float64)
    filt = SpectralFilter(8, 2, num_blocks, decoder=decoder, dropout=0.5).double()
    noisy = filt(values)[2:22]
    assert len(noisy.unique(dim=0)) > 10
    quiet = filt.eval()(values)[2:22]
    assert len(quiet.unique(dim=0)) == 1


def test_dropout_over_tokens_is_dropout_over_all_eigenvalues():
    """Mean and deviation of the noise agree with attention over every eigenvalue by itself."""
    torch.manual_seed(0)
    values = torch.tensor([0.0, 0.5, *[1.0] * 6, 1.5, 2.0], dtype=torch.float64)
    # The same filter as 4,000 runs, each of which draws noise of its own.
    filt = stack([SpectralFilter(8, 2, dropout=0.5).double()] * 4000)
    every = Tokens(values, torch.ones_like(values))
    with torch.no_grad():
        ours, plain = filt(values), filt.decode(every)
    torch.testing.assert_close(ours.mean(0), plain.mean(0), rtol=0, atol=0.03)
    torch.testing.assert_close(ours.std(0), plain.std(0), rtol=0.1, atol=0)


@decoders
@depths
def test_filters_together_are_each_alone(decoder, num_blocks: int) -> None:
    options = {"num_blocks": num_blocks, "decoder": decoder}
    filters = [scrambled(SpectralFilter(8, 2, **options), seed) for seed in range(3)]
    tokens = SPECTRA["weighted"].distinct.tokens
    assert_twins(
        torch.nn.ModuleList(filters),
        lambda: decode_together(filters, tokens),
        lambda: torch.stack([filt.decode(tokens) for filt in filters]),
    )


@pytest.mark.parametrize("shape", [(0,), (3, 2), ()])
def test_what_is_no_set_of_eigenvalues_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"eigenvalues must have shape \[q\]"):
        SpectralFilter(8, 2)(torch.ones(shape))


def test_a_spectrum_in_place_of_its_eigenvalues_is_refused() -> None:
    spectrum = decompose([[0, 1], [1, 2]])
    with pytest.raises(ConfigError, match=r"such as spectrum\.eigenvalues, not a Spectrum"):
        SpectralFilter(8, 2)(spectrum)


def test_eigenvalues_of_another_precision_are_refused() -> None:
    filt, values = SpectralFilter(8, 2), torch.linspace(0, 2, 5, dtype=torch.float64)
    message = r"eigenvalues are torch\.float64, but the filter is torch\.float32; convert"
    with pytest.raises(ConfigError, match=message):
        filt(values)
    with torch.autocast("cpu", torch.bfloat16):
        assert filt(values.float()).shape == (5, 2)
    assert filt.double()(values).dtype == torch.float64
