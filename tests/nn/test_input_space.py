"""Filters of the input, then the feature network: the formula written out, alone and stacked."""

from __future__ import annotations

import networkx as nx
import pytest
import scipy.sparse as sp
import torch
from tests.drawn import random
from tests.nn.plain_twin import scrambled
from tests.spectrum.known_graphs import adjacency
from tests.undropped import undropped

import specformer as sf
from specformer.errors import ConfigError
from specformer.nn.layers.sparse_features import SparseFeatures
from specformer.testing import assert_basis_invariant, assert_permutation_equivariant
from specformer.training.engine.stacking import stack

GRAPH = adjacency(nx.gnp_random_graph(20, 0.2, seed=3))
EXACT = sf.decompose(GRAPH, dtype=torch.float64)


def model(seed: int = 0, **options) -> sf.Specformer:
    torch.manual_seed(seed)
    made = undropped(3, 8, 4, num_heads=2, space="input", **options)
    return scrambled(made, seed).eval()


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("feature_layers", [1, 2])
def test_the_formula(layers: int, feature_layers) -> None:
    plain, x = model(num_layers=layers, feature_layers=feature_layers), random(20, 3)
    response = plain.responses(EXACT)[0]
    U, hidden = EXACT.eigenvectors, x
    for conv in plain.convs:
        weight = conv.bases.weight
        copies = [hidden, *(U @ torch.diag(response[:, m]) @ U.T @ hidden for m in range(2))]
        hidden = sum(weight[m] * copies[m] for m in range(3))
    out = hidden @ plain.lift.weight.T + plain.lift.bias
    if feature_layers == 2:
        out = out.relu() @ plain.readout.weight.T + plain.readout.bias
    torch.testing.assert_close(plain(x, EXACT), out)


def test_it_depends_on_the_graph_alone() -> None:
    plain = model(num_layers=2).float()
    x, spectrum = random(20, 3).float(), EXACT.to(dtype=torch.float32)
    assert_permutation_equivariant(plain, x, GRAPH)
    assert_basis_invariant(plain, x, spectrum)


def test_runs_are_stacked() -> None:
    models, x = [model(seed, num_layers=1) for seed in range(3)], random(20, 3)
    out = stack(models).eval()(x, EXACT)
    for run, alone in enumerate(models):
        torch.testing.assert_close(out[run], alone(x, EXACT))


def test_a_saved_model_comes_back(tmp_path) -> None:
    plain, x = model().float(), random(20, 3).float()
    plain.save_pretrained(tmp_path)
    again = sf.Specformer.from_pretrained(tmp_path)
    spectrum = EXACT.to(dtype=torch.float32)
    assert torch.equal(again(x, spectrum), plain(x, spectrum))


def test_features_must_be_a_tensor() -> None:
    x = SparseFeatures.from_scipy(sp.csr_array(random(20, 3).numpy()), dtype=torch.float64)
    with pytest.raises(ConfigError, match="give x as a dense tensor"):
        model()(x, EXACT)
