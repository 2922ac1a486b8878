"""The node model: every combination against its literal twin, its symmetries, its options."""

from __future__ import annotations

import itertools
import shutil

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawn import random
from tests.nn.plain_twin import BOTH_DTYPES, SPECTRA, assert_twins, scrambled, state_of
from tests.spectrum.known_graphs import SMALL, graphs, hypercube
from tests.undropped import undropped

from specformer import Specformer, Spectrum, approximate, decompose, reference
from specformer.baselines.nodes.polynomial import GPRGNN
from specformer.baselines.nodes.propagation import Propagation
from specformer.errors import ConfigError
from specformer.nn.conv.composition import with_neighbours
from specformer.nn.layers.sparse_features import SparseFeatures
from specformer.testing import assert_basis_invariant, assert_permutation_equivariant

SHARINGS = ["small", "medium", "large"]
STAR = decompose(SMALL["star"])


def assert_is_the_papers(spectrum: Spectrum, seed: int = 0, **options) -> None:
    model = scrambled(undropped(3, 8, 4, num_heads=2, **options), seed)
    x = random(spectrum.num_nodes, 3).requires_grad_()

    def plain() -> torch.Tensor:
        state, pairs = state_of(model), (spectrum.eigenvalues, spectrum.eigenvectors)
        return reference.specformer(state, model.config, x, *pairs, model.training)

    assert_twins(model, lambda: model(x, spectrum), plain, x, atol=1e-10)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("space", ["input", "output"])
def test_a_feature_network_of_one_or_two_layers_on_either_side(space, layers) -> None:
    assert_is_the_papers(SPECTRA["star"], space=space, feature_layers=layers)


@pytest.mark.parametrize("decoder", ["joint", "heads"])
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("name", ["star", "union cut"])
def test_gradient_in_the_eigenvalues_is_the_papers(name, sharing, decoder) -> None:
    model = scrambled(undropped(3, 8, 4, num_heads=2, sharing=sharing, decoder=decoder))
    known, x = SPECTRA[name], random(SPECTRA[name].num_nodes, 3)
    values = known.eigenvalues.clone().requires_grad_()
    spectrum = Spectrum(values, known.eigenvectors)
    plain = lambda: reference.specformer(  # noqa: E731
        state_of(model), model.config, x, values, known.eigenvectors, model.training
    )
    assert_twins(model, lambda: model(x, spectrum), plain, values, atol=1e-10)
    torch.testing.assert_close(model(x, spectrum), model(x, known), rtol=0, atol=1e-12)
    assert torch.equal(spectrum.distinct.values, known.distinct.values)
    assert torch.equal(spectrum.landmarks(2).values, known.landmarks(2).values)


@pytest.mark.parametrize("name", ["star", "path"])
def test_gradient_in_the_eigenvalues_with_landmarks_that_interpolate(name: str) -> None:
    model = scrambled(undropped(3, 8, 4, num_heads=2)).eval()
    known = decompose(SMALL[name], dtype=torch.float64)
    x, count = random(known.num_nodes, 3), len(known.distinct.values)
    landmarks = known.landmarks(count, points=2)  # as many keys as tokens: exact
    assert landmarks.points is not None

    def outputs(values: torch.Tensor) -> torch.Tensor:
        return model(x, Spectrum(values, known.eigenvectors), landmarks)

    values = known.eigenvalues.clone().requires_grad_()
    torch.testing.assert_close(outputs(values), model(x, known), rtol=0, atol=1e-10)
    torch.autograd.gradcheck(outputs, values)


@pytest.mark.parametrize("decoder", ["joint", "heads"])
@pytest.mark.parametrize("bases", ["linear", "ffn"])
@pytest.mark.parametrize("space", ["output", "hidden"])
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("num_blocks", [1, 2])
def test_structure_is_the_papers(decoder, bases, space, sharing, num_blocks: int) -> None:
    for seed, name in enumerate(("star", "union cut")):
        assert_is_the_papers(
            SPECTRA[name],
            seed=seed,
            decoder=decoder,
            bases=bases,
            space=space,
            sharing=sharing,
            num_blocks=num_blocks,
        )


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("bases", ["linear", "ffn"])
def test_every_kind_of_spectrum(name: str, bases) -> None:
    assert_is_the_papers(SPECTRA[name], bases=bases, sharing="large", num_layers=3)


@pytest.mark.parametrize(
    ("transform", "norm", "activation", "residual", "bias"),
    list(
        itertools.product(
            (False, True), (None, "layer", "batch"), (None, "relu"), (False, True), (True, False)
        )
    ),
)
def test_conv_options(transform, norm, activation, residual, bias) -> None:
    assert_is_the_papers(
        SPECTRA["star"],
        space="hidden",
        transform=transform,
        norm=norm,
        activation=activation,
        residual=residual,
        bias=bias,
    )


@pytest.mark.parametrize("norm", [None, "layer", "batch"])
@pytest.mark.parametrize(
    ("local", "skip", "linear_last"),
    [(True, True, False), (True, False, False), (True, False, True), (False, True, True)],
)
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("name", ["star", "union cut"])
def test_deep_form_is_its_equations(
    name: str, sharing, local: bool, skip: bool, linear_last: bool, norm
) -> None:
    options = {"sharing": sharing, "local": local, "skip": skip, "norm": norm, "num_layers": 3}
    assert_is_the_papers(SPECTRA[name], form="deep", linear_last=linear_last, **options)


def test_without_a_skip_a_fresh_block_is_a_step_to_the_neighbours() -> None:
    """Its learned bases have no weight yet: ReLU((I − L) X W_s) before its norm."""
    graph = SMALL["grid"]
    spectrum = decompose(graph, dtype=torch.float64)
    model = undropped(3, 8, 4, form="deep", skip=False, num_layers=1).double()
    model.reset_parameters()
    block = model.convs[0]
    block.norm = torch.nn.Identity()
    x = random(spectrum.num_nodes, 8)
    roots = np.sqrt(graph.sum(axis=1)).reshape(-1, 1)
    step = torch.as_tensor(np.asarray(graph.todense() if sp.issparse(graph) else graph))
    step = step / torch.as_tensor(roots @ roots.T)
    response = with_neighbours(random(spectrum.num_eigenpairs, 4), spectrum)
    expected = (step @ block.signal(x)).relu()
    torch.testing.assert_close(block(x, response, spectrum), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("epsilon", [1.0, 100.0])
def test_filter_options(epsilon: float) -> None:
    assert_is_the_papers(SPECTRA["isolated"], decoder="heads", epsilon=epsilon)


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("num_blocks", [1, 2])
@pytest.mark.parametrize("encoding", [False, True])
@pytest.mark.parametrize("attention", [False, True])
def test_ablated_encoders(sharing, num_blocks: int, encoding: bool, attention: bool) -> None:
    options = {"encoding": encoding, "attention": attention, "num_blocks": num_blocks}
    assert_is_the_papers(SPECTRA["star"], sharing=sharing, **options)


def test_without_attention_an_eigenvalue_goes_its_own_way() -> None:
    spectrum = SPECTRA["weighted"]
    model = scrambled(undropped(3, 8, 4, attention=False)).eval()
    filt = model.filters[0]
    alone = torch.cat([filt(value.view(1)) for value in spectrum.eigenvalues])
    torch.testing.assert_close(filt(spectrum.eigenvalues), alone)
    assert model.condensed_attention(spectrum).shape == (1, 0, 3, 3)
    landmarks = spectrum.landmarks(4, points=4)
    found = model(random(14, 3), spectrum, landmarks)
    torch.testing.assert_close(found, model(random(14, 3), spectrum))
    with pytest.raises(ConfigError, match="attention=False needs decoder='joint'"):
        undropped(3, 8, 4, attention=False, decoder="heads")


def test_noise_of_ablated_encoders_is_that_of_every_eigenvalue() -> None:
    spectrum = SPECTRA["star"]  # with repeated eigenvalues
    model = scrambled(undropped(3, 32, 4, attention=False, transformer_dropout=0.5)).train()
    (response,) = model.responses(spectrum)
    repeated = spectrum.distinct.counts.argmax()
    same = response[spectrum.distinct.index == repeated]
    assert len(same) > 1
    assert len(same.unique(dim=0)) == len(same)


def test_float32_is_close_to_the_papers() -> None:
    spectrum = SPECTRA["weighted"]
    model = scrambled(undropped(3, 8, 4))
    x = random(14, 3)
    pairs = (spectrum.eigenvalues, spectrum.eigenvectors)
    exact = reference.specformer(state_of(model), model.config, x, *pairs)
    single = model.float()(x.float(), spectrum.to(dtype=torch.float32))
    torch.testing.assert_close(single.double(), exact, rtol=1e-3, atol=1e-3)


# --- symmetries ---------------------------------------------------------------------------------

MODELS = {
    "default": {},
    "large": {"sharing": "large", "num_blocks": 2, "decoder": "heads"},
    "hidden": {
        "space": "hidden",
        "transform": True,
        "norm": "layer",
        "activation": "relu",
        "residual": True,
    },
    "ffn": {"bases": "ffn", "sharing": "small"},
    "deep": {"form": "deep", "num_layers": 3},
}


def model_of(kind: str, dtype: torch.dtype) -> Specformer:
    torch.manual_seed(0)
    return undropped(3, 8, 4, num_heads=2, **MODELS[kind]).to(dtype)


@pytest.mark.parametrize("dtype", BOTH_DTYPES)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", SMALL)
def test_permutation_equivariant(name: str, kind: str, dtype: torch.dtype) -> None:
    x = random(SMALL[name].shape[0], 3, dtype=dtype)
    assert_permutation_equivariant(model_of(kind, dtype), x, SMALL[name])


@pytest.mark.parametrize("dtype", BOTH_DTYPES)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", SMALL)
def test_basis_and_set_invariant(name: str, kind: str, dtype: torch.dtype) -> None:
    x = random(SMALL[name].shape[0], 3, dtype=dtype)
    assert_basis_invariant(model_of(kind, dtype), x, decompose(SMALL[name], dtype=dtype))


@pytest.mark.parametrize("dtype", BOTH_DTYPES)
@pytest.mark.parametrize("k", [1, 2, 7, (2, 2), (0, 3)])
def test_truncated_spectra_keep_the_symmetries(k, dtype: torch.dtype) -> None:
    cube = hypercube(4)[0]
    x = random(16, 3, dtype=dtype)
    for at_cut in ("include", "exclude"):
        model = model_of("default", dtype)
        assert_permutation_equivariant(model, x, cube, k=k, at_cut=at_cut)
        assert_basis_invariant(model, x, decompose(cube, k=k, at_cut=at_cut, dtype=dtype))


@given(graphs(), st.sampled_from(sorted(MODELS)), st.sampled_from(BOTH_DTYPES), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_symmetries_of_any_graph(graph, kind: str, dtype: torch.dtype, seed: int) -> None:
    model, x = model_of(kind, dtype), random(graph.shape[0], 3, seed=seed, dtype=dtype)
    assert_permutation_equivariant(model, x, graph, seed=seed)
    assert_basis_invariant(model, x, decompose(graph, dtype=dtype), seed=seed)


@given(graphs(), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_symmetries_of_any_truncated_graph(graph, k: int, seed: int) -> None:
    model, x = model_of("default", torch.float64), random(graph.shape[0], 3, seed=seed)
    assert_permutation_equivariant(model, x, graph, seed=seed, k=k)
    assert_basis_invariant(model, x, decompose(graph, k=k, dtype=torch.float64), seed=seed)


# --- reach --------------------------------------------------------------------------------------


def reached(model: torch.nn.Module, graph: Spectrum | Propagation, n: int) -> torch.Tensor:
    """Whether the output at i depends on the input at j, ``[n, n]``."""
    x = random(n, 1)
    jacobian = torch.autograd.functional.jacobian(lambda x: model.eval()(x, graph), x)
    return jacobian[:, 0, :, 0].abs() > 1e-10  # type: ignore[index]


@pytest.mark.parametrize("bases", ["linear", "ffn"])
def test_one_layer_reaches_every_node_unlike_a_polynomial(bases) -> None:
    """The paper's §4.4: Specformer is not local, polynomials are."""
    torch.manual_seed(0)  # some weights leave no unit of a node alive
    n, order = 12, 3
    path = sp.csr_array(sp.diags([np.ones(n - 1), np.ones(n - 1)], [-1, 1]))
    ours = scrambled(undropped(1, 8, 1, num_layers=1, num_heads=2, bases=bases))
    assert reached(ours, decompose(path, dtype=torch.float64), n).all()
    theirs = scrambled(GPRGNN(1, 8, 1, order=order))
    hops = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    found = reached(theirs, Propagation(path, dtype=torch.float64), n)
    assert torch.equal(found, hops <= order)


# --- landmarks, linear response, attention ------------------------------------------------------


@pytest.mark.parametrize("sharing", SHARINGS)
def test_enough_landmarks_are_exact(sharing) -> None:
    spectrum = SPECTRA["weighted"]
    model = scrambled(undropped(3, 8, 4, sharing=sharing, num_blocks=2))
    x = random(14, 3).requires_grad_()
    landmarks = spectrum.landmarks(100)
    assert_twins(model, lambda: model(x, spectrum, landmarks), lambda: model(x, spectrum), x)
    few = model(x, spectrum, spectrum.landmarks(2))
    assert (few - model(x, spectrum)).abs().max() > 1e-4


LINEAR = {"space": "hidden", "bias": False}


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("transform", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_linear_response_is_the_model(sharing, transform: bool, residual: bool) -> None:
    options = {"sharing": sharing, "transform": transform, "residual": residual}
    model = scrambled(undropped(3, 8, 4, num_heads=2, **LINEAR, **options))
    assert model.is_linear_filter
    for name in ("star", "weighted", "isolated"):
        spectrum = SPECTRA[name]
        x = random(spectrum.num_nodes, 3)

        def through_gains(spectrum: Spectrum = spectrum, x: torch.Tensor = x) -> torch.Tensor:
            gains = model.linear_response(spectrum.distinct.tokens)[spectrum.distinct.index]
            return spectrum.igft(torch.einsum("qi,qio->qo", spectrum.gft(x), gains))

        forward = lambda x=x, spectrum=spectrum: model(x, spectrum)  # noqa: E731
        assert_twins(model, through_gains, forward, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"space": "output", "bias": False},
        {"space": "hidden"},
        {**LINEAR, "activation": "relu"},
        {**LINEAR, "norm": "layer"},
        {**LINEAR, "bases": "ffn"},
    ],
)
def test_a_model_that_is_not_linear_has_no_linear_response(options) -> None:
    model = undropped(3, 8, 4, **options)
    assert not model.is_linear_filter
    with pytest.raises(ConfigError, match="linear_response needs space='hidden', bases='linear'"):
        model.linear_response(SPECTRA["star"].distinct.tokens)


@pytest.mark.parametrize("sharing", ["medium", "large"])
def test_condensed_attention_is_the_literal_one(sharing) -> None:
    model = scrambled(undropped(3, 8, 4, num_heads=2, sharing=sharing))
    spectrum = SPECTRA["weighted"]
    with torch.no_grad():
        ours = model.condensed_attention(spectrum)
        state = state_of(model)
        plain = [
            reference.condensed_attention(
                reference.part(state, f"filters.{i}.encoder"), spectrum.eigenvalues, 2
            )
            for i in range(len(model.filters))
        ]
    assert ours.shape == (2 if sharing == "large" else 1, 2, 3, 3)
    torch.testing.assert_close(ours, torch.stack(plain), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_responses(sharing) -> None:
    model = scrambled(undropped(3, 8, 4, num_layers=3, sharing=sharing))
    responses = model.responses(SPECTRA["star"])
    assert [tuple(r.shape) for r in responses] == [(7, 4)] * (3 if sharing == "large" else 1)
    expected = model.filters[0](SPECTRA["star"].eigenvalues)
    torch.testing.assert_close(responses[0], expected)


# --- torch.compile ------------------------------------------------------------------------------


def assert_compiles(backend: str) -> None:
    torch._dynamo.reset()
    spectrum = decompose(SMALL["grid"])
    model = undropped(3, 8, 4, space="hidden", activation="relu", residual=True, decoder="heads")
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    x = random(16, 3, dtype=torch.float32)
    torch.testing.assert_close(compiled(x, spectrum), model(x, spectrum), rtol=0, atol=1e-5)
    for compute in (compiled, model):
        model.zero_grad()
        compute(x, spectrum).square().sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        if compute is compiled:
            compiled_gradients = gradients
    for one, other in zip(compiled_gradients, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_compiles_as_one_graph() -> None:
    assert_compiles("aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="inductor needs a C compiler")
def test_compiles_to_native_code() -> None:
    assert_compiles("inductor")


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["transformer", "feature", "propagation"])
@pytest.mark.parametrize("space", ["output", "hidden"])
def test_dropout_only_in_training(which: str, space) -> None:
    model = undropped(3, 8, 4, space=space, **{f"{which}_dropout": 0.5})
    x, spectrum = random(14, 3, dtype=torch.float32), SPECTRA["weighted"].to(dtype=torch.float32)
    assert not torch.equal(model(x, spectrum), model(x, spectrum))
    model.eval()
    assert torch.equal(model(x, spectrum), model(x, spectrum))
    plain = undropped(3, 8, 4, space=space)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(plain(x, spectrum), model(x, spectrum), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sharing": "large", "decoder": "heads", "num_blocks": 2, "init_std": 0.01},
        {"space": "hidden", "norm": "batch", "transform": True},
        {"sharing": "small", "bases": "ffn", "norm": "layer"},
        {"sharing": "medium", "bases": "ffn"},
        {"form": "deep", "num_layers": 3},
    ],
)
def test_parameters_are_reset_as_the_constructor_draws_them(options) -> None:
    torch.manual_seed(3)
    expected = undropped(3, 8, 4, **options).state_dict()
    model = undropped(3, 8, 4, **options)
    model(torch.randn(7, 3), STAR)  # moves the running statistics of a batch norm
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(5.0)
    torch.manual_seed(3)
    model.reset_parameters()
    torch.testing.assert_close(model.state_dict(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("norm", [None, "layer", "batch"])
def test_signals_on_one_graph_go_together(norm) -> None:
    model = scrambled(undropped(3, 8, 4, norm=norm, transform=True))
    x, spectrum = random(2, 7, 3), STAR.to(torch.float64)
    assert model(x, spectrum).shape == (2, 7, 4)
    model.eval()
    apart = torch.stack([model(signal, spectrum) for signal in x])
    torch.testing.assert_close(model(x, spectrum), apart)


def test_initial_weights_of_a_given_deviation() -> None:
    model = undropped(200, 64, 4, init_std=0.01)
    assert model.lift.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert not model.lift.bias.any()
    filt = model.filters[0]
    attention = filt.encoder.blocks[0].attention
    assert attention.out.weight.std().item() == pytest.approx(0.01, rel=0.1)
    # uniform between ±1/√64, as PyTorch draws it
    assert attention.query.weight.std().item() == pytest.approx(1 / (8 * 3**0.5), rel=0.1)
    assert bool((model.convs[0].bases.weight == 1).all())
    assert bool((filt.encoder.blocks[0].attention_norm.weight == 1).all())


def test_number_of_parameters() -> None:
    def count(**options) -> int:
        return sum(p.numel() for p in undropped(10, 16, 3, num_layers=2, **options).parameters())

    filt = (17 * 16 + 16) + 6 * (16 * 16 + 16) + 4 * 16 + (16 * 4 + 4)
    features = (10 * 16 + 16) + (16 * 3 + 3)
    assert count(sharing="small") == features + filt + 5 * 3
    assert count(sharing="medium") == features + filt + 2 * 5 * 3
    assert count(sharing="large") == features + 2 * filt + 2 * 5 * 3
    assert count(space="hidden", transform=True) == features + filt + 2 * (5 * 16 + 16 * 16 + 16)
    ffn = (5 * 3 + 3) + (3 * 3 + 3)
    assert count(bases="ffn", sharing="small") == features + filt + ffn


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sharing": "odd"}, "sharing='odd': choose small or medium or large"),
        ({"space": "odd"}, "space='odd': choose output or hidden"),
        ({"bases": "odd"}, "bases='odd'"),
        ({"decoder": "odd"}, "decoder='odd'"),
        ({"norm": "odd"}, "norm='odd'"),
        ({"activation": "odd"}, "activation='odd'"),
        ({"hidden_channels": 7}, "hidden_channels=7"),
        ({"hidden_channels": 0}, "hidden_channels=0"),
        ({"in_channels": 0}, "in_channels=0 must be at least 1"),
        ({"out_channels": 2.5}, "out_channels=2.5 must be a whole number"),
        ({"num_heads": None}, "num_heads=None must be a whole number"),
        ({"num_blocks": "x"}, "num_blocks='x' must be a whole number"),
        ({"num_heads": 2.0}, "num_heads=2.0 must be a whole number"),
        ({"epsilon": 0.0}, "epsilon=0.0 must be positive"),
        ({"epsilon": None}, "epsilon=None must be a finite number"),
        ({"feature_dropout": "x"}, "feature_dropout='x' must be a finite number"),
        ({"attention": "no"}, "attention='no': choose True or False"),
        ({"activation": []}, "activation=.*: choose relu"),
        ({"out_channels": 0}, "out_channels=0"),
        ({"num_heads": 3}, "num_heads=3"),
        ({"num_heads": 0}, "num_heads=0"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"num_blocks": -1}, "num_blocks=-1"),
        ({"transformer_dropout": 1.5}, "transformer_dropout=1.5 must lie between 0 and 1"),
        ({"init_std": 0.0}, "init_std=0.0 must be positive"),
        ({"feature_dropout": -0.1}, "feature_dropout=-0.1"),
        ({"propagation_dropout": 2}, "propagation_dropout=2"),
        ({"form": "odd"}, "form='odd': choose paper or deep"),
        ({"local": False}, "local=False does not apply to form='paper'"),
        ({"skip": False}, "skip=False does not apply to form='paper'"),
        ({"linear_last": True}, "linear_last=True does not apply to form='paper'"),
        ({"form": "deep", "space": "hidden"}, "space='hidden' does not apply to form='deep'"),
        ({"form": "deep", "residual": True}, "residual=True does not apply to form='deep'"),
    ],
)
def test_bad_options_are_named(options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        undropped(**{"in_channels": 3, "hidden_channels": 8, "out_channels": 4, **options})


def test_config_holds_every_argument() -> None:
    model = undropped(3, 8, 4, sharing="large", norm="layer")
    again = undropped(**model.config)
    assert again.config == model.config
    assert (model.config["sharing"], model.config["norm"], len(model.config)) == (
        "large",
        "layer",
        28,
    )


def test_repr_names_the_parts() -> None:
    text = repr(undropped(3, 8, 4))
    assert text.startswith("Specformer(\n")
    for piece in ("(lift): Linear(in_features=3, ", "(readout): Linear(in_features=8, "):
        assert piece in text
    assert "LinearBases(num_heads=4, channels=4, dropout=0.0)" in text


@pytest.mark.parametrize("landmarks", [2, torch.ones(2), STAR], ids=["count", "tensor", "spectrum"])
def test_landmarks_of_another_kind_are_refused(landmarks) -> None:
    with pytest.raises(ConfigError, match=r"must come from spectrum\.landmarks\(…\), not be a"):
        undropped(3, 8, 4)(torch.ones(7, 3), STAR, landmarks)


@pytest.mark.parametrize(
    ("x", "spectrum", "message"),
    [
        (torch.ones(7, 3), SMALL["star"], "spectrum must come from sf.decompose .* csr"),
        (torch.ones(7, 3), None, "spectrum must come from sf.decompose .* NoneType"),
        (torch.ones(6, 3), STAR, r"x has shape \[6, 3\], but the spectrum has 7 nodes"),
        (torch.ones(7, 4), STAR, r"x has shape \[7, 4\], .* the model in_channels=3"),
        (torch.ones(3), STAR, r"x has shape \[3\]"),
        (torch.ones(7, 3).double(), STAR, "x is torch.float64, the model is torch.float32 and"),
        (torch.ones(7, 3), STAR.to(dtype=torch.float64), "and the spectrum is torch.float64"),
        (torch.ones(7, 3).numpy(), STAR, "x must be a dense tensor or SparseFeatures.* ndarray"),
        (torch.ones(7, 3).to_sparse(), STAR, "not a tensor of layout torch.sparse_coo"),
    ],
)
def test_what_does_not_fit_is_named(x, spectrum, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        undropped(3, 8, 2)(x, spectrum)


def test_autocast_may_mix_precisions() -> None:
    model = undropped(3, 8, 2)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(torch.ones(7, 3, dtype=torch.bfloat16), STAR)
    assert out.shape == (7, 2)
    assert out.isfinite().all()


@pytest.mark.parametrize("form", ["paper", "deep"])
def test_bfloat16_weights_lose_no_more_than_autocast(form: str) -> None:
    """Eigenvalues of eight bits, times 100, were encoded as others: 5% of the output was lost."""
    graph = nx.erdos_renyi_graph(200, 0.05, seed=1)
    spectrum, x = decompose(graph, dtype=torch.float64), random(200, 16)
    torch.manual_seed(0)
    model = Specformer(16, 32, 4, form=form).double().eval()
    given = (x, spectrum.eigenvalues, spectrum.eigenvectors)
    expected = reference.specformer(model.state_dict(), model.config, *given)
    brief, values = model.bfloat16(), spectrum.to(torch.bfloat16)
    assert len(values.cpu().distinct.values) == len(spectrum.distinct.values)
    for landmarks in (None, values.landmarks(64)):
        out = brief(x.bfloat16(), values, landmarks).double()
        assert (out - expected).norm() < 0.012 * expected.norm()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("decomposed", [False, True], ids=["approximate", "decompose"])
@pytest.mark.parametrize("options", [{}, {"transform": True, "norm": "batch"}], ids=["plain", "bn"])
def test_gradients_under_autocast_are_near_those_without(sparse, decomposed, options) -> None:
    spectrum = (decompose if decomposed else approximate)(SMALL["star"])
    torch.manual_seed(0)
    model, x = undropped(3, 8, 4, **options), random(spectrum.num_nodes, 3).float()
    given = SparseFeatures.from_scipy(sp.csr_array(x.numpy())) if sparse else x
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = model(given, spectrum).float()
            loss = (out * random(*out.shape, seed=1).float()).sum()
        found.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
        )
    assert torch.nn.functional.cosine_similarity(*found, dim=0) > 0.98


@pytest.mark.parametrize("keys", [None, 2], ids=["tokens", "landmarks"])
def test_training_after_evaluation_in_inference_mode(keys) -> None:
    spectrum = decompose(SMALL["star"])
    landmarks = None if keys is None else spectrum.landmarks(keys)
    model, x = undropped(3, 8, 4, num_blocks=2), random(spectrum.num_nodes, 3).float()
    with torch.inference_mode():
        before = model(x, spectrum, landmarks)
    after = model(x, spectrum, landmarks)
    torch.testing.assert_close(after, before.clone())
    after.sum().backward()
