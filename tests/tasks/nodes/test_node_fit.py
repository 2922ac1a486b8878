"""Node classification with and without a decomposition."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.tasks.jobs import classify, prepared_by

from specformer.datasets import csbm, make_splits
from specformer.errors import ConfigError, RunError
from specformer.graphs import Graph
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Spectrum, products
from specformer.tasks.job import Workplace
from specformer.tasks.nodes.node_fit import node_landmarks
from specformer.tasks.nodes.node_predict import NodePredictor
from specformer.tasks.nodes.node_recipe import NodeRecipe, node_recipe
from specformer.tasks.nodes.node_work import kept_spectrum, node_spectrum
from specformer.tasks.task import Outcome
from specformer.training.loops.nodes import NodeRuns
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
SETTINGS = [
    "split=random-60-20-20",
    "schedule.epochs=60",
    "schedule.learning_rate=0.02",
    "model.propagation_dropout=0",
    "model.hidden_channels=16",
]


def predict_nodes(models, graph: Graph, spectrum: AnySpectrum, prepared, device) -> torch.Tensor:
    """The mean over models."""
    predictor = NodePredictor(models, prepared, (), {"settings": {"loss": "ce"}})
    return predictor.with_operator(graph, spectrum, device).mean(dim=0)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return csbm(0.6, num_nodes=300, num_features=20, signal=9.0, seed=2)


def trained(graph: Graph, *changes: str) -> tuple[NodeRecipe, AnySpectrum, Outcome]:
    recipe = node_recipe("default", "own", [*SETTINGS, *changes])[1].settled(graph)
    spectrum = node_spectrum(graph, recipe, Workplace(CPU))
    splits = make_splits(graph, recipe.split, 3, 0)
    outcome = classify(
        graph, spectrum, splits, "specformer", recipe, device=CPU, seed=0, progress=Silent()
    )
    return recipe, spectrum, outcome


@pytest.fixture(scope="module")
def decomposed(graph: Graph) -> tuple[NodeRecipe, AnySpectrum, Outcome]:
    return trained(graph)


def test_the_confusion_is_that_of_the_kept_models(graph, decomposed) -> None:
    recipe, spectrum, outcome = decomposed
    counts = outcome.arrays[f"nodes/{graph.name}/specformer/confusion"]
    expected = np.zeros((2, 2), dtype=int)
    for model, split in zip(outcome.models, make_splits(graph, recipe.split, 3, 0), strict=True):
        chances = predict_nodes([model], graph, spectrum, prepared_by(outcome)[:1], CPU).numpy()
        for node in np.flatnonzero(split.test):
            expected[graph.y[node], chances[node].argmax()] += 1
    np.testing.assert_array_equal(counts, expected)
    accuracy = outcome.row["test"]["mean"]  # of the epoch of the lowest loss, which is kept
    assert np.trace(counts) / counts.sum() == pytest.approx(accuracy)
    assert outcome.row["classes"] == ["0", "1"]


def test_edges_and_splits_are_described(graph, decomposed) -> None:
    largest = max(np.sum(graph.y == 0), np.sum(graph.y == 1)) / 300
    parts = (
        f"the largest class has {largest:.0%} of the labels; "
        "180 nodes train, 60 validate and 60 test (random-60-20-20)"
    )
    ends = graph.adjacency.tocoo().coords
    same = np.mean(graph.y[ends[0]] == graph.y[ends[1]])
    told = f"300 nodes, {graph.num_edges:,} edges, {same:.0%} of them between nodes of one class"
    assert decomposed[2].row["description"] == f"{told}; {parts}"
    assert decomposed[2].row["num_nodes"] == 300
    none = replace(graph, adjacency=sp.csr_array(graph.adjacency.shape))
    described = trained(none, "schedule.epochs=1")[2].row["description"]
    assert described == f"300 nodes, 0 edges; {parts}"


def test_a_training_that_diverges_is_refused(graph) -> None:
    said = r"training diverged: runs 1, 2, 3 of 3 have no model, .* from epoch 1 on, first in \w"
    with pytest.raises(RunError, match=said):
        trained(graph, "schedule.epochs=2", "schedule.learning_rate=1e30")


def test_a_run_that_diverges_late_keeps_its_best_and_is_told_of(graph, caplog, monkeypatch) -> None:
    """From the fifth epoch on the second of three runs has no numbers any more."""
    begin = NodeRuns.begin_epoch

    def spoiled(self: NodeRuns) -> None:
        if int(self.epoch) == 4:
            for parameter in self.model.parameters():
                parameter.data[1] = torch.nan
        begin(self)

    usual = trained(graph, "schedule.epochs=4")[2]
    assert not caplog.messages
    monkeypatch.setattr(NodeRuns, "begin_epoch", spoiled)
    outcome = trained(graph, "schedule.epochs=9")[2]
    (message,) = caplog.messages
    assert re.search(r"run 2 of 3 diverged in epoch 5, first in layer [\w.]+; the best", message)
    assert outcome.row["test"]["values"][1] == usual.row["test"]["values"][1]
    for one, other in zip(
        outcome.models[1].parameters(), usual.models[1].parameters(), strict=True
    ):
        assert torch.equal(one, other)


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
    name = f"nodes/{graph.name}/specformer"
    assert outcome.arrays[f"{name}/eigenvalues"].shape == (300,)
    assert outcome.arrays[f"{name}/response"].shape == (300, 4)
    assert np.isfinite(outcome.arrays[f"{name}/attention"]).all()


def test_a_model_trained_with_a_decomposition_predicts_without_one(graph, decomposed) -> None:
    _, spectrum, outcome = decomposed
    assert isinstance(spectrum, Spectrum)
    assert "interpolation_error" not in outcome.row
    expected = predict_nodes(outcome.models, graph, spectrum, prepared_by(outcome), CPU)
    _, other = node_recipe("default", "own", [*SETTINGS, "spectrum=density", "degree=256"])
    density = node_spectrum(graph, other, Workplace(CPU))
    found = predict_nodes(outcome.models, graph, density, prepared_by(outcome), CPU)
    assert (found - expected).abs().max() < 0.02


def test_a_degree_too_low_is_warned_of(graph, decomposed, caplog) -> None:
    _, _, outcome = decomposed
    _, other = node_recipe("default", "own", [*SETTINGS, "spectrum=density", "degree=2"])
    with caplog.at_level(logging.WARNING):
        predict_nodes(
            outcome.models,
            graph,
            node_spectrum(graph, other, Workplace(CPU)),
            prepared_by(outcome),
            CPU,
        )
    assert "filters of degree 2 are" in caplog.text


def test_what_a_recipe_may_say() -> None:
    with pytest.raises(ConfigError, match="spectrum"):
        node_recipe("default", "own", ["spectrum=guessed"])
    keys = {
        node_recipe("default", "own", changes)[1].spectrum_key
        for changes in ([], ["k=5"], ["spectrum=density"], ["spectrum=density", "degree=9"])
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    "device",
    [
        CPU,
        pytest.param(
            torch.device("cuda"),
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
        ),
    ],
    ids=str,
)
def test_landmarks_are_checked_against_exact_attention(device):
    graph = csbm(0.6, num_nodes=200, num_features=8, seed=3)
    _, recipe = node_recipe(None, "mine", ["landmarks=60", "model.epsilon=10", "schedule.epochs=5"])
    spectrum = node_spectrum(graph, recipe, Workplace(device))
    points = node_landmarks(spectrum, recipe)
    assert (len(points.values), len(points.points)) == (60, 48)
    splits = make_splits(graph, recipe.split, 2, 0)
    outcome = classify(
        graph, spectrum, splits, "specformer", recipe, device=device, seed=0, progress=Silent()
    )
    assert 0 < outcome.row["landmark_error"] < 1e-3
    with pytest.raises(ConfigError, match="landmarks=0 must be at least 2"):
        node_landmarks(spectrum, node_recipe(None, "mine", ["landmarks=0"])[1])


# --- batches of nodes, streamed eigenvectors ----------------------------------------------------

BATCHES = ("spectrum=density", "degree=32", "model.space=input", "batch_size=64")


def test_batches_of_nodes_reach_the_same_accuracy(graph, decomposed) -> None:
    _, spectrum, outcome = trained(graph, *BATCHES, "schedule.epochs=30")
    assert isinstance(spectrum, ImplicitSpectrum)
    expected = decomposed[2].row["test"]["mean"]
    assert outcome.row["test"]["mean"] == pytest.approx(expected, abs=0.06)
    assert outcome.row["interpolation_error"] > 0
    assert all(model.takes_batches for model in outcome.models)


def test_a_model_trained_in_batches_predicts_with_a_decomposition(graph) -> None:
    fine = ("degree=64", "model.epsilon=5", "schedule.epochs=10")
    _, spectrum, outcome = trained(graph, *BATCHES, *fine)
    _, other = node_recipe("default", "own", [*SETTINGS, "model.space=input", *fine])
    exact = node_spectrum(graph, other, Workplace(CPU))
    assert isinstance(exact, Spectrum)
    found = predict_nodes(outcome.models, graph, exact, prepared_by(outcome), CPU)
    expected = predict_nodes(outcome.models, graph, spectrum, prepared_by(outcome), CPU)
    # The error is next to none; what is left comes from the density, which is estimated.
    assert outcome.row["interpolation_error"] < 1e-3
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("settings", [["batch_size=0", "spectrum=density"], ["batch_size=32"]])
def test_bad_batches_are_refused(settings: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"batch_size=\d+ (must be at least 1|needs spectrum=d)"):
        node_recipe("default", "own", settings)


def test_batches_need_filters_of_the_input(graph) -> None:
    with pytest.raises(ConfigError, match=r"batch_size needs Specformer with model\.space=input"):
        trained(graph, "spectrum=density", "batch_size=64")
    _, recipe = node_recipe("default", "own", [*SETTINGS, *BATCHES])
    splits = make_splits(graph, recipe.split, 1, 0)
    with pytest.raises(ConfigError, match="batch_size needs Specformer"):
        classify(graph, None, splits, "gcn", recipe, device=CPU, seed=0, progress=Silent())


def test_streamed_vectors_train_as_resident_ones_do(graph, decomposed, tmp_path) -> None:
    _, recipe = node_recipe("default", "own", [*SETTINGS, "vectors=streamed"])
    spectrum = node_spectrum(graph, recipe, Workplace(CPU, cache=tmp_path))
    assert isinstance(spectrum, Spectrum)
    assert spectrum.is_streamed
    splits = make_splits(graph, recipe.split, 3, 0)
    outcome = classify(
        graph, spectrum, splits, "specformer", recipe, device=CPU, seed=0, progress=Silent()
    )
    torch.testing.assert_close(outcome.row["val"]["values"], decomposed[2].row["val"]["values"])


def test_vectors_are_kept_as_they_are_read(decomposed, monkeypatch) -> None:
    whole = decomposed[1]
    monkeypatch.setattr(products, "_MANY", whole.eigenvectors.numel())
    seen = []
    monkeypatch.setattr(Spectrum, "to", lambda _, *where, storage: seen.append((*where, storage)))
    gpu, brief = torch.device("cuda"), torch.bfloat16
    for changes, device, storage in (
        ([], gpu, brief),
        ([], CPU, torch.float32),
        (["precision=high"], gpu, torch.float32),
        (["storage=float32"], gpu, torch.float32),
        (["storage=bfloat16"], CPU, brief),
    ):
        kept_spectrum(whole, node_recipe("default", "own", [*SETTINGS, *changes])[1], device)
        assert seen.pop() == (device, storage)


def test_storage_in_half_the_precision(graph, decomposed) -> None:
    for changes in (["storage=bfloat16"], ["storage=bfloat16", "vectors=streamed"]):
        _, recipe = node_recipe("default", "own", [*SETTINGS, *changes])
        spectrum = node_spectrum(graph, recipe, Workplace(CPU))
        assert isinstance(spectrum, Spectrum)
        assert spectrum.eigenvectors.dtype == torch.bfloat16
        assert spectrum.dtype == torch.float32
        _, exact, outcome = decomposed
        found = predict_nodes(outcome.models, graph, spectrum, prepared_by(outcome), CPU)
        expected = predict_nodes(outcome.models, graph, exact, prepared_by(outcome), CPU)
        torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_vectors_are_streamed_where_they_do_not_fit(graph, monkeypatch, caplog) -> None:
    _, auto = node_recipe("default", "own", [])
    assert not node_spectrum(graph, auto, Workplace(CPU)).is_streamed
    monkeypatch.setattr("specformer.tasks.nodes.node_work.vectors_fit", lambda *_: False)
    assert node_spectrum(graph, auto, Workplace(CPU)).is_streamed
    assert caplog.messages == ["eigenvectors of 0.0 GiB are streamed: cpu is too small"]
    _, resident = node_recipe("default", "own", ["vectors=resident"])
    assert not node_spectrum(graph, resident, Workplace(CPU)).is_streamed


def test_words_for_places_are_checked() -> None:
    with pytest.raises(ConfigError, match="'auto' or 'resident' or 'streamed'"):
        node_recipe("default", "own", ["vectors=nowhere"])
    with pytest.raises(ConfigError, match="'float32' or 'bfloat16'"):
        node_recipe("default", "own", ["storage=int8"])


def test_wordnet_is_not_decomposed() -> None:
    name, recipe = node_recipe(None, "wordnet")
    assert (name, recipe.spectrum, recipe.degree) == ("default", "density", 16)
    assert node_recipe(None, "wordnet", ["degree=32"])[1].degree == 32


def test_long_spectra_have_landmarks_by_default():
    recipe = node_recipe(None, "mine")[1]

    def spread(count):
        return Spectrum(torch.linspace(0.0, 2.0, count), torch.zeros(1, count))

    assert node_landmarks(spread(2048), recipe) is None
    found = node_landmarks(spread(2049), recipe)
    assert len(found.values) == 512
    assert len(found.points) == 512
    assert node_landmarks(spread(2049), replace(recipe, landmarks=None)) is None
    assert len(node_landmarks(spread(300), replace(recipe, landmarks=100)).values) == 100
