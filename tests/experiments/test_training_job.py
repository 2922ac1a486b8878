"""What ``specformer train`` does: each kind of source by its own job, in one shape."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.training.small_graphs import small_set

from specformer.errors import ConfigError
from specformer.experiments.training_job import RUNS, Trained, job_settings, train_source
from specformer.graphs import write_graph_set
from specformer.training.distributed import ALONE, Workers
from specformer.training.progress import Silent
from specformer.training.run_folder import RunFolder

FAST = ["model.hidden_channels=8", "model.num_heads=2", "schedule.epochs=1"]


def train(tmp_path: Path, source: str, workers: Workers = ALONE, **changes) -> Trained:
    config = {"source": source, "model": "specformer", "recipe": None, "runs": 1, "seed": 0}
    config |= {"command": "train", "set": FAST, "filter": "comb", **changes}
    return train_source(
        config,
        data=None,
        cache=None,
        device=torch.device("cpu"),
        progress=Silent(),
        begin=lambda: RunFolder.create(tmp_path / "run", config),
        workers=workers,
    )


def test_every_kind_has_a_number_of_runs() -> None:
    assert RUNS == {"filters": None, "nodes": None, "molecules": 1}


def test_graphs_and_nodes_come_out_alike(tmp_path: Path) -> None:
    write_graph_set(tmp_path / "many.npz", small_set())
    for source, kind in ((str(tmp_path / "many.npz"), "molecules"), ("csbm", "nodes")):
        trained = train(tmp_path / kind, source)
        assert trained.kind == kind
        assert trained.result["runs"] == len(trained.result[kind][0]["test"]["values"]) == 1
        assert all(key.startswith(f"{kind}/") for key in trained.arrays)
        run = RunFolder(tmp_path / kind / "run")
        run.write_models(trained.models)
        assert (run.path / "model" / "000" / "model.safetensors").is_file()
    assert (tmp_path / "molecules" / "run" / "checkpoint-000.safetensors").is_file()


QUICK = {
    "csbm": ["schedule.epochs=3", "model.hidden_channels=8", "model.num_heads=2"],
    "photographs": ["schedule.epochs=2", "model.hidden_channels=8", "landmarks=32"],
    "many.npz": [*FAST, "schedule.learning_rate=0.003"],
}


@pytest.mark.parametrize("source", QUICK)
def test_a_run_is_repeated_from_its_configuration_alone(tmp_path: Path, source: str) -> None:
    if source == "many.npz":
        source = str(tmp_path / source)
        write_graph_set(Path(source), small_set())
    job = {"source": source, "model": "specformer", "recipe": None, "set": QUICK[Path(source).name]}
    first = train(tmp_path / "first", source, set=job["set"], settings=job_settings(job))
    written = tmp_path / "first" / "run" / "config.yaml"
    again = train(tmp_path / "again", source, recipe=str(written), set=[])
    assert again.result["settings"] == first.result["settings"]
    assert again.result["test"] == first.result["test"]


def test_the_settings_kept_are_those_trained_with(tmp_path: Path) -> None:
    job = {"source": "csbm", "model": "gcn", "recipe": None, "set": ["schedule.epochs=2"]}
    trained = train(tmp_path, "csbm", model="gcn", set=job["set"])
    assert job_settings(job) == trained.result["settings"]


def test_only_many_graphs_train_in_several_processes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="csbm: only sets of many graphs"):
        train(tmp_path, "csbm", Workers(0, 2))


IDLE = [
    ("csbm", "gcn", "model.num_heads=2", "gcn has its own settings in baseline"),
    ("csbm", "gcn", "k=5", "gcn has its own settings in baseline"),
    ("csbm", "gcn", "schedule.filter_learning_rate=0.5", "gcn has no filter of its own"),
    ("csbm", "specformer", "baseline.dropout=0.9", "specformer has its own settings in model"),
    ("csbm", "specformer", "degree=3", "it needs spectrum=density"),
    ("photographs", "gcn", "model.hidden_channels=4", "it is specformer's"),
    ("photographs", "specformer", "schedule.filter_learning_rate=0.5", "learn at one rate"),
]


@pytest.mark.parametrize(("source", "model", "change", "why"), IDLE, ids=lambda value: str(value))
def test_a_change_that_does_nothing_is_refused(
    tmp_path: Path, source: str, model: str, change: str, why: str
) -> None:
    job = {"source": source, "model": model, "recipe": None}
    with pytest.raises(ConfigError, match=f"--set {change} would change nothing: .*{why}"):
        job_settings({**job, "set": [change]})
    # It is no loss: a job that is not asked about it learns the same.
    results = [
        train(tmp_path / str(number), source, model=model, set=["schedule.epochs=2", *more]).result
        for number, more in enumerate(([], [change]))
    ]
    assert results[0]["test"] == results[1]["test"]


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
    job_settings({"source": "csbm", "model": model, "recipe": None, "set": changes})


def test_eigenpairs_are_of_no_use_without_a_decomposition() -> None:
    job = {"source": "csbm", "model": "specformer", "recipe": None}
    with pytest.raises(ConfigError, match="k=5 would change nothing: spectrum=density does"):
        job_settings({**job, "set": ["spectrum=density", "k=5"]})
