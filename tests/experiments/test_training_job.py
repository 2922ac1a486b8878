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
        trained.save(run)
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
