"""What reports show of learned filters, against dense products and a planted answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.tasks.jobs import classify

from specformer.datasets import grid_graph, make_splits
from specformer.graphs import Graph
from specformer.spectrum import decompose
from specformer.tasks.nodes.recipe import node_recipe
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
#: The only eigenvalues that labels depend on.
BAND = (1.35, 1.6)


@pytest.fixture(scope="module")
def planted():
    """White noise on a grid, whose labels are the signs of what a band-pass leaves of it."""
    grid = grid_graph(16, 20)
    spectrum = decompose(grid)
    values, vectors = spectrum.eigenvalues.numpy(), spectrum.eigenvectors.numpy()
    x = np.random.default_rng(0).normal(size=(320, 2)).astype(np.float32)
    passed = vectors * ((values > BAND[0]) & (values < BAND[1])) @ vectors.T @ x[:, 0]
    graph = Graph(grid.adjacency, x=x, y=(passed > 0).astype(int), name="planted")
    changes = [
        "schedule.epochs=200", "schedule.learning_rate=0.01", "model.feature_dropout=0",
        "model.propagation_dropout=0", "model.transformer_dropout=0", "features=none",
    ]  # fmt: skip
    recipe = node_recipe("default", "own", changes)[1].settled(graph)
    splits = make_splits(graph, recipe.split, 2, 0)
    outcome = classify(
        graph, spectrum, splits, "specformer", recipe, device=CPU, seed=0, progress=Silent()
    )
    where = "nodes/planted/specformer/"
    arrays = {name.removeprefix(where): array for name, array in outcome.arrays.items()}
    return graph, spectrum, outcome, arrays


def in_band(values):
    return (values > BAND[0]) & (values < BAND[1])


def test_energy_points_to_the_band_that_labels_depend_on(planted):
    _, _, outcome, arrays = planted
    assert outcome.row["test"]["mean"] > 0.8
    middles = (np.arange(64) + 0.5) / 32
    before, after, labels = arrays["energy"][in_band(middles)].sum(axis=0)

    np.testing.assert_allclose(arrays["energy"].sum(axis=0), 1.0, rtol=1e-5)
    assert before < 0.25
    assert labels > 0.5
    assert after > 2 * before


def test_filters_of_every_run_are_kept(planted):
    _, spectrum, outcome, arrays = planted
    runs, layers, points, heads = arrays["filters"].shape
    assert (runs, points) == (2, len(arrays["filters_at"]))

    every = outcome.models[1].responses(spectrum)
    assert (layers, heads) == (len(every), every[0].shape[1])
    at = torch.as_tensor(arrays["filters_at"])
    nearest = (spectrum.eigenvalues[:, None] - at).abs().argmin(dim=0)
    np.testing.assert_allclose(
        arrays["filters"][1, 0], every[0][nearest].detach(), rtol=1e-4, atol=1e-4
    )


def test_an_impulse_spreads_as_the_dense_filter_says(planted):
    _, spectrum, outcome, arrays = planted
    response = outcome.models[0].responses(spectrum)[0].detach().double()
    vectors = spectrum.eigenvectors.double()
    for number, centre in enumerate(arrays["drawn/centres"]):
        for head, drawn in enumerate(arrays["drawn/spread"][number]):
            dense = vectors @ torch.diag(response[:, head]) @ vectors.T
            expected = dense[:, centre][torch.as_tensor(arrays["drawn/nodes"])]
            np.testing.assert_allclose(drawn, expected, rtol=1e-3, atol=1e-4)


def test_attention_adds_up_and_is_the_encoders(planted):
    _, spectrum, outcome, arrays = planted
    heads, rows, columns = arrays["attention_full"].shape
    assert rows == columns == len(arrays["attention_at"])
    np.testing.assert_allclose(arrays["attention_full"].sum(axis=-1), 1.0, rtol=1e-4)

    # Condensed to bands, the rows that were kept are close to all rows' means.
    condensed = outcome.models[0].condensed_attention(spectrum)[0].detach().numpy()
    band = np.searchsorted([2 / 3, 4 / 3], arrays["attention_at"], side="right")
    shares = np.stack([arrays["attention_full"][..., band == b].sum(axis=-1) for b in range(3)])
    assert condensed.shape[0] == heads
    for b in range(3):
        mean = shares[:, :, band == b].mean(axis=-1).T
        np.testing.assert_allclose(mean, condensed[:, b], atol=0.1)
