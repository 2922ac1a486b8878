"""Molecules on the command line: train, resume, predict, two processes, what is refused."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.command_line import ROW_KEYS, TRAIN_KEYS, environment, only_json
from tests.training.small_graphs import small_set

from specformer import GraphSpecformer
from specformer.graphs import write_graph_set
from specformer.training.runs.folder import RunFolder

FAST = [
    word
    for setting in (
        "model.hidden_channels=8", "model.num_heads=2", "model.num_layers=1", "schedule.epochs=2",
    )
    for word in ("--set", setting)
]  # fmt: skip


@pytest.fixture
def chains(here: Path) -> Path:
    pytest.importorskip("rdkit")
    rows = [f"{'C' * n}{'O' * m},{n}" for n in range(1, 9) for m in range(1, 5)]
    (here / "chains.csv").write_text("\n".join(["smiles,carbons", *rows]) + "\n")
    return here / "chains.csv"


@pytest.fixture
def trained(call, chains: Path) -> dict:
    words = ("--task", "regression", "--runs", "1", *FAST, "--json")
    status, out, err = call("train", chains, *words)
    assert (status, err) == (0, "")
    return json.loads(out)


def test_train_json_and_the_run_folder(trained: dict) -> None:
    assert set(trained) >= TRAIN_KEYS
    assert (trained["task"], trained["metric"], trained["runs"]) == ("regression", "rmse", 1)
    run = Path(trained["run_dir"])
    for name in ("config.yaml", "metrics.jsonl", "result.json", "outputs.npz", "report.html"):
        assert (run / name).is_file(), name
    model = GraphSpecformer.from_pretrained(run / "model" / "000")
    assert sum(p.numel() for p in model.parameters()) == trained["parameters"]
    report = (run / "report.html").read_text()
    assert "Learning from molecules" in report
    assert "reaches a test RMSE of" in report
    assert report.count("<svg") >= 2
    assert "Grey hills show where they lie" in report
    assert "drawn at 1 − μ" not in report  # eigenvalues of the Laplacian as they are


def test_train_json_names_the_classes(call, chains: Path) -> None:
    header, *rows = chains.read_text().splitlines()
    named = [f"{row},{('mild', 'hot', 'cold')[place % 3]}" for place, row in enumerate(rows)]
    chains.write_text("\n".join([f"{header},taste", *named]) + "\n")
    status, out, err = call("train", chains, "--set", "targets=[taste]", *FAST, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["classes"] == ["cold", "hot", "mild"]


@pytest.mark.slow
def test_runs_in_lanes(call, chains: Path) -> None:
    words = ("train", chains, "--runs", "2", *FAST, "--json")
    found = []
    for lanes in ("1", "2"):
        status, out, err = call(*words, "--lanes", lanes, "--out", f"lanes-{lanes}")
        assert (status, err) == (0, "")
        found.append(json.loads(out))
    assert found[1]["test"] == found[0]["test"]
    config = Path(found[1]["run_dir"]) / "config.yaml"
    assert "lanes: 2" in config.read_text()


def test_a_run_starts_from_the_models_of_another(call, trained: dict, here: Path) -> None:
    """Stopped and gone on with, too: its checkpoint is of models that started there."""
    rows = [f"{'C' * n}N,{n % 2}" for n in range(1, 31)]
    (here / "amines.csv").write_text("\n".join(["smiles,odd", *rows]) + "\n")
    start = ("--from", trained["run_dir"], "--set", "schedule.epochs=2")
    status, out, err = call("train", "amines.csv", *start, "--json")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert (answer["start"], answer["task"]) == (trained["run_dir"], "classification")
    run = Path(answer["run_dir"])
    assert f"start from those of {trained['run_dir']}" in (run / "report.html").read_text()
    status, out, err = call("predict", run, "--smiles", "CCO", "--smiles", "CCN")
    assert (status, err) == (0, f"Reading {run}.\n")
    (run / "result.json").unlink()
    status, out, err = call("resume", run, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["test"] == answer["test"]


def test_predict_smiles(call, trained: dict) -> None:
    words = [word for smiles in ("CCO", "C1CC", "CCN") for word in ("--smiles", smiles)]
    status, out, err = call("predict", trained["run_dir"], *words)
    assert status == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["smiles"] for row in rows] == ["CCO", "C1CC", "CCN"]
    assert [bool(row["prediction"]) for row in rows] == [True, False, False]
    assert "row 1: 'C1CC' is not valid SMILES" in err
    assert "row 2: 'CCN' has an atom unlike any learned from" in err


def test_an_empty_molecule_is_called_so(call, trained: dict) -> None:
    status, out, err = call("predict", trained["run_dir"], "--smiles", "", "--smiles", "CCO")
    assert status == 0
    assert out.splitlines()[1] == "0,,,is empty"
    assert err == f"Reading {trained['run_dir']}.\nrow 0: '' is empty\n"
    _, out, _ = call("predict", trained["run_dir"], "--smiles", "")
    assert out.splitlines() == ["id,smiles,prediction,error", "0,,,is empty"]


@pytest.mark.filterwarnings("error")
def test_models_that_find_no_molecule_say_only_that(call, chains: Path) -> None:
    status, out, err = call("train", chains, "--runs", "2", *FAST, "--json")
    assert (status, err) == (0, "")
    status, out, err = call("predict", json.loads(out)["run_dir"], "--smiles", "C1CC")
    assert status == 0
    assert out.splitlines()[0] == "id,smiles,prediction,spread,error"
    assert err.endswith(".\nrow 0: 'C1CC' is not valid SMILES\n")


def test_predict_a_file_and_what_was_trained_on(call, trained: dict, here: Path) -> None:
    (here / "new.csv").write_text("smiles\nCCO\nxx\n")
    status, out, err = call("predict", trained["run_dir"], "--graph", "new.csv", "--json")
    assert status == 0
    answer = json.loads(out)
    assert answer["rows"] == 2
    assert len(Path(answer["path"]).read_text().splitlines()) == 3
    _, out, _ = call("predict", trained["run_dir"], "--graph", "new.csv", "--out", "new-ones.csv")
    assert out == "1 of 2 predicted: new-ones.csv\n"
    status, out, err = call("predict", trained["run_dir"])
    assert (status, err) == (0, f"Reading {trained['run_dir']}.\n")
    assert len(out.splitlines()) == 33


def test_predict_names_every_row_by_the_files_id(call, trained: dict, here: Path) -> None:
    for text, names in (
        ("id,smiles\na,CCO\nb,C1CC\nc,CCN\nd,\n", ["a", "b", "c", "d"]),
        ("id,smiles\nb,C1CC\nd,xx\n", ["b", "d"]),  # not one can be read
        ("smiles\nC1CC\nxx\n", ["2", "3"]),
    ):
        (here / "named.csv").write_text(text)
        status, out, err = call("predict", trained["run_dir"], "--graph", "named.csv")
        rows = list(csv.DictReader(io.StringIO(out)))
        assert (status, [row["id"] for row in rows]) == (0, names)
        assert sum(not row["error"] for row in rows) == text.count("CCO")
        assert "'C1CC' is not valid SMILES" in err


@pytest.mark.parametrize("model", ["gsn", "cin"])
def test_models_on_rings_train_and_predict(call, here: Path, model: str) -> None:
    pytest.importorskip("rdkit")
    rows = [f"{'C' * m}C1{'C' * n}C1,{n}" for n in range(1, 6) for m in range(5)] + ["CCC,0", "C,0"]
    (here / "rings.csv").write_text("\n".join(["smiles,size", *rows]) + "\n")
    settings = ["model.hidden_channels=8", "model.num_layers=1", "schedule.epochs=2"]
    words = [word for setting in settings for word in ("--set", setting)]
    status, out, err = call("train", "rings.csv", "--model", model, *words, "--json")
    assert (status, err) == (0, "")
    run = json.loads(out)["run_dir"]
    status, out, err = call("predict", run, "--smiles", "C1CC1", "--smiles", "CC")
    assert (status, err) == (0, f"Reading {run}.\n")
    both = [float(row["prediction"]) for row in csv.DictReader(io.StringIO(out))]
    status, out, _ = call("predict", run, "--smiles", "CC")  # no ring at all
    (alone,) = csv.DictReader(io.StringIO(out))
    assert float(alone["prediction"]) == pytest.approx(both[1], rel=1e-4)


def test_the_terminal_shows_a_table(call, here: Path) -> None:
    write_graph_set(here / "own.npz", small_set(60, classes=True))
    status, out, err = call("train", "own.npz", *FAST, "--quiet", "--runs", 2)
    assert (status, err) == (0, "")
    for text in ("Many graphs", "ROC-AUC", "Specformer", "report.html"):
        assert text in out


def test_classes_that_are_numbered_otherwise_keep_their_names(call, chains: Path) -> None:
    words = ("--task", "classification", "--runs", "1", *FAST)
    status, out, err = call("train", chains, *words, "--json")
    assert (status, err) == (0, "")
    run = json.loads(out)
    assert run["classes"] == [str(carbons) for carbons in range(1, 9)]
    _, out, _ = call("predict", run["run_dir"], "--smiles", "CCO")
    header, row = out.splitlines()
    assert header.split(",")[3:5] == ["probability(1)", "probability(2)"]
    assert 1 <= int(row.split(",")[2]) <= 8


def test_a_stopped_run_resumes(call, trained: dict) -> None:
    run = Path(trained["run_dir"])
    (run / "result.json").unlink()
    status, out, err = call("resume", run, "--json")
    assert (status, err) == (0, "")
    again = json.loads(out)
    for key in ("test", "val", "parameters"):
        assert again[key] == trained[key]


def test_a_source_is_looked_for_where_the_run_was_started(
    call, chains: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, _ = call("train", chains.name, "--runs", "1", *FAST, "--json")
    assert status == 0
    run = Path(json.loads(out)["run_dir"]).absolute()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call("predict", run, "--smiles", "CCO")[0] == 0
    told = f"Error: chains.csv: not found from this folder. {run} was trained on it: run this"
    assert told in call("predict", run)[2]
    (run / "result.json").unlink()
    assert told in call("resume", run)[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "odd"], "--task odd: choose regression, classification or links"),
        (["--model", "odd"], "unknown model 'odd'"),
        (["--lanes", "0"], "--lanes 0: at least one"),
        (["--model", "forest", "--lanes", "2"], "--lanes: a forest's trees already grow side by"),
        (["--set", "schedule.beta=1"], "did you mean 'beta2'"),
        (["--set", "split=odd"], "split 'odd'"),
    ],
)
def test_what_is_wrong_is_one_sentence(call, chains: Path, words, message: str) -> None:
    status, out, err = call("train", chains, *words, "--quiet")
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_targets_are_chosen_beside_columns_of_words(call, chains: Path) -> None:
    lines = chains.read_text().splitlines()
    batches = ["batch", "7", *["A1"] * (len(lines) - 2)]  # one of them looks like a number
    mixed = "\n".join(map(",".join, zip(lines, batches, strict=True)))
    (chains.parent / "mixed.csv").write_text(mixed + "\n")
    status, _, err = call("train", "mixed.csv", *FAST, "--quiet")
    assert (status, "column 'batch', row 3: 'A1' is not a number" in err) == (2, True)
    found = [
        json.loads(call("train", source, "--set", "targets=[carbons]", *FAST, "--json")[1])
        for source in ("mixed.csv", chains)
    ]
    assert found[0]["test"] == found[1]["test"]


def test_smiles_need_a_run_of_molecules(call, trained: dict, chains: Path) -> None:
    status, _, err = call("predict", trained["run_dir"], "--smiles", "C", "--graph", "x.csv")
    assert status == 2
    assert "use only one of them" in err
    status, _, err = call("predict", trained["run_dir"], "--smiles", chains)
    assert status == 2
    assert "this is a file; use `--graph" in err


def test_table_3_shows_cited_figures(call, here: Path, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    status, out, _ = call("table", 3, "--recorded", "--results", tmp_path / "results")
    assert status == 0
    assert "Nothing is recorded of table 3" in out
    status, _, err = call("table", 3, "--images", 3)
    assert status == 2
    assert "`--images` applies to table 1 only, not to table 3" in err


def test_table_3_runs(call, here: Path) -> None:
    graphs = small_set(30)
    y = None if graphs.y is None else graphs.y[:, 1:]
    write_graph_set(here / "zinc.npz", replace(graphs, y=y))
    words = ["--datasets", "zinc", "--models", "specformer", "--runs", 1]
    words += ["--data", here, *FAST, "--json"]
    status, out, err = call("table", 3, *words)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert all(set(row) >= ROW_KEYS for row in found["rows"])
    assert {row["recipe"] for row in found["rows"]} == {"paper", "best", "cited"}
    recorded = json.loads((Path(found["run_dir"]) / "result.json").read_text())
    assert {row["recipe"] for row in recorded["rows"]} == {"paper", "best"}  # what was run


def in_two_processes(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, "--nproc-per-node=2", "-m", "specformer", *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_of_two_processes_one_says_what_is_wrong(chains: Path, tmp_path: Path) -> None:
    done = in_two_processes(["train", str(chains), *FAST, "--set", "split=odd"], tmp_path)
    assert done.returncode != 0
    assert done.stderr.count("Error: split 'odd'") == 1
    assert "Connection closed" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_two_processes_are_one(trained: dict, chains: Path, tmp_path: Path) -> None:
    words = ["train", str(chains), "--task", "regression", *FAST, "--out", "two", "--json"]
    done = in_two_processes(words, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["val"]["mean"] == pytest.approx(trained["val"]["mean"], rel=1e-3)
    assert torch.is_tensor(
        GraphSpecformer.from_pretrained(tmp_path / "two" / "model" / "000").readout.weight
    )


@pytest.mark.slow
def test_two_processes_start_as_one_does(call, trained: dict, chains: Path, tmp_path: Path) -> None:
    start = str(Path(trained["run_dir"]).resolve())
    words = ["train", str(chains), "--task", "regression", "--from", start]
    words += ["--set", "schedule.epochs=2", "--json", "--out"]
    status, _, err = call(*words, tmp_path / "one")
    assert (status, err) == (0, "")
    done = in_two_processes([*words, str(tmp_path / "two")], tmp_path)
    assert done.returncode == 0, done.stderr
    one, two = (
        [reading["train_loss"] for reading in RunFolder.open(tmp_path / name).metrics()]
        for name in ("one", "two")
    )
    np.testing.assert_allclose(two, one, rtol=1e-5)


def test_folds_are_as_many_runs_as_there_are(call, here: Path) -> None:
    write_graph_set(here / "own.npz", small_set(60, classes=True))
    quick = ["--set", "epochs=1", "--set", "model.hidden_channels=8", "--device", "cpu", "--json"]
    result = only_json(call("train", "own.npz", "--set", "split=kfold-3", *quick))
    assert (result["runs"], len(result["test"]["values"])) == (3, 3)
