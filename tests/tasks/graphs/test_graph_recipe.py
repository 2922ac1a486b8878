"""Recipes: the paper's numbers, what is settled by the data, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.tasks.graphs.test_graph_models import sample
from tests.training.small_graphs import small_set, three_classes

from specformer.errors import ConfigError
from specformer.graphs import GraphSet
from specformer.tasks.graphs.graph_models import largest_ring, num_outputs
from specformer.tasks.graphs.graph_recipe import (
    GraphRecipe,
    chosen_targets,
    graph_recipe,
    graph_recipes_for,
    with_class_names,
)

#: The paper's table: layers, heads, width, epochs, warm-up, batch, rate, decay, dropouts, sharing.
PAPER = {
    "zinc": (4, 8, 160, 1000, 50, 32, 1e-3, 5e-4, 0.1, 0.05, 0.0, "small"),
    "molhiv": (8, 4, 80, 50, 5, 64, 1e-4, 1e-4, 0.1, 0.1, 0.3, "medium"),
    "molpcba": (8, 8, 256, 30, 5, 64, 5e-4, 5e-3, 0.3, 0.1, 0.1, "large"),
    "pcqm4mv2": (8, 8, 320, 150, 10, 256, 1e-4, 0.0, 0.1, 0.1, 0.1, "medium"),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_hyperparameters(name: str) -> None:
    chosen, recipe = graph_recipe(None, name)
    model, schedule = recipe.model, recipe.schedule
    assert chosen == "paper"
    assert (
        model.num_layers, model.num_heads, model.hidden_channels,
        schedule.epochs, schedule.warmup, schedule.batch_size,
        schedule.learning_rate, schedule.weight_decay,
        model.transformer_dropout, model.feature_dropout, model.propagation_dropout,
        model.sharing,
    ) == PAPER[name]  # fmt: skip
    # Where text and released code differ, the recipes follow the code.
    assert (schedule.beta1, schedule.beta2, recipe.matrix) == (0.9, 0.999, "adjacency-with-loops")
    assert (model.pooling, recipe.split, recipe.standardise) == ("mean", "official", False)


@pytest.mark.parametrize(
    ("name", "settled"),
    [
        ("zinc", ("regression", "mae", "l1")),
        ("molhiv", ("classification", "rocauc", "bce")),
        ("molpcba", ("classification", "ap", "bce")),
        ("pcqm4mv2", ("regression", "mae", "l1")),
    ],
)
def test_named_sets_bring_task_and_metric(name: str, settled) -> None:
    recipe = graph_recipe(None, name)[1].settled(sample(name))
    assert (recipe.task, recipe.metric, recipe.loss) == settled


@pytest.mark.parametrize(
    ("classes", "settings", "settled"),
    [
        (False, {}, ("regression", "rmse", "l1", True)),
        (False, {"metric": "mae", "loss": "mse"}, ("regression", "mae", "mse", True)),
        (True, {}, ("classification", "rocauc", "bce", False)),
        (True, {"task": "regression"}, ("regression", "rmse", "l1", True)),
        (True, {"metric": "accuracy"}, ("classification", "accuracy", "bce", False)),
    ],
)
def test_own_data_settle_what_is_left_open(classes: bool, settings, settled) -> None:
    recipe = GraphRecipe(standardise=True, **settings).settled(small_set(classes=classes))
    assert (recipe.task, recipe.metric, recipe.loss, recipe.standardise) == settled


@pytest.mark.parametrize(
    ("classes", "settings", "message"),
    [
        (False, {"task": "classification"}, "classes of several targets are 0 and 1"),
        (False, {"metric": "ap"}, "metric=ap does not go with numbers; choose from rmse, mae, r2"),
        # The sign of a number is no class, and a logit no number: both would look like results.
        (False, {"metric": "accuracy"}, "metric=accuracy does not go with numbers"),
        (True, {"metric": "rmse"}, "metric=rmse does not go with two classes"),
        (False, {"metric": "odd"}, "unknown metric 'odd'"),
        (True, {"loss": "l1"}, "loss=l1 does not go with two classes"),
        (True, {"loss": "ce"}, "loss=ce does not go with two classes"),
    ],
)
def test_what_does_not_fit_is_refused(classes: bool, settings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GraphRecipe(**settings).settled(small_set(classes=classes))


def test_a_target_of_several_classes() -> None:
    classes = GraphRecipe(task="classification", standardise=True)
    recipe = classes.settled(three_classes())
    settled = (recipe.task, recipe.metric, recipe.loss, recipe.standardise)
    assert settled == ("classification", "accuracy", "ce", False)
    # Whole numbers may as well be counts: without a word they are numbers.
    assert GraphRecipe().settled(three_classes()).task == "regression"
    for change, message in (
        ({"metric": "rocauc"}, "metric=rocauc does not go with more than two classes"),
        ({"loss": "bce"}, "loss=bce does not go with more than two classes"),
    ):
        with pytest.raises(ConfigError, match=message):
            replace(classes, **change).settled(three_classes())


@pytest.mark.parametrize(
    ("targets", "strange"),
    [
        ([0, 1, 3], "3 and none is 2"),
        ([1, 2, 3], "1 and none is 0"),
        ([0, 1, 2.5], "2.5"),
        ([-1, 0, 1], "-1"),
    ],
)
def test_classes_are_numbered_without_a_gap(targets: list[float], strange: str) -> None:
    graphs = GraphSet([1] * 4, [0] * 4, [], y=[[y] for y in (*targets, np.nan)], name="odd")
    with pytest.raises(ConfigError, match=f"odd: classes are numbered .* a target is {strange};"):
        GraphRecipe(task="classification").settled(graphs)


@pytest.mark.parametrize(
    ("targets", "expected", "names"),
    [
        ([1, 2, 2, 1, np.nan], [0, 1, 1, 0, np.nan], ("1", "2")),
        ([-1, 1, -1, 1], [0, 1, 0, 1], ("-1", "1")),
        ([0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2], None),
        ([1.5, 2, 1.5, 2], [1.5, 2, 1.5, 2], None),
        ([3, 5, 7, 9], [3, 5, 7, 9], None),  # most differ
    ],
)
def test_classes_are_numbered_and_named(targets, expected, names) -> None:
    graphs = GraphSet([1] * len(targets), [0] * len(targets), [], y=targets)
    found = with_class_names(graphs)
    np.testing.assert_array_equal(found.y[:, 0], expected)
    assert found.class_names == names


def test_names_say_how_many_classes_there_are() -> None:
    known = GraphSet([1] * 4, [0] * 4, [], y=[0, 2, 2, np.nan], class_names=("a", "b", "c", "d"))
    recipe = GraphRecipe().settled(known)  # nobody is of b, nor of d
    assert (recipe.task, recipe.loss, num_outputs(known, recipe)) == ("classification", "ce", 4)
    two = replace(known, y=[0, 1, 0, np.nan], class_names=("a", "b"))
    recipe = GraphRecipe().settled(two)
    assert (recipe.loss, num_outputs(two, recipe)) == ("bce", 1)
    for y, names, message in (
        (np.zeros(4), ("a",), "the only class is 'a'; there is nothing to tell apart"),
        (np.full(4, np.nan), (), "no graph has a class"),
    ):
        with pytest.raises(ConfigError, match=message):
            GraphRecipe(metric="accuracy").settled(replace(known, y=y, class_names=names))


def test_no_targets_are_refused() -> None:
    with pytest.raises(ConfigError, match="no targets"):
        GraphRecipe().settled(GraphSet([1], [0], []))


@pytest.mark.parametrize("targets", [[[1.5]] * 4, [[1.0]] * 4, [[2.0, 3.0], [np.nan, 3.0]] * 2])
def test_targets_that_never_vary_are_refused(targets: list[list[float]]) -> None:
    graphs = GraphSet([1] * 4, [0] * 4, [], y=targets, name="alike")
    with pytest.raises(ConfigError, match="alike: no target varies; there is nothing to learn"):
        GraphRecipe().settled(graphs)
    assert graphs.y is not None
    one_does = np.concatenate([graphs.y, np.arange(4.0)[:, None]], axis=1)
    assert GraphRecipe().settled(replace(graphs, y=one_does)).task == "regression"
    few = graphs.subset([0, 1])  # the split says that they are
    assert GraphRecipe().settled(few).metric


def test_only_files_of_ones_own_stop_early() -> None:
    for model in ("specformer", "gin"):
        assert graph_recipe(None, "mine.csv", model=model)[1].schedule.patience == 20
        for recipe in (None, "default"):
            assert graph_recipe(recipe, "zinc", model=model)[1].schedule.patience is None


def test_assignments_and_names(tmp_path) -> None:
    assert graph_recipe(None, "mine")[0] == "default"
    changed = graph_recipe(None, "molhiv", ["schedule.beta1=0.99", "matrix=laplacian"])[1]
    assert (changed.schedule.beta1, changed.matrix) == (0.99, "laplacian")
    (tmp_path / "own.yaml").write_text("schedule: {epochs: 3}\n")
    assert graph_recipe(str(tmp_path / "own.yaml"), "mine")[1].schedule.epochs == 3
    assert graph_recipes_for("mine", "specformer") == ["default"]
    for name, dataset, message in (
        ("odd", "zinc", "unknown recipe 'odd'"),
        ("paper", "mine", "no recipe paper of specformer for mine"),
    ):
        with pytest.raises(ConfigError, match=message):
            graph_recipe(name, dataset)


def test_several_targets_that_nobody_chose_are_named(caplog) -> None:
    graphs = GraphSet([1], [0], [], y=[[1.0, 2.0]], task_names=("CAS", "logS"), name="mine")
    chosen_targets(graphs, ["logS"])
    chosen_targets(replace(graphs, name="molpcba"), None)
    chosen_targets(replace(graphs, y=[[1.0]], task_names=("logS",)), None)
    assert not caplog.messages
    assert chosen_targets(graphs, None) is graphs
    assert caplog.messages == [
        "mine: there are 2 targets, 'CAS', 'logS'; --targets chooses among them."
    ]
    names = tuple(f"t{number}" for number in range(10))
    chosen_targets(replace(graphs, y=np.zeros((1, 10)), task_names=names), None)
    assert "there are 10 targets, 't0', 't1'," in caplog.messages[1]
    assert "'t7' and 2 more;" in caplog.messages[1]


def test_no_target_is_none_of_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"targets=\[\]: name at least one"):
        chosen_targets(GraphSet([1], [0], []), [])


@pytest.mark.parametrize(("name", "dataset"), [("best", "zinc"), ("pairs", "molhiv")])
def test_pair_states_know_rings(name: str, dataset: str) -> None:
    _, recipe = graph_recipe(name, dataset)
    assert name in graph_recipes_for(dataset, "specformer")
    assert recipe.model.form == "pairs"
    assert largest_ring("specformer", recipe) == recipe.model.max_ring > 6
