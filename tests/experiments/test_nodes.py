"""Node classification with and without a decomposition."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from specformer.datasets import csbm, make_splits
from specformer.errors import ConfigError
from specformer.experiments.node_recipe import NodeRecipe, node_recipe
from specformer.experiments.nodes import (
    NodeOutcome,
    classify_nodes,
    node_landmarks,
    node_spectrum,
    predict_nodes,
)
from specformer.graphs import Graph
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Spectrum
from specformer.training.progress import Silent

CPU = torch.device("cpu")
SETTINGS = [
    "schedule.epochs=60",
    "schedule.learning_rate=0.02",
    "model.propagation_dropout=0",
    "model.hidden_channels=16",
]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return csbm(0.6, num_nodes=300, num_features=20, signal=9.0, seed=2)


def trained(graph: Graph, *changes: str) -> tuple[NodeRecipe, AnySpectrum, NodeOutcome]:
    _, recipe = node_recipe("default", "own", [*SETTINGS, *changes])
    spectrum = node_spectrum(graph, recipe, CPU, None)
    splits = make_splits(graph, recipe.split, 3, 0)
    outcome = classify_nodes(
        graph, spectrum, splits, "specformer", recipe, device=CPU, seed=0, progress=Silent()
    )
    return recipe, spectrum, outcome


@pytest.fixture(scope="module")
def decomposed(graph: Graph) -> tuple[NodeRecipe, AnySpectrum, NodeOutcome]:
    return trained(graph)


def test_training_without_a_decomposition_reaches_the_same_accuracy(graph, decomposed) -> None:
    _, spectrum, outcome = trained(graph, "spectrum=density", "degree=32")
    assert isinstance(spectrum, ImplicitSpectrum)
    assert spectrum.degree == 32
    # 180 test nodes in three splits: 5 points are 9 of them; guessing would be at 50%.
    expected = decomposed[2].row["test"]["mean"]
    assert expected > 0.8
    assert outcome.row["test"]["mean"] == pytest.approx(expected, abs=0.05)
    assert 0.0 < outcome.row["interpolation_error"] < 1.0
    assert outcome.row["parameters"] == decomposed[2].row["parameters"]


def test_pictures_of_a_density(graph) -> None:
    _, _, outcome = trained(graph, "spectrum=density", "degree=8", "schedule.epochs=1")
    name = f"nodes/{graph.name}"
    assert outcome.arrays[f"{name}/eigenvalues"].shape == (300,)
    assert outcome.arrays[f"{name}/specformer/response"].shape == (300, 4)
    assert np.isfinite(outcome.arrays[f"{name}/attention"]).all()


def test_a_model_trained_with_a_decomposition_predicts_without_one(graph, decomposed) -> None:
    recipe, spectrum, outcome = decomposed
    assert isinstance(spectrum, Spectrum)
    assert "interpolation_error" not in outcome.row
    expected = predict_nodes(outcome.models, graph, spectrum, recipe, CPU)
    _, other = node_recipe("default", "own", [*SETTINGS, "spectrum=density", "degree=256"])
    density = node_spectrum(graph, other, CPU, None)
    found = predict_nodes(outcome.models, graph, density, recipe, CPU)
    assert (found - expected).abs().max() < 0.02


def test_a_degree_too_low_is_warned_of(graph, decomposed, caplog) -> None:
    recipe, _, outcome = decomposed
    _, other = node_recipe("default", "own", [*SETTINGS, "spectrum=density", "degree=2"])
    with caplog.at_level(logging.WARNING):
        predict_nodes(outcome.models, graph, node_spectrum(graph, other, CPU, None), recipe, CPU)
    assert "filters of degree 2 are" in caplog.text


def test_what_a_recipe_may_say() -> None:
    with pytest.raises(ConfigError, match="spectrum"):
        node_recipe("default", "own", ["spectrum=guessed"])
    keys = {
        node_recipe("default", "own", changes)[1].spectrum_key
        for changes in ([], ["k=5"], ["spectrum=density"], ["spectrum=density", "degree=9"])
    }
    assert len(keys) == 4


def test_landmarks_are_checked_against_exact_attention():
    graph = csbm(0.6, num_nodes=200, num_features=8, seed=3)
    _, recipe = node_recipe(None, "mine", ["landmarks=60", "model.epsilon=10", "schedule.epochs=5"])
    spectrum = node_spectrum(graph, recipe, CPU, None)
    points = node_landmarks(spectrum, recipe)
    assert (len(points.values), len(points.points)) == (60, 120)
    splits = make_splits(graph, recipe.split, 2, 0)
    outcome = classify_nodes(
        graph, spectrum, splits, "specformer", recipe, device=CPU, seed=0, progress=Silent()
    )
    assert 0 < outcome.row["landmark_error"] < 1e-3
    with pytest.raises(ConfigError, match="landmarks=0 must be at least 1"):
        node_landmarks(spectrum, node_recipe(None, "mine", ["landmarks=0"])[1])
