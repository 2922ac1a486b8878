"""One graph in two processes from the command line, one of which dies; resumed in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from tests.cli import dying_worker
from tests.cli.command_line import only_json

from specformer.datasets import csbm, random_60_20_20
from specformer.graphs import write_npz

ROOT = Path(__file__).parents[2]
WORDS = ["train", "own.npz", "--runs", "1", "--device", "cpu", "--json", "--cache", "cache"]
CHANGES = ["form=paper", "schedule.epochs=30", "model.transformer_dropout=0"]
CHANGES += ["model.feature_dropout=0", "model.propagation_dropout=0"]
WORDS += [word for change in CHANGES for word in ("--set", change)]


def by_two(*words: str) -> None:
    """Run a command in two processes."""
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launched, "-m", "specformer", *words], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


def tables_alike(one: Path, two: Path, rows: int) -> None:
    """Whether two tables of predictions say the same."""
    first, second = (np.loadtxt(path, delimiter=",", skiprows=1) for path in (one, two))
    assert first.shape == (rows, 4)
    np.testing.assert_allclose(second, first, atol=2e-5)


@pytest.mark.slow
def test_a_graph_in_parts(call, here: Path) -> None:
    """Decomposed by one process, trained and predicted by two: as one file by one process."""
    graph = csbm(0.6, num_nodes=60, num_features=5, seed=3)
    split = random_60_20_20(graph.y, 0)
    masks = {f"{part}_mask": getattr(split, part) for part in ("train", "val", "test")}
    write_npz(here / "own.npz", replace(graph, **masks))
    ends = np.stack(graph.adjacency.nonzero())
    (here / "parts").mkdir()
    for number in range(3):
        own = slice(20 * number, 20 * (number + 1))
        arrays = {name: mask[own] for name, mask in masks.items()}
        arrays |= {"x": graph.x[own], "y": graph.y[own], "first": own.start, "num_nodes": 60}
        np.savez(here / f"parts/part-{number}.npz", edge_index=ends[:, number::3], **arrays)
    call("spectrum", "parts", "--k", "40", "--device", "cpu", "--cache", "cache")
    few = ["--set", "k=40"]
    by_two("train", "parts", *WORDS[2:], *few, "--out", "two")
    call("train", "own.npz", *WORDS[2:], *few, "--out", "one")
    curves = []
    for run in ("one", "two"):
        lines = map(json.loads, (here / run / "metrics.jsonl").read_text().splitlines())
        curves.append([[*line["train_loss"], *line["val_loss"]] for line in lines])
    np.testing.assert_allclose(*curves, rtol=1e-3)
    known = json.loads((here / "two" / "result.json").read_text())
    assert known["nodes"][0]["description"].startswith("60 nodes, ")
    by_two("predict", "two", "--device", "cpu", "--cache", "cache", "--out", "two.csv")
    call("predict", "two", "--device", "cpu", "--cache", "cache", "--out", "one.csv")
    tables_alike(here / "one.csv", here / "two.csv", 60)


@pytest.mark.slow
def test_a_dead_worker_ends_the_others_and_the_run_goes_on(call, here: Path) -> None:
    write_npz(here / "own.npz", csbm(0.6, num_nodes=60, num_features=5, seed=3))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = ["--nproc-per-node=2", "-m", dying_worker.__name__, *WORDS, "--out", "run"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*launcher, *program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode != 0
    assert done.stderr.count("Error: another process of this run has ended") == 1
    assert "specformer resume" in done.stderr
    assert "rank      : 1" in done.stderr
    assert load_file(here / "run" / "checkpoint.safetensors")["epoch"] == 10
    resumed = only_json(call("resume", "run", "--json", "--cache", "cache"))
    whole = only_json(call(*WORDS, "--out", "whole"))
    assert resumed["test"] == whole["test"]
    assert json.loads((here / "run" / "result.json").read_text())["spectra"][0]["num_nodes"] == 60
    # Predicted by two processes, from the rows in the cache.
    by_two("predict", "whole", "--device", "cpu", "--cache", "cache", "--out", "two.csv")
    call("predict", "whole", "--device", "cpu", "--cache", "cache", "--out", "one.csv")
    tables_alike(here / "one.csv", here / "two.csv", 60)
    states = [
        load_file(here / run / "model" / "000" / "model.safetensors") for run in ("run", "whole")
    ]
    for name, tensor in states[0].items():
        np.testing.assert_allclose(tensor, states[1][name], rtol=1e-3, atol=1e-4, err_msg=name)
