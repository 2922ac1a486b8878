"""The node model on a spectrum without eigenvectors: the same model, to interpolation's error."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import scrambled
from tests.spectrum.known_graphs import adjacency
from tests.undropped import undropped

import specformer as sf
from specformer.errors import ConfigError
from specformer.training.engine.stacking import stack

GRAPH = adjacency(nx.gnp_random_graph(30, 0.15, seed=8))
EXACT = sf.decompose(GRAPH, dtype=torch.float64)


def implicit(degree: int, graph=GRAPH) -> sf.ImplicitSpectrum:
    """With a complete token set, so that nothing but the interpolation is approximate."""
    n = graph.shape[0]
    return sf.approximate(graph, degree=degree, probes=n, steps=n, dtype=torch.float64)


def model(seed: int = 0, **options) -> sf.Specformer:
    torch.manual_seed(seed)
    return scrambled(undropped(3, 8, 4, num_heads=2, **options), seed).eval()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sharing": "large", "num_layers": 3},
        {"decoder": "heads", "num_blocks": 2},
        {"space": "hidden", "norm": "layer", "activation": "relu", "transform": True},
        {"space": "hidden", "residual": True, "sharing": "small"},
        {"propagation_dropout": 0.3},
        {"form": "deep", "num_layers": 3},
    ],
    ids=str,
)
def test_agrees_with_the_decomposed_one(options) -> None:
    plain, x = model(epsilon=10.0, **options), random(30, 3)
    expected = plain(x, EXACT)
    few, many = ((plain(x, implicit(k)) - expected).norm() / expected.norm() for k in (8, 128))
    assert many < 1e-6
    assert many < few / 100


def test_interpolation_error_is_what_it_says() -> None:
    plain = model(epsilon=20.0)
    own = plain.responses(EXACT)[0].detach()
    for degree in (4, 10, 20):
        spectrum = implicit(degree)
        at_points = plain.responses(spectrum)[0].detach()
        rows = spectrum.interpolate(at_points, EXACT.eigenvalues) - own
        expected = (rows.norm(dim=0) / own.norm(dim=0)).max()
        assert plain.interpolation_error(spectrum) == pytest.approx(float(expected), rel=1e-6)
    assert plain.interpolation_error(implicit(512)) < 1e-8


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_training_and_evaluation_apply_one_filter(dropout: float, monkeypatch) -> None:
    """At a degree far too low, the two would differ if they composed their filters differently."""
    plain, x, spectrum = model(propagation_dropout=dropout), random(30, 3), implicit(6)
    evaluated = plain(x, spectrum)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, *_: x)
    torch.testing.assert_close(plain.train()(x, spectrum), evaluated)


def test_permutation_equivariance() -> None:
    plain, x = model(), random(30, 3)
    order = np.random.default_rng(0).permutation(30)
    moved = GRAPH[order][:, order]
    expected = plain(x, implicit(40))[torch.as_tensor(order)]
    torch.testing.assert_close(plain(x[order], implicit(40, moved)), expected, rtol=0, atol=1e-8)


def test_a_batch_of_runs() -> None:
    models, x, spectrum = [model(seed) for seed in range(3)], random(30, 3), implicit(16)
    together = stack(models).eval()
    out = together(x, spectrum)
    assert out.shape == (3, 30, 4)
    for run, alone in enumerate(models):
        torch.testing.assert_close(out[run], alone(x, spectrum), rtol=0, atol=1e-10)
    worst = max(alone.interpolation_error(spectrum) for alone in models)
    assert together.interpolation_error(spectrum) == pytest.approx(worst)


def test_gradients_reach_every_parameter_of_filters_and_maps() -> None:
    plain, x = model(epsilon=10.0), random(30, 3)
    weights = random(30, 4, seed=3)
    gradients = []
    for spectrum in (EXACT, implicit(512)):
        plain.zero_grad()
        (plain(x, spectrum) * weights).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in plain.parameters()])
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)


def test_attention_between_bands() -> None:
    plain = model()
    torch.testing.assert_close(
        plain.condensed_attention(implicit(8)), plain.condensed_attention(EXACT)
    )


def test_a_saved_model_moves_to_a_graph_without_a_decomposition(tmp_path) -> None:
    plain, x = model(epsilon=10.0).float(), random(30, 3).float()
    plain.save_pretrained(tmp_path)
    again = sf.Specformer.from_pretrained(tmp_path)
    expected = plain(x, EXACT.to(dtype=torch.float32))
    out = again(x, implicit(128).to(dtype=torch.float32))
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)


def test_entry_wise_bases_need_eigenvectors() -> None:
    with pytest.raises(ConfigError, match="bases='ffn' needs real eigenvectors"):
        model(bases="ffn")(random(30, 3), implicit(8))
