r"""Recipes: how settings are read, checked and changed, and which there are."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import pytest
import torch
import yaml
from tests.tasks.jobs import run_table, train_on
from tests.training.small_graphs import small_set

from specformer.datasets import GRAPH_SETS, NODE_SETS, csbm
from specformer.errors import ConfigError
from specformer.graphs import write_graph_set, write_npz
from specformer.nn import Specformer
from specformer.paper.table_rows import table_grid
from specformer.paper.tables import table2, table3
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
from specformer.tasks.recipes.settings import (
    NAMED,
    RecipeBook,
    build,
    full_keys,
    override,
    read_settings,
)
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.progress import Silent


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    steps: int = 3
    kind: Literal["plain", "fancy"] = "plain"


@dataclass(frozen=True)
class Twice:
    one: Inner = field(default_factory=Inner)
    two: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    limit: int | None = None
    scale: float | None = None
    fast: bool = False
    ends: list[int] | None = None

    def __post_init__(self) -> None:
        if self.limit == 13:
            raise ConfigError("limit=13 brings bad luck.")


def test_settings_arrive():
    settings = {
        "name": "a",
        "inner": {"rate": 1, "kind": "fancy"},
        "limit": 4,
        "scale": 2,
        "fast": True,
        "ends": [1, 2],
    }
    built = build(Outer, settings, "here")
    assert built == Outer("a", Inner(1.0, 3, "fancy"), 4, 2.0, True, [1, 2])
    assert isinstance(built.inner.rate, float)
    assert isinstance(built.scale, float)


def test_what_is_not_said_keeps_its_default():
    assert build(Outer, {"name": "a"}, "here") == Outer("a")
    assert build(Outer, {"name": "a", "limit": None, "inner": {}}, "here") == Outer("a")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nmae": "a"}, r"here: unknown key 'nmae'; did you mean 'name'\?$"),
        ({"inner": {"setps": 3}}, r"here: inner: unknown key 'setps'; did you mean 'steps'\?"),
        ({"qqq": 1}, r"unknown key 'qqq'; known: ends, fast, inner, limit, name, scale\.$"),
        ({"name": 3}, "here: name=3 should be text"),
        ({"inner": 5}, "here: inner should hold settings, not 5"),
        ({"inner": {"rate": "fast"}}, "here: inner: rate='fast' should be a number"),
        ({"inner": {"rate": True}}, "rate=True should be a number"),
        ({"inner": {"rate": float("inf")}}, "rate=inf should be a number"),
        ({"inner": {"rate": float("nan")}}, "rate=nan should be a number"),
        ({"inner": {"steps": 2.5}}, r"steps=2\.5 should be a whole number"),
        ({"inner": {"steps": True}}, "steps=True should be a whole number"),
        ({"inner": {"steps": "3"}}, "steps='3' should be a whole number"),
        ({"inner": {"steps": None}}, "steps=None should be a whole number"),
        ({"inner": {"kind": "other"}}, "kind='other' should be 'plain' or 'fancy'"),
        ({"limit": "many"}, "limit='many' should be a whole number or empty"),
        ({"limit": False}, "limit=False should be a whole number or empty"),
        ({"fast": 1}, "fast=1 should be true or false"),
        ({"fast": "yes"}, "fast='yes' should be true or false"),
        ({"ends": "both"}, r"ends='both' should be \[a whole number, …\] or empty"),
        ({"ends": 3}, r"ends=3 should be \[a whole number, …\] or empty"),
        ({"ends": [1, "two"]}, r"ends=\[1, 'two'\] should be \[a whole number, …\] or empty"),
        ({}, "here: .*name"),
        ({"name": "a", "limit": 13}, "here: limit=13 brings bad luck"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(settings, message):
    with pytest.raises(ConfigError, match=message):
        build(Outer, settings, "here")


@pytest.mark.parametrize("text", ["1e-3", "5E-4", "-2e+1", "1.e-3", "1.0e-3", "0.001", "7"])
def test_numbers_as_people_write_them(text):
    # YAML 1.1 reads 1e-3 as text; a learning rate is written so more often than not.
    settings = override({"name": "a"}, [f"inner.rate={text}", f"scale={text}"])
    built = build(Outer, settings, "here")
    assert built.inner.rate == built.scale == float(text)


def test_override_reaches_groups_and_leaves_its_argument_alone():
    settings = {"name": "a", "inner": {"steps": 1, "deep": {"x": 1}}}
    changed = override(
        settings,
        ["inner.steps=7", "name=b=c", "limit=", "fast=true", "ends=[1, 2]", "inner.deep.x=2"],
    )
    assert changed == {
        "name": "b=c",
        "inner": {"steps": 7, "deep": {"x": 2}},
        "limit": None,
        "fast": True,
        "ends": [1, 2],
    }
    assert settings == {"name": "a", "inner": {"steps": 1, "deep": {"x": 1}}}


def test_override_makes_groups_and_the_last_one_wins():
    assert override({}, ["inner.steps=1", "inner.steps=2"]) == {"inner": {"steps": 2}}


def test_a_group_that_is_assigned_keeps_its_other_settings():
    settings = {"inner": {"steps": 1, "rate": 2}}
    assert override(settings, ["inner={steps: 3}"]) == {"inner": {"steps": 3, "rate": 2}}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("inner.steps", "--set inner.steps: expected key=value"),
        ("=3", "--set =3: expected key=value"),
        ("", "expected key=value"),
        ("name.first=3", "'name' is not a group"),
        ("ends=[1, 2", "not valid YAML"),
    ],
)
def test_wrong_assignments(assignment, message):
    with pytest.raises(ConfigError, match=message):
        override({"name": "a"}, [assignment])


def test_a_setting_may_be_named_without_its_group(caplog):
    assert full_keys(Outer, ["steps=7", "name=b", "inner.rate=2"]) == [
        "inner.steps=7", "name=b", "inner.rate=2",
    ]  # fmt: skip
    assert caplog.messages == ["--set steps=7: taken as inner.steps."]
    assert full_keys(Outer, ["stride=7", "steps"]) == ["stride=7", "inner.steps"]  # refused later


def test_a_setting_of_several_groups_needs_its_whole_key():
    with pytest.raises(ConfigError, match=r"--set steps=7: steps can be one\.steps or two\.steps"):
        full_keys(Twice, ["steps=7"])
    assert full_keys(Twice, ["steps=7"], unused=["one"]) == ["two.steps=7"]


def test_yaml_as_a_file_holds_it():
    text = "name: a\ninner: {rate: 1e-3, steps: 5}\nlimit: null\nfast: true\n"
    assert build(Outer, yaml.safe_load(text), "file") == Outer(
        "a", Inner(0.001, 5), None, None, True
    )


def test_settings_of_a_file_or_of_a_run(tmp_path):
    recipe, run, table = (tmp_path / name for name in ("recipe.yaml", "config.yaml", "table.yaml"))
    recipe.write_text("name: a\n")
    run.write_text("command: train\nsource: cora\nsettings: {name: b}\n")
    table.write_text("command: table\ntable: 1\n")
    assert read_settings(recipe) == {"name": "a"}
    assert read_settings(run) == {"name": "b"}
    with pytest.raises(ConfigError, match=r"table\.yaml: this run has no settings"):
        read_settings(table)


@pytest.mark.parametrize(
    "content",
    [
        "müde: 1".encode("latin-1"),
        b"1: 2",
        b"learning_rate: " + b"9" * 5000,
        b"a: &a [1]\nb: *a",
        b"a: " + b"[" * 3000,
        b"- " + b"x" * 100_000,
    ],
    ids=["latin-1", "key", "number", "alias", "depth", "long text"],
)
def test_a_file_that_holds_no_settings_is_one_short_sentence(content, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_settings(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert len(str(refused.value)) < len(str(path)) + 200


def test_assignments_are_read_within_limits():
    for value in ("[" * 3000, "9" * 5000, "[&a 1, *a]", "{1: 2}"):
        with pytest.raises(ConfigError, match=r"--set name=.*: the value cannot be read: ") as no:
            override({"name": "a"}, [f"name={value}"])
        assert len(str(no.value)) < 400


def test_a_retired_setting_is_read_where_it_did_nothing() -> None:
    old = {"filter_activation": None, "final_rate": 0.0, "recalibrate": None}
    assert build(Schedule, {"epochs": 3, **old}, "old").epochs == 3
    with pytest.raises(ConfigError, match="old: unknown key 'filter_activation'"):
        build(Schedule, {"filter_activation": "relu"}, "old")


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
