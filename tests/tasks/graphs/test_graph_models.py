r"""Fresh models of many graphs, and those that were trained before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.jobs import predict_with, train_on
from tests.training.small_graphs import small_set, three_classes, with_numbers

from specformer.datasets import GRAPH_SETS, pack
from specformer.errors import ConfigError, RunError, SpecformerError
from specformer.graphs import GraphSet
from specformer.graphs.formats.npz_file import write_graph_set
from specformer.tasks.graphs.graph_models import (
    StartingPoint,
    cardinalities,
    graph_model,
    model_for,
)
from specformer.tasks.graphs.graph_recipe import GraphRecipe, graph_recipe
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent


def sample(name: str) -> GraphSet:
    """One atom of a named set."""
    entry = GRAPH_SETS[name]
    columns, y = len(entry.atom_cardinalities), np.zeros((1, 1))
    return GraphSet(
        [1], [0], [], np.zeros((1, columns), int),
        np.zeros((0, len(entry.bond_cardinalities)), int), y, name=name,
    )  # fmt: skip


def test_zinc_has_the_papers_number_of_parameters() -> None:
    recipe = graph_recipe("paper", "zinc")[1]
    model = graph_model("specformer", recipe, *cardinalities(sample("zinc"), recipe), 1)
    assert sum(parameter.numel() for parameter in model.parameters()) == 529_609


@pytest.mark.parametrize(
    ("name", "tasks", "paper"), [("molhiv", 1, 226_645), ("molpcba", 128, 3_025_048)]
)
def test_the_authors_recipes_have_the_papers_number_of_parameters(name, tasks, paper) -> None:
    recipe = graph_recipe("authors", name)[1]
    (elements, chirality, *others), bonds = cardinalities(sample(name), recipe)
    assert chirality == 5  # OGB had four kinds when the paper was written
    model = graph_model("specformer", recipe, [elements, 4, *others], bonds, tasks)
    assert sum(parameter.numel() for parameter in model.parameters()) == paper
    assert (recipe.matrix, recipe.schedule.beta1) == ("adjacency-with-loops", 0.9)


def test_atoms_make_room_or_are_refused() -> None:
    graphs = small_set()
    assert cardinalities(graphs, GraphRecipe()) == ([3], [2])
    assert cardinalities(graphs, GraphRecipe(atoms=[9])) == ([9], [2])
    with pytest.raises(ConfigError, match="beyond"):
        cardinalities(graphs, GraphRecipe(atoms=[2]))
    with pytest.raises(ConfigError, match="1 columns"):
        cardinalities(graphs, GraphRecipe(atoms=[3, 3]))


@pytest.mark.parametrize(
    ("graphs", "task", "outputs", "numbers"),
    [
        (small_set(), None, 2, 0),
        (small_set(classes=True), None, 2, 0),
        (three_classes(), None, 1, 0),
        (three_classes(), "classification", 3, 0),
        (with_numbers(small_set()), None, 2, 2),
    ],
)
def test_a_model_has_room_for_what_the_graphs_hold(graphs, task, outputs, numbers) -> None:
    recipe = GraphRecipe(task=task).settled(graphs)
    model = model_for(graphs, "specformer", recipe)
    assert model.config["out_channels"] == outputs
    assert model.config["in_channels"] == numbers
    assert model.config["node_cardinalities"] == ([3] if numbers == 0 else [1])
    with pytest.raises(ConfigError, match="unknown model 'odd'"):
        model_for(graphs, "odd", recipe)


CPU = torch.device("cpu")
SMALL = ["model.hidden_channels=8", "model.num_heads=2", "model.num_layers=1"]


def train(folder: Path, graphs: GraphSet, *changes: str, **options: Any) -> RunFolder:
    """A finished run in ``folder``."""
    folder.mkdir()
    source = folder / f"{graphs.name}.npz"
    write_graph_set(source, graphs)
    result, outcome = train_on(
        str(source),
        **{"model": "specformer", "recipe": None, "device": CPU, "progress": Silent()} | options,
        assignments=["schedule.epochs=1", *changes],
    )
    run = RunFolder.create(folder / "run", {"command": "train", "source": str(source)})
    run.write_models(outcome.models)
    run.finish("molecules", result, outcome.arrays, command="test", seed=0, device=CPU)
    return run


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two models of graphs with two targets."""
    folder = tmp_path_factory.mktemp("first") / "of"
    own = ("matrix=adjacency-with-loops", "model.feature_dropout=0.2")
    return train(folder, small_set(60), *SMALL, *own, runs=2)


def recipe_for(graphs: GraphSet, start: StartingPoint, *changes: str):
    return graph_recipe(None, "small", changes, given=start.settings)[1].settled(graphs)


def test_all_weights_but_the_last_layers_are_taken_over(first: RunFolder) -> None:
    graphs, start = three_classes(60), StartingPoint.of(first.path, "specformer")
    recipe = recipe_for(graphs, start, "task=classification", "model.feature_dropout=0.5")
    assert recipe_for(graphs, start, "task=classification").model.feature_dropout == 0.0
    assert recipe.matrix == "adjacency-with-loops"
    batch = pack(graphs, matrix=recipe.matrix, fingerprint=recipe.model.fingerprint)
    for run in range(3):
        trained = start.models[run % 2]
        model = start.model_for(graphs, recipe, run).eval()
        assert model.config["feature_dropout"] == 0.5
        assert model.readout.out_features == 3
        with torch.no_grad():
            apart = model(batch) - trained(batch)[:, :1]
            assert apart.std() > 0
            # With the old last layer it says what the old model says.
            model.readout = trained.readout
            torch.testing.assert_close(model(batch), trained(batch))


def test_a_run_trains_the_models_further(tmp_path: Path, first: RunFolder) -> None:
    """At a rate of nearly nothing they stay what they were; the models before are not touched."""
    before = {path: path.read_bytes() for path in first.model_folder(0).iterdir()}
    still = ["schedule.learning_rate=1e-12", "schedule.weight_decay=0", "standardise=false"]
    run = train(tmp_path / "still", small_set(60), *still, start=first.path, lanes=2, runs=2)
    result = run.result()
    assert result["start"] == str(first.path)
    assert result["settings"]["model"]["hidden_channels"] == 8
    start = StartingPoint.of(first.path, "specformer")
    for ours, theirs in zip(
        StartingPoint.of(run.path, "specformer").models, start.models, strict=True
    ):
        expected = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            same = torch.allclose(parameter, expected[name], atol=1e-8)
            assert same != name.startswith("readout."), name
    assert {path: path.read_bytes() for path in first.model_folder(0).iterdir()} == before


def test_numbers_mean_what_they_meant_to_the_start(tmp_path: Path) -> None:
    """The same number of a node is the same to the weights, however it is spread in a set."""
    first = train(tmp_path / "first", with_numbers(small_set(60)), *SMALL)
    spread = with_numbers(small_set(60), scale=3.0)
    run = train(tmp_path / "then", spread, "schedule.learning_rate=1e-12", start=first.path)
    before, then = (StartingPoint.of(each.path, "specformer").models[0] for each in (first, run))
    fresh = train(tmp_path / "fresh", spread, *SMALL)
    without = StartingPoint.of(fresh.path, "specformer").models[0]
    for name in ("atoms.mean", "atoms.std"):
        own = before.state_dict()[name]
        torch.testing.assert_close(then.state_dict()[name], own, rtol=0, atol=0)
        torch.testing.assert_close(without.state_dict()[name], 3 * own)


def test_atoms_that_only_the_start_has_learned_from_are_predicted(
    tmp_path: Path, first: RunFolder
) -> None:
    graphs = small_set(60)
    plain = replace(graphs, node_feat=np.minimum(graphs.node_feat, 1), name="plain")
    write_graph_set(tmp_path / "small.npz", graphs)
    told = {}
    for name, start in (("with", first.path), ("without", None)):
        run = train(tmp_path / name, plain, *([] if start else SMALL), start=start)
        told[name] = predict_with(run, graph=str(tmp_path / "small.npz"), device=CPU)
    assert told["with"].problems == []
    assert "has an atom unlike any learned from" in told["without"].problems[0]


def test_what_cannot_start_from_it_is_refused(tmp_path: Path, first: RunFolder) -> None:
    graphs = small_set(60)
    for name, told, changes, options in (
        ("gin", "holds models specformer, not gin", (), {"model": "gin"}),
        ("wide", r"^model.hidden_channels=16: the models of .* have other weights",
         ("model.hidden_channels=16",), {}),
        ("deep", r"^model.num_layers=2, model.sharing=large: ",
         ("model.num_layers=2", "model.sharing=large"), {}),
        ("room", r"^atoms=\[9, 9\]: the models of .* have room for \[", ("atoms=[9, 9]",), {}),
        ("both", r"^--from .* and --set start=molpcba: give one", ("start=molpcba",), {}),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            train(tmp_path / name, graphs, *changes, start=first.path, **options)
    strange = replace(graphs, node_feat=graphs.node_feat + 1)
    with pytest.raises(ConfigError, match=r"small: graph \d+ has an atom or bond that the models"):
        train(tmp_path / "strange", strange, start=first.path)
    with pytest.raises(RunError, match="numbers of atoms, the model was trained on 0"):
        train(tmp_path / "numbers", with_numbers(graphs), start=first.path)
    with pytest.raises(RunError, match="not a run folder"):
        train(tmp_path / "nothing", graphs, start=tmp_path)


def test_runs_without_models_to_start_from_are_refused(tmp_path: Path, first: RunFolder) -> None:
    for name, command, change, told in (
        ("table", "table", {}, "only runs of `specformer train` keep models"),
        ("nodes", "train", {"kind": "nodes"}, "was not trained on molecules"),
        ("settings", "train", {"settings": {"modle": {}}}, "settings: unknown key 'modle'"),
        ("bare", "train", {}, "no saved models"),
    ):
        run = RunFolder.create(tmp_path / name, {"command": command})
        with pytest.raises(SpecformerError, match=r"not finished|only runs"):
            StartingPoint.of(run.path, "specformer")
        run.write_result(first.result() | change)
        with pytest.raises(SpecformerError, match=told):
            StartingPoint.of(run.path, "specformer")


def test_a_checkpoint_belongs_to_its_start(tmp_path: Path, first: RunFolder) -> None:
    def begun() -> Any:
        return RunFolder(tmp_path)

    train(tmp_path / "one", small_set(60), start=first.path, begin=begun)
    other = train(tmp_path / "other", small_set(60), *SMALL, "matrix=adjacency-with-loops", seed=7)
    train(tmp_path / "again", small_set(60), start=first.path, begin=begun)
    with pytest.raises(RunError, match=r"checkpoint-000\.safetensors"):
        train(tmp_path / "two", small_set(60), start=other.path, begin=begun)
