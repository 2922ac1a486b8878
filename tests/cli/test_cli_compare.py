"""Comparing models on the command line: one object, one sentence, one folder that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import specformer.tasks.compare as comparing
from specformer.datasets import csbm
from specformer.graphs import write_npz
from specformer.training.runs.folder import RunFolder

KEYS = {
    "dataset", "metric", "split", "runs", "against", "rows", "differences", "failures", "seconds",
    "run_dir", "report",
}  # fmt: skip
ROW = {
    "name", "model", "recipe", "test", "val", "parameters", "seconds", "difference", "folder",
}  # fmt: skip
FAST = ["--models", "gcn,mlp", "--runs", 3, "--set", "schedule.epochs=5"]


@pytest.fixture
def graph(here: Path) -> Path:
    write_npz(here / "one.npz", csbm(0.6, num_nodes=60, num_features=5, seed=3))
    return here / "one.npz"


def test_json(call, graph: Path) -> None:
    status, out, err = call("compare", "one.npz", *FAST, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert set(found) == KEYS
    assert [set(row) for row in found["rows"]] == [ROW, ROW]
    assert (found["dataset"], found["metric"], found["runs"]) == ("one", "accuracy", 3)
    assert found["run_dir"] == "runs/compare-one"
    assert Path(found["report"]).is_file()
    assert RunFolder.open("runs/compare-one/gcn").result()["command"] == (
        "specformer train one.npz --model gcn --recipe default --runs 3 "
        "--set schedule.epochs=5 --seed 0"
    )
    status, out, err = call("predict", "runs/compare-one/gcn")
    said = "Reading runs/compare-one/gcn.\n"
    assert (status, err, out.count("\n")) == (0, said, 61)


def test_what_people_read(call, graph: Path) -> None:
    status, out, _ = call("compare", "one.npz", *FAST, "--out", "found", "--against", "mlp", "-q")
    assert status == 0
    assert "Models compared on one" in out
    assert "to MLP, points" in out
    assert "p (Holm)" in out
    assert "paired t-test over 3 splits" in out
    assert "Report: found/report.html" in out
    assert (Path("found") / "config.yaml").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--models", "gcn,gnc"], "unknown model 'gnc'; choose from specformer, "),
        (["--models", "gcn"], "--models gcn: a comparison needs at least two."),
        (["--seconds", "0"], "--seconds 0: it must be more than 0."),
        (["--runs", "0"], "--runs 0: at least one is needed."),
        (["--task", "regresion"], "regresion"),
        (["--against", "gin"], "--against gin: is not among the models compared; choose from"),
    ],
)
def test_what_is_wrong_is_one_sentence(call, graph: Path, words, message: str) -> None:
    status, out, err = call("compare", "one.npz", *words, "--quiet")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_stopped_comparison_says_how_it_goes_on(call, graph: Path, monkeypatch) -> None:
    train = comparing.train

    def stopped(job, *arguments, **options):
        if job.model == "mlp":
            raise KeyboardInterrupt
        return train(job, *arguments, **options)

    monkeypatch.setattr(comparing, "train", stopped)
    words = ["compare", "one.npz", *FAST, "-q"]
    status, _, err = call(*words)
    assert status == 130
    assert "Stopped. Go on with: specformer compare one.npz" in err
    assert err.rstrip().endswith("--out runs/compare-one")
    written = Path("runs/compare-one/gcn/result.json").read_bytes()
    monkeypatch.setattr(comparing, "train", train)
    status, out, _ = call(*words, "--out", "runs/compare-one")
    assert (status, "Models compared on one" in out) == (0, True)
    assert Path("runs/compare-one/gcn/result.json").read_bytes() == written
