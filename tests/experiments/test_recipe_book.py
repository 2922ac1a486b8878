"""Recipes by name, model and data set."""

from __future__ import annotations

import pytest
import torch

from specformer.datasets import NODE_SETS, csbm
from specformer.errors import ConfigError
from specformer.experiments import node_recipe as recipes
from specformer.experiments.node_recipe import NODE_MODELS, node_model, node_recipe, recipes_for
from specformer.experiments.recipe_book import NAMED, RecipeBook
from specformer.experiments.table2 import table2
from specformer.graphs import write_npz
from specformer.training.progress import Silent

WRITTEN = RecipeBook("nodes.yaml").written
ENTRIES = [
    (name, model, dataset)
    for name in NAMED
    for model, sets in WRITTEN[name].items()
    for dataset in sets
]


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
    result, _ = table2(
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
