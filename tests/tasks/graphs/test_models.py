"""Models of many graphs: the paper's numbers of parameters, room for the data, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests.training.small_graphs import small_set, three_classes, with_numbers

from specformer.datasets import GRAPH_SETS
from specformer.errors import ConfigError
from specformer.graphs import GraphSet
from specformer.tasks.graphs.models import cardinalities, graph_model, model_for
from specformer.tasks.graphs.recipe import GraphRecipe, graph_recipe


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
