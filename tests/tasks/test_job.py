"""A job: resolved once, written whole, and read back as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.tasks.jobs import CPU, train_source
from tests.training.small_graphs import small_set

from specformer.errors import ConfigError, RunError
from specformer.graphs import write_graph_set
from specformer.tasks.job import Request, Workplace
from specformer.tasks.resolve import TASKS, read_job, resolve
from specformer.tasks.train import train
from specformer.training.engine.distributed import Workers
from specformer.training.runs.folder import RunFolder

FAST = ["model.hidden_channels=8", "model.num_heads=2", "schedule.epochs=1"]
QUICK = {
    "csbm": ["schedule.epochs=3", "model.hidden_channels=8", "model.num_heads=2"],
    "photographs": ["schedule.epochs=2", "model.hidden_channels=8", "landmarks=32"],
    "many.npz": [*FAST, "schedule.learning_rate=0.003"],
}


def source_in(folder: Path, name: str) -> str:
    if name != "many.npz":
        return name
    write_graph_set(folder / name, small_set())
    return str(folder / name)


def test_every_kind_has_a_number_of_runs() -> None:
    runs = {kind: task.usual_runs("mine.csv") for kind, task in TASKS.items()}
    assert runs == {"filters": None, "nodes": None, "links": 5, "molecules": 5}
    assert TASKS["molecules"].usual_runs("zinc") == 1


def test_graphs_and_nodes_come_out_alike(tmp_path: Path) -> None:
    for name, kind in (("many.npz", "molecules"), ("csbm", "nodes")):
        run = RunFolder.create(tmp_path / kind, {})
        source = source_in(tmp_path, name)
        trained = train_source(source, FAST, lambda run=run: run, runs=1)
        assert trained.result["runs"] == len(trained.result[kind][0]["test"]["values"]) == 1
        assert all(key.startswith(f"{kind}/") for key in trained.outcome.arrays)
        run.write_models(trained.outcome.models)
        assert (run.path / "model" / "000" / "model.safetensors").is_file()
    assert (tmp_path / "molecules" / "checkpoint-000.safetensors").is_file()


@pytest.mark.parametrize("name", QUICK)
def test_a_job_is_read_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    source = source_in(tmp_path, name)
    more = {"filter": "low-pass"} if name == "photographs" else {}
    request = Request(source, changes=tuple(QUICK[name]), **more)
    job = resolve(request, 2, seed=3, repeat="specformer train", tensorboard=True)
    assert read_job(RunFolder.create(tmp_path / "run", job.config)) == job


@pytest.mark.parametrize(
    ("source", "model", "task", "idle"),
    [
        ("csbm", "gcn", None, {"model", "form", "forms", "k", "spectrum"}),
        ("csbm", "specformer", None, {"baseline"}),
        ("csbm", "gcn", "links", {"model", "form", "forms", "loops"}),
        ("zinc", "forest", None, {"schedule", "matrix", "start"}),
    ],
)
def test_a_configuration_has_the_settings_that_its_model_uses(
    tmp_path: Path, source: str, model: str, task: str | None, idle: set[str]
) -> None:
    job = resolve(Request(source, model, task=task))
    assert idle & set(job.config["settings"]) == set()
    assert {"split", "metric"} <= set(job.config["settings"])
    assert read_job(RunFolder.create(tmp_path / "run", job.config)) == job


def test_a_job_needs_no_recipe_once_it_is_resolved(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("{schedule: {epochs: 3}, model: {hidden_channels: 8, num_heads: 2}}")
    job = resolve(Request("csbm", recipe=str(recipe)), 1)
    run = RunFolder.create(tmp_path / "run", job.config)
    expected = train(job, Workplace(CPU)).result["test"]
    recipe.unlink()
    assert train(read_job(run), Workplace(CPU)).result["test"] == expected


@pytest.mark.parametrize("name", QUICK)
def test_a_run_is_repeated_from_its_configuration_alone(tmp_path: Path, name: str) -> None:
    source = source_in(tmp_path, name)
    job = resolve(Request(source, changes=tuple(QUICK[name])), 1)
    first = train(job, Workplace(CPU)).result
    written = tmp_path / "config.yaml"
    written.write_text(yaml.safe_dump(job.config))
    again = train_source(source, recipe=str(written), runs=1).result
    assert again["settings"] == first["settings"]
    assert again["test"] == first["test"]


def test_a_configuration_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    job = resolve(Request("csbm"))
    config = {**job.config, "recipe": None}
    del config["kind"]
    found = read_job(RunFolder.create(tmp_path / "run", config))
    assert found == replace(job, recipe="recorded")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"command": "table"}, "is not a run of `specformer train`"),
        ({"settings": None}, r"config.yaml: damaged \(settings is None\)"),
        ({"kind": "words"}, r"config.yaml: damaged \(kind is 'words'\)"),
        ({"kind": ["nodes"]}, r"config.yaml: damaged \(kind is \['nodes'\]\)"),
        ({"lanes": "two"}, r"config.yaml: damaged \(lanes is 'two'\)"),
        ({"settings": {"speed": 3}}, "config.yaml: unknown key 'speed'"),
    ],
)
def test_what_is_no_job_is_refused(tmp_path: Path, change: dict, why: str) -> None:
    run = RunFolder.create(tmp_path / "run", {**resolve(Request("csbm")).config, **change})
    with pytest.raises((RunError, ConfigError), match=why):
        read_job(run)


@pytest.mark.parametrize(
    ("source", "asked", "why"),
    [
        ("csbm", {"model": "gcn"}, "csbm: gcn needs all nodes in one process"),
        ("photographs", {}, "photographs: .* train in one process only"),
    ],
)
def test_what_several_processes_cannot_train(source: str, asked: dict, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        train_source(source, workers=Workers(0, 2), **asked)


IDLE = [
    ("csbm", "gcn", "model.num_heads=2", "gcn has its own settings, baseline"),
    ("csbm", "gcn", "k=5", "gcn has its own settings, baseline"),
    ("csbm", "gcn", "schedule.filter_learning_rate=0.5", "gcn has no filter of its own"),
    ("csbm", "specformer", "baseline.dropout=0.9", "specformer has its own settings, model"),
    ("csbm", "specformer", "degree=3", "it needs spectrum=density"),
    ("csbm", "specformer", "forms={}", "forms are written in a recipe's file"),
    ("photographs", "gcn", "model.hidden_channels=4", "it is specformer's"),
    ("photographs", "specformer", "schedule.filter_learning_rate=0.5", "learn at one rate"),
]


@pytest.mark.parametrize(("source", "model", "change", "why"), IDLE, ids=lambda value: str(value))
def test_a_change_that_does_nothing_is_refused(
    source: str, model: str, change: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"--set {change} would change nothing: .*{why}"):
        resolve(Request(source, model, changes=(change,)))


def test_a_form_is_one_of_the_recipes_own() -> None:
    with pytest.raises(ConfigError, match="form=deep-3 would change nothing: recipe paper has no"):
        resolve(Request("cora", recipe="paper", changes=("form=deep-3",)))
    with pytest.raises(ConfigError, match="form=paper does not go with model"):
        resolve(Request("csbm", changes=("form=paper", "model.local=false")))


@pytest.mark.parametrize(
    ("source", "change", "why"),
    [
        ("csbm", "model.num_heads=3", "cannot be split evenly over num_heads=3"),
        ("csbm", "landmarks=1", "landmarks=1 must be at least 2"),
        ("photographs", "model.num_blocks=0", "num_blocks=0 must be at least 1"),
        ("photographs", "model.hidden_channels=7", "hidden_channels=7 must be an even number"),
        ("many.npz", "model.num_heads=3", "cannot be split evenly over num_heads=3"),
    ],
)
def test_a_model_that_cannot_be_is_refused_before_its_spectra(
    tmp_path: Path, source: str, change: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        train_source(source_in(tmp_path, source), assignments=[change], cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("gprgnn", ["schedule.filter_learning_rate=0.5", "baseline.alpha=0.2", "features=none"]),
        ("specformer", ["spectrum=density", "degree=3", "model.num_heads=2"]),
        ("specformer", ["k=5", "vectors=streamed", "storage=bfloat16", "landmarks=3"]),
    ],
    ids=["gprgnn", "density", "pairs"],
)
def test_a_change_of_use_is_taken(model: str, changes: list[str]) -> None:
    resolve(Request("csbm", model, changes=tuple(changes)))


def test_eigenpairs_are_of_no_use_without_a_decomposition() -> None:
    with pytest.raises(ConfigError, match="k=5 would change nothing: spectrum=density does"):
        resolve(Request("csbm", changes=("spectrum=density", "k=5")))
    with pytest.raises(ConfigError, match="storage=float32 would change nothing"):
        resolve(Request("csbm", changes=("spectrum=density", "storage=float32")))
