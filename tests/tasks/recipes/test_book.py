"""Recipes by name, model and data set."""

from __future__ import annotations

import inspect
from dataclasses import asdict, replace

import pytest
import torch
from tests.tasks.jobs import run_table, train_on
from tests.training.small_graphs import small_set

from specformer.datasets import GRAPH_SETS, NODE_SETS, csbm
from specformer.errors import ConfigError
from specformer.graphs import write_graph_set, write_npz
from specformer.nn import Specformer
from specformer.paper.table2 import table2
from specformer.paper.table3 import table3
from specformer.paper.table_rows import table_grid
from specformer.tasks.graphs import graph_recipe as many_recipes
from specformer.tasks.graphs.graph_models import GRAPH_MODELS, graph_model
from specformer.tasks.graphs.graph_recipe import graph_recipe, graph_recipes_for
from specformer.tasks.nodes import node_recipe as recipes
from specformer.tasks.nodes.node_recipe import (
    NODE_MODELS,
    NodeModel,
    node_model,
    node_recipe,
    recipes_for,
)
from specformer.tasks.recipes.book import NAMED, RecipeBook
from specformer.training.runs.progress import Silent

WRITTEN, MANY = (RecipeBook(file).written for file in ("nodes.yaml", "molecules.yaml"))
ENTRIES, MANY_ENTRIES = (
    [
        (name, model, dataset)
        for name in NAMED
        for model, sets in written.get(name, {}).items()
        for dataset in sets
    ]
    for written in (WRITTEN, MANY)
)


@pytest.fixture
def tuned_gcn(monkeypatch):
    """A recipe ``best`` of a baseline, as a search leaves it."""
    changes = {"baseline": {"num_layers": 3}, "schedule": {"weight_decay": 0.0}, "features": "none"}
    best = {**WRITTEN["best"], "gcn": {**WRITTEN["best"].get("gcn", {}), "cora": changes}}
    monkeypatch.setitem(recipes._BOOK.written, "best", best)


@pytest.mark.parametrize(("name", "model", "dataset"), ENTRIES)
def test_every_recipe_builds_its_model(name, model, dataset):
    assert model in NODE_MODELS
    assert dataset in NODE_SETS
    chosen, recipe = node_recipe(name, dataset, model=model)
    assert chosen == name
    node_model(model, recipe, 5, 3)


def test_the_default_recipe_is_the_class_without_further_words():
    assert "model" not in WRITTEN["default"]  # said once, by the class
    default = asdict(node_recipe("default", "a graph of one's own")[1].model)
    assert default == asdict(NodeModel())
    given = inspect.signature(Specformer).parameters
    width = default.pop("hidden_channels")
    assert default == {name: given[name].default for name in default}
    unset = {name for name in given if name not in default}
    assert unset == {"in_channels", "hidden_channels", "out_channels", "bases", "bias"}
    recipe = node_recipe("default", "a graph of one's own")[1]
    assert node_model("specformer", recipe, 5, 3).config == Specformer(5, width, 3).config


def test_a_baseline_may_have_a_best_recipe(tuned_gcn):
    assert recipes_for("cora", "gcn") == ["best"]
    recipe = node_recipe("best", "cora", model="gcn")[1]
    assert (recipe.baseline.num_layers, recipe.schedule.weight_decay) == (3, 0.0)
    assert recipe.schedule.patience == WRITTEN["default"]["schedule"]["patience"]
    assert recipe.features == "none"
    assert node_recipe(None, "cora", model="gcn")[0] == "default"  # only where it is asked for
    with pytest.raises(ConfigError, match="no recipe best of gcn for mine"):
        node_recipe("best", "mine", model="gcn")


def test_the_table_runs_best_recipes_of_baselines(tuned_gcn, tmp_path):
    write_npz(tmp_path / "cora.npz", csbm(0.6, num_nodes=60, num_features=5, seed=2))
    result, _ = run_table(
        table2,
        datasets=["cora"],
        models=["gcn", "mlp"],
        recipes=["best"],
        runs=2,
        assignments=["schedule.epochs=2"],
        data=tmp_path,
        device=torch.device("cpu"),
        progress=Silent(),
    )
    expected = [("gcn", "best")]
    expected += [("mlp", "best")] if "best" in recipes_for("cora", "mlp") else []
    assert [(entry["model"], entry["recipe"]) for entry in result["nodes"]] == expected
    assert result["recipes"]["best"]["cora"]["gcn"]["baseline"]["num_layers"] == 3


@pytest.fixture
def tuned_molecules(monkeypatch):
    """Recipes ``best`` of ours and of a baseline for molecules, as a search leaves them."""
    small = {"hidden_channels": 8, "num_layers": 1}
    schedule = {"epochs": 2, "batch_size": 16, "learning_rate": 0.01}
    ours = {"model": {**small, "num_heads": 2}, "schedule": schedule, "split": "official"}
    theirs = {"model": small, "schedule": schedule}
    best = {"specformer": {"zinc": ours, "molhiv": ours}, "gin": {"zinc": theirs}}
    monkeypatch.setitem(many_recipes._BOOK.written, "best", best)


@pytest.fixture
def molecules(tmp_path):
    """Files called as two named sets are."""
    for name, classes in (("zinc", False), ("molhiv", True)):
        graphs = small_set(40, classes=classes)
        assert graphs.y is not None
        write_graph_set(tmp_path / f"{name}.npz", replace(graphs, y=graphs.y[:, 1:]))
    return tmp_path


@pytest.mark.parametrize(("name", "model", "dataset"), MANY_ENTRIES)
def test_every_recipe_of_many_graphs_builds_its_model(name, model, dataset):
    assert model in GRAPH_MODELS
    entry = GRAPH_SETS[dataset]
    chosen, recipe = graph_recipe(name, dataset, model=model)
    assert chosen == name
    atoms, bonds = recipe.atoms or entry.atom_cardinalities, entry.bond_cardinalities
    graph_model(model, recipe, atoms, bonds, 1)


def test_best_recipes_of_many_graphs(tuned_molecules, molecules):
    assert graph_recipes_for("zinc", "specformer") == ["paper", "best"]
    assert graph_recipes_for("zinc", "gin") == ["best"]
    assert graph_recipes_for("molpcba", "gin") == ["default"]
    assert graph_recipe(None, "zinc")[0] == "paper"  # only where it is asked for
    recipe = graph_recipe("best", "molhiv")[1]
    assert (recipe.model.hidden_channels, recipe.schedule.epochs) == (8, 2)
    assert recipe.model.sharing == MANY["default"]["model"]["sharing"]
    assert graph_recipe("best", "zinc", model="gin")[1].monitor == "loss"  # as the set's baselines
    result, outcome = train_on(
        "molhiv",
        model="specformer",
        recipe="best",
        data=molecules,
        device=torch.device("cpu"),
        progress=Silent(),
    )
    assert (result["recipe"], result["metric"]) == ("best", "rocauc")
    assert outcome.models[0].config["hidden_channels"] == 8
    with pytest.raises(ConfigError, match="no recipe best of specformer for molpcba, only for"):
        graph_recipe("best", "molpcba")


def test_table_3_runs_best_recipes(tuned_molecules, molecules):
    result, _ = run_table(
        table3,
        datasets=["zinc", "molhiv"],
        models=["specformer", "gin"],
        recipes=["best"],
        runs=1,
        data=molecules,
        device=torch.device("cpu"),
        progress=Silent(),
    )
    ran = [(entry["dataset"], entry["model"], entry["recipe"]) for entry in result["molecules"]]
    assert ran == [
        ("zinc", "specformer", "best"),
        ("zinc", "gin", "best"),
        ("molhiv", "specformer", "best"),
    ]
    _, cells, _ = table_grid(3, result["rows"])
    assert {line[0] for line in cells} == {"Specformer, best", "GIN, best"}
