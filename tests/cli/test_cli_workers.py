"""One graph in two processes from the command line, one of which dies; resumed in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from tests.cli import dying_worker
from tests.cli.command_line import only_json

from specformer.datasets import csbm
from specformer.graphs import write_npz

ROOT = Path(__file__).parents[2]
WORDS = ["train", "own.npz", "--runs", "1", "--device", "cpu", "--json", "--cache", "cache"]
CHANGES = ["form=paper", "schedule.epochs=30", "model.transformer_dropout=0"]
CHANGES += ["model.feature_dropout=0", "model.propagation_dropout=0"]
WORDS += [word for change in CHANGES for word in ("--set", change)]


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
    launched = [*launcher, "--nproc-per-node=2", "-m", "specformer", "predict", "whole"]
    done = subprocess.run(
        [*launched, "--device", "cpu", "--cache", "cache", "--out", "two.csv"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    call("predict", "whole", "--device", "cpu", "--cache", "cache", "--out", "one.csv")
    one, two = (
        np.loadtxt(here / name, delimiter=",", skiprows=1) for name in ("one.csv", "two.csv")
    )
    assert one.shape == (60, 4)
    np.testing.assert_allclose(two, one, atol=2e-5)
    states = [
        load_file(here / run / "model" / "000" / "model.safetensors") for run in ("run", "whole")
    ]
    for name, tensor in states[0].items():
        np.testing.assert_allclose(tensor, states[1][name], rtol=1e-3, atol=1e-4, err_msg=name)
