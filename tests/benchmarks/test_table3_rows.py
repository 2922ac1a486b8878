"""Rows of Table 3 as jobs: one that works, one that fails, and what is left in time."""

from __future__ import annotations

import argparse
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.benchmarks.small_molecules import molecules

from benchmarks.ledger import add
from benchmarks.table3_rows import Job, main, run_jobs
from specformer.graphs import write_graph_set
from specformer.paper.recorded import recorded_rows
from specformer.training.runs.folder import RunFolder

SMALL = "gcn:zinc:1:1:model.hidden_channels=4:model.num_layers=1"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    parts = np.split(np.arange(20), [12, 16])
    names = ("train_idx", "valid_idx", "test_idx")
    split = dict(zip(names, parts, strict=True))
    write_graph_set(tmp_path / "zinc.npz", replace(molecules(), **split))
    return tmp_path


def test_a_job_is_read_or_refused() -> None:
    assert Job.parse("gps:zinc:2:300") == Job("gps", "zinc", 2, 300)
    for wrong in ("gps:zinc:2", "gps:zinc:two:300"):
        with pytest.raises(argparse.ArgumentTypeError, match="MODEL:DATASET:RUNS:EPOCHS"):
            Job.parse(wrong)


def test_jobs_run_apart_and_their_results_are_recorded(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, archive = tmp_path / "rows", tmp_path / "rows.tar.gz"
    options = ["--out", str(out), "--data", str(data), "--device", "cpu", "--pack", str(archive)]
    main([SMALL, "unknown:zinc:1:1", "--processes", "2", *options])
    _, _, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("| gcn | zinc | 1 | ")
    assert first.endswith("| finished |")
    assert second == "| unknown | zinc | – |  |  |  |  | failed with status 2 |"
    assert "unknown" in (out / "zinc-unknown.log").read_text()

    with tarfile.open(archive) as tar:
        packed = tar.getnames()
    assert {"rows/zinc-gcn/result.json", "rows/zinc-gcn.log", "rows/zinc-unknown.log"} <= {*packed}
    ledger = tmp_path / "results"
    add(RunFolder.open(out / "zinc-gcn"), ledger)
    assert [(row["model"], row["paper"]) for row in recorded_rows(ledger, 3)] == [("gcn", 0.367)]

    main([SMALL, *options])  # nothing is run again
    assert capsys.readouterr().out.splitlines()[-1].endswith("| finished before |")


def test_time_is_limited(tmp_path: Path) -> None:
    jobs = [Job.parse(SMALL)]
    assert run_jobs(jobs, tmp_path, 1, seconds=0.0) == ["not started"]
    assert run_jobs(jobs, tmp_path, 1, seconds=0.1) == ["stopped"]
