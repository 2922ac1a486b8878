"""Going on with a run: from a checkpoint, from scratch, or to the report that is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.command_line import only_json

from specformer.datasets import csbm
from specformer.graphs import write_npz
from specformer.training.loops.nodes import NodeRuns
from specformer.training.runs.checkpoint import Checkpoint
from specformer.training.runs.folder import RunFolder

WORDS = ["train", "own.npz", "--model", "gcn", "--runs", 1, "--device", "cpu", "--json"]
WORDS += ["--set", "schedule.epochs=40"]
FINISHED = "run: the run is finished; there is nothing to resume."


@pytest.fixture
def own(here: Path) -> Path:
    write_npz(here / "own.npz", csbm(0.6, num_nodes=60, num_features=5, seed=3))
    return here


def stop_at(epoch: int, call, words: list, monkeypatch: pytest.MonkeyPatch) -> tuple:
    """Train in ``run`` until the checkpoint of an epoch is written; what the command said."""
    save = Checkpoint.save

    def saved_and_stopped(self, tensors) -> None:
        save(self, tensors)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "save", saved_and_stopped)
        patched.setitem(NodeRuns.fit.__kwdefaults__, "save_every", epoch)
        return call(*words, "--out", "run")


@pytest.fixture
def stopped(call, own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was stopped in epoch 20, and the same run that was not (``whole``)."""
    only_json(call(*WORDS, "--out", "whole"))
    status, _, err = stop_at(20, call, WORDS, monkeypatch)
    assert (status, err) == (130, "Stopped. Go on with: specformer resume run\n")
    return own / "run"


def same(one: Path, other: Path) -> bool:
    """Whether two runs have the same figures and weights, to the bit."""
    results = [json.loads((run / "result.json").read_text()) for run in (one, other)]
    states = [load_file(run / "model" / "000" / "model.safetensors") for run in (one, other)]
    return results[0]["test"] == results[1]["test"] and all(
        states[0][name].equal(states[1][name]) for name in states[0]
    )


def test_without_the_recipe_it_was_started_with(
    call, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is its config.yaml: the recipe's file may go."""
    (own / "mine.yaml").write_text("{schedule: {epochs: 40, learning_rate: 0.02}}")
    words = [*WORDS[:-2], "--recipe", "mine.yaml"]
    only_json(call(*words, "--out", "whole"))
    assert stop_at(20, call, words, monkeypatch)[0] == 130
    (own / "mine.yaml").unlink()
    only_json(call("resume", "run", "--json"))
    assert same(own / "run", own / "whole")


def test_curves_grow_while_a_run_trains(call, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(100, call, [*WORDS, "--set", "schedule.epochs=200"], monkeypatch)
    lines = (own / "run" / "metrics.jsonl").read_text().splitlines()
    readings = [json.loads(line) for line in lines]
    assert [reading["epoch"] for reading in readings] == [50]
    assert all(0 <= reading["accuracy"] <= 1 for reading in readings)


def test_from_the_checkpoint(call, stopped: Path) -> None:
    only_json(call("resume", "run", "--json"))
    assert same(stopped, stopped.parent / "whole")
    assert call("resume", "run", "-q") == (2, "", f"Error: {FINISHED}\n")
    assert call("resume", "run", "--from-scratch", "-q") == (2, "", f"Error: {FINISHED}\n")


def test_from_scratch_where_the_checkpoint_is_damaged(call, stopped: Path) -> None:
    checkpoint = stopped / "checkpoint.safetensors"
    content = bytearray(checkpoint.read_bytes())
    content[-1] ^= 1
    checkpoint.write_bytes(bytes(content))
    status, out, err = call("resume", "run", "-q")
    assert (status, out) == (2, "")
    assert err == (
        "Error: run/checkpoint.safetensors: checksum differs; the file was altered or damaged; "
        "remove it to start over, or resume with --from-scratch.\n"
    )
    only_json(call("resume", "run", "--from-scratch", "--json"))
    assert same(stopped, stopped.parent / "whole")


def test_to_the_report_that_is_missing(call, own: Path) -> None:
    """As if killed after the result was written, and before all that follows."""
    first = only_json(call(*WORDS, "--out", "run"))
    report = (own / "run" / "report.html").read_text()
    (own / "run" / "report.html").unlink()
    (own / "run" / "checkpoint.safetensors").write_bytes(b"left over")
    result = (own / "run" / "result.json").read_bytes()
    assert only_json(call("resume", "run", "--json")) == first
    assert (own / "run" / "report.html").read_text() == report
    assert (own / "run" / "result.json").read_bytes() == result
    assert not (own / "run" / "checkpoint.safetensors").exists()
    assert call("resume", "run", "-q") == (2, "", f"Error: {FINISHED}\n")


def test_a_run_that_another_process_finished_meanwhile_stays(call, stopped: Path, monkeypatch):
    held = RunFolder.held

    @contextmanager
    def finished_just_before(self: RunFolder) -> Iterator[None]:
        (self.path / "result.json").write_text("theirs")
        with held(self):
            yield

    monkeypatch.setattr(RunFolder, "held", finished_just_before)
    assert call("resume", "run", "-q") == (2, "", f"Error: {FINISHED}\n")
    assert (stopped / "result.json").read_text() == "theirs"


def test_nothing_is_promised_that_was_not_kept(call, own: Path, monkeypatch) -> None:
    def stopped(self) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(NodeRuns, "begin_epoch", stopped)
        status, _, err = call(*WORDS, "--out", "run")
    said = "Stopped. Nothing was kept yet; start over with: specformer resume run\n"
    assert (status, err) == (130, said)
    only_json(call(*WORDS, "--out", "whole"))
    only_json(call("resume", "run", "--json"))  # and that is true
    assert same(own / "run", own / "whole")


@pytest.mark.parametrize(
    ("place", "how"),
    [
        ("specformer.reports.html.write_report", "Go on with"),
        ("specformer.training.runs.folder.RunFolder.write_models", "Nothing was kept yet; start"),
    ],
)
def test_a_stop_while_files_are_written_is_answered_truly(
    place: str, how: str, call, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_, **__) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(place, stop)
        status, _, err = call(*WORDS, "--out", "run")
    assert status == 130
    assert err.startswith(f"Stopped. {how}")
    assert err.endswith("with: specformer resume run\n")
    only_json(call("resume", "run", "--json"))
    assert (own / "run" / "report.html").exists()


def test_a_run_says_after_which_epoch_it_goes_on(stopped: Path, call) -> None:
    status, _, err = call("resume", "run")
    assert status == 0
    assert "goes on after epoch 20 of 40\n" in err
