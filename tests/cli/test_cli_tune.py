"""Searching for settings on the command line: nodes or molecules, as the source has it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.training.small_graphs import small_set

from specformer.datasets import csbm
from specformer.graphs import write_graph_set, write_npz
from specformer.training.runs.folder import RunFolder

KEYS = {"dataset", "model", "metric", "trials", "winner", "set", "score", "val", "seconds"}
FAST = [
    word
    for setting in ("model.hidden_channels=8", "model.num_layers=1", "schedule.epochs=2")
    for word in ("--set", setting)
]
FEW = ["--trials", 2, "--splits", 1, "--finalists", 1, "--runs", 1]


@pytest.fixture
def sources(here: Path) -> Path:
    write_npz(here / "one.npz", csbm(0.6, num_nodes=60, num_features=5, seed=3))
    write_graph_set(here / "many.npz", small_set(40, classes=True))
    return here


@pytest.mark.parametrize(("name", "metric"), [("one", "accuracy"), ("many", "rocauc")])
def test_the_source_decides(call, sources: Path, name: str, metric: str) -> None:
    status, out, err = call("tune", f"{name}.npz", *FAST, *FEW, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert set(found) == KEYS | {"splits", "recipe_file", "trials_file", "report"}
    assert (found["dataset"], found["metric"], found["trials"]) == (name, metric, 2)
    assert found["recipe_file"] == f"runs/tune-{name}-specformer/best.yaml"
    words = ["--recipe", found["recipe_file"], "--runs", 1, "--json"]
    status, out, _ = call("train", f"{name}.npz", *words)
    assert status == 0
    assert json.loads(out)["val"]["values"] == pytest.approx(found["val"]["values"])


def test_what_was_read_is_said_first(call, sources: Path) -> None:
    status, _, err = call("tune", "one.npz", *FAST, *FEW)
    assert status == 0
    assert 0 < err.index(" nodes, ") < err.index("  model: specformer") < err.index("one: trials")


def test_what_people_read(call, sources: Path) -> None:
    few = [*FEW, "--parameters", 12_000, "--out", "search", "--quiet"]
    status, out, err = call("tune", "many.npz", *FAST, *few)
    assert (status, err) == (0, "")
    assert "has the best validation rocauc on 1 split, " in out
    assert "Recipe: search/best.yaml. All trials: search/trials.jsonl." in out
    assert "Train with:\n  specformer train many.npz --model specformer --recipe search/best" in out
    assert "Report: search/report.html" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["photographs"], "signals are fitted"),
        (["many.npz", "--model", "gat"], "unknown model 'gat'"),
        (["many.npz", "--splits", "0"], "--splits 0: at least one"),
        (["many.npz", "--parameters", "9"], "parameters, more than --parameters 9"),
        (["missing.csv"], "missing.csv"),
    ],
)
def test_what_is_wrong_is_one_sentence(call, sources: Path, words, message: str) -> None:
    status, out, err = call("tune", *words, "--quiet")
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_links_are_trained_by_the_command_that_is_told(call, sources: Path) -> None:
    few = ("--task", "links", "--model", "gcn", "--set", "schedule.epochs=2", *FEW)
    _, out, _ = call("tune", "one.npz", *few)
    told = next(line for line in out.splitlines() if "specformer train" in line)
    status, out, _ = call(*shlex.split(told)[1:], "--runs", 1, "--json")
    assert (status, json.loads(out)["task"]) == (0, "links")


def test_help_says_on_how_many_splits_links_are_judged(call, sources: Path) -> None:
    words = ("one.npz", "--task", "links", "--set", "schedule.epochs=2", "--json", "--quiet")
    few = ("--model", "gcn", "--trials", 1, "--splits", 1, "--finalists", 1)
    _, tuned, _ = call("tune", *words, *few)
    _, compared, _ = call("compare", *words, "--models", "gcn,mlp")
    counts = {"tune": json.loads(tuned)["splits"], "compare": json.loads(compared)["runs"]}
    for command, count in counts.items():
        _, told, _ = call(command, "--help")
        assert f"links: {count};" in " ".join(told.replace("│", " ").split())


def test_two_searches_do_not_share_a_folder(call, sources: Path) -> None:
    words = ["tune", "one.npz", *FAST, *FEW, "--out", "search", "-q"]
    with RunFolder("search").held():
        refused = (2, "", "Error: search: another process is at work here.\n")
        assert call(*words) == refused
        assert list((sources / "search").iterdir()) == []
    assert call(*words)[0] == 0
