"""The command line as a user runs it: what it prints, writes and refuses."""

from __future__ import annotations

import importlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
import yaml
from PIL import Image
from tests.cli.command_line import ROW_KEYS, TRAIN_KEYS, environment, only_json, run
from tests.datasets.grid_images import write_grid_images

import specformer
from specformer import cli
from specformer.cli.options import split_names
from specformer.cli.reproducing import parse_images
from specformer.datasets import photographs, target_filter
from specformer.training.runs.checkpoint import Checkpoint
from specformer.training.runs.folder import RunFolder

COMMANDS = ("demo", "train", "inspect", "table", "spectrum", "report")
SPECTRUM_KEYS = {
    "num_nodes", "num_eigenpairs", "solver", "seconds", "max_residual", "max_orthogonality_error",
    "components", "distinct_eigenvalues",
}  # fmt: skip


@pytest.fixture
def image(here) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 7), dtype=np.uint8)
    Image.fromarray(pixels).save(here / "mine.png")
    return here / "mine.png"


# --- starting -----------------------------------------------------------------------------------


def test_help_lists_the_commands(tmp_path):
    status, out, err = run(tmp_path, "--help")
    assert (status, err) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^\W+{command}\s", out, re.MULTILINE), command


@pytest.mark.parametrize("command", [*COMMANDS, "predict"])
def test_every_command_has_help(command, call):
    status, out, err = call(command, "--help")
    assert (status, err) == (0, "")
    assert "Usage" in out


def test_every_command_takes_json():
    waiting = [typer.main.get_command(cli.app)]
    while waiting:
        command = waiting.pop()
        inner = list(getattr(command, "commands", {}).values())
        waiting += inner
        options = {option for parameter in command.params for option in parameter.opts}
        assert inner or "--json" in options, command.name


def test_nothing_that_is_named_twice_counts_twice():
    assert split_names("gcn, mlp,gcn,") == ["gcn", "mlp"]
    assert parse_images("19,28,19") == [19, 28]
    assert (parse_images("3,3"), parse_images("3")) == ([3], 3)


def test_without_arguments_it_helps(call):
    status, out, err = call()
    assert status in (0, 2)  # click's choice, and it changed its mind
    assert "Usage" in out + err


def test_version(tmp_path):
    assert run(tmp_path, "--version") == (0, f"specformer {specformer.__version__}\n", "")


def test_help_starts_without_heavy_packages(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "specformer", "--help"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert {"specformer", "typer"} <= imported
    heavy = {"torch", "matplotlib", "numpy", "scipy", "sklearn", "skimage", "torch_geometric"}
    assert imported & heavy == set()


# --- colours ------------------------------------------------------------------------------------


def on_a_terminal(tmp_path: Path, **more: str) -> str:
    """What ``specformer --help`` writes to a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "specformer", "--help"],
        cwd=tmp_path,
        env=environment(tmp_path, TERM="xterm-256color", **more),
        stdout=slave,
        stderr=slave,
        stdin=slave,
    )
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not part:
            break
        written += part
    os.close(master)
    assert process.wait() == 0
    return written.decode()


def colours(text: str) -> set[str]:
    """Foreground and background colours switched on by escape codes."""
    codes = {code for found in re.findall(r"\x1b\[([\d;]*)m", text) for code in found.split(";")}
    return {code for code in codes if re.fullmatch(r"[349]\d|10\d", code) and code != "39"}


def test_no_color(tmp_path):
    assert colours(on_a_terminal(tmp_path))
    assert colours(on_a_terminal(tmp_path, NO_COLOR="1")) == set()


# --- spectrum -----------------------------------------------------------------------------------


def is_png(path: Path) -> bool:
    with Image.open(path) as picture:
        picture.load()
        return picture.format == "PNG" and min(picture.size) > 100


def test_spectrum_of_a_grid(call, here):
    found = only_json(call("spectrum", "6x6", "--json", "--out", "s.safetensors"))
    assert found.keys() >= SPECTRUM_KEYS
    assert found["num_nodes"] == found["num_eigenpairs"] == 36
    assert found["components"] == 1
    assert found["distinct_eigenvalues"] < 36
    assert found["max_residual"] < 1e-5
    assert is_png(here / found["plot"])
    saved = specformer.Spectrum.load(here / found["saved"])
    assert saved.num_eigenpairs == 36
    only_json(call("spectrum", "6x6", "--json", "--out", "rows/"))
    part = specformer.Spectrum.load(here / "rows", slice(30, 36))
    np.testing.assert_array_equal(part.eigenvectors, saved.eigenvectors[30:])


def test_spectrum_of_an_npz_file_for_people(call, here):
    path = [(0, 1), (1, 2), (3, 4)]
    np.savez(here / "mine.npz", edge_index=np.array(path).T, num_nodes=5, directed=False)
    status, out, err = call("spectrum", "mine.npz", "--quiet")
    assert (status, err) == (0, "")
    assert "\x1b" not in out
    assert re.search(r"components\W+2", out)
    assert is_png(here / "mine-spectrum.png")


def test_spectrum_of_a_csv_folder(call, here):
    (here / "ring").mkdir()
    edges = "".join(f"n{i},n{(i + 1) % 8}\n" for i in range(8))
    (here / "ring" / "edges.csv").write_text(f"source,target\n{edges}")
    found = only_json(call("spectrum", "ring", "--json", "--k", "2,1", "--plot", "x/ring.png"))
    assert found.keys() >= SPECTRUM_KEYS
    # 1 − cos(2πj/8): 0 once, then pairs, then 2 once; the second smallest brings its twin.
    assert found["num_eigenpairs"] == 4
    assert is_png(here / "x" / "ring.png")


def test_progress_goes_to_stderr(call, here):
    status, out, err = call("spectrum", "4x4")
    assert status == 0
    assert "decomposing grid-4x4" in err
    assert "\x1b" not in out + err
    assert "decomposing" not in out


def test_the_first_words_come_before_heavy_packages(tmp_path):
    program = (
        "import sys; sys.argv = ['specformer', 'train', 'absent.npz']\n"
        "import typer; typer.echo = lambda text, **_: sys.exit(f'{text} {sorted(sys.modules)}')\n"
        "from specformer.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.startswith("Reading absent.npz. [")
    assert not {"'torch'", "'numpy'", "'scipy'"} & set(done.stderr.strip("[]").split(", "))


def test_train_says_what_it_reads_and_inspect_says_the_same(call, scene):
    settings = ("--model", "gcn", "--runs", "2", "--set", "epochs=1", "--out", "run")
    status, _, err = call("train", "mine.npz", *settings)
    assert status == 0, err
    first, *read = [line for line in err.splitlines() if "--set" not in line][:5]
    assert first == "Reading mine.npz."
    assert read[0] == "mine: 20 nodes, 20 edges, 1 component, 20 features"
    assert read[1] == "  2 classes: 0 (10), 1 (10)"
    assert read[2] == "  split: stratified-60-20-20, 12 training, 4 validation, 4 test; 2 runs"
    assert read[3] == "  12 columns, '0' to '18': as they are"  # 0 and 1
    assert "  model: gcn, recipe default, on cpu" in err.splitlines()
    _, out, _ = call("inspect", "mine.npz")
    assert out.splitlines()[:2] == read[:2]
    found = only_json(call("inspect", "mine.npz", "--json"))
    assert found["classes"] == {"0": 10, "1": 10}


def test_predictions_go_over_nothing_that_is_read(call, scene):
    settings = ("--model", "gcn", "--runs", "1", "--set", "epochs=1", "--out", "run", "-q")
    assert call("train", "mine.npz", *settings)[0] == 0
    for out, why in (("mine.npz", "is what is read"), ("run/metrics.jsonl", "is a file of a run")):
        before = (scene / out).read_bytes()
        status, _, err = call("predict", "run", "--out", out)
        assert (status, (scene / out).read_bytes()) == (2, before)
        assert f"--out {out}: {why}; name another file." in err
    assert call("predict", "run", "--out", "run/predictions.csv")[0] == 0


def test_the_cache_is_used(call, here):
    first, again = (only_json(call("spectrum", "5x5", "--json", "--cache", "mine")) for _ in "12")
    assert len(list((here / "mine").iterdir())) == 1
    assert again == first  # to the last digit of the seconds: read, not solved


# --- train --------------------------------------------------------------------------------------


def test_train_on_photographs(call, here):
    shown = only_json(
        call(
            "train", "photographs", "--runs", 1, "--set", "schedule.epochs=3", "--json",
            "--device", "cpu", "--seed", 5,
        )
    )  # fmt: skip
    assert shown.keys() >= TRAIN_KEYS
    assert shown["dataset"] == "photographs"
    assert shown["metric"] == "sse"
    assert shown["runs"] == 1
    for part in ("test", "val"):
        assert shown[part].keys() == {"mean", "ci95", "values"}
        assert shown[part]["ci95"] is None
    folder = here / shown["run_dir"]
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "checksums.json",
        "config.yaml",
        "metrics.jsonl",
        "outputs.npz",
        "result.json",
        "report.html",
        "model/000/README.md",
        "model/000/config.json",
        "model/000/model.safetensors",
    }
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["command"] == "train"
    assert config["seed"] == 5
    assert config["set"] == ["schedule.epochs=3"]
    assert config["settings"] == json.loads((folder / "result.json").read_text())["settings"]
    readings = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert readings
    result = json.loads((folder / "result.json").read_text())
    assert result["test"] == shown["test"]
    assert result["seed"] == 5
    assert result["environment"]["packages"]["torch"]
    assert result["command"].startswith("specformer train photographs --runs 1")
    # The saved model gives the recorded error again.
    model = specformer.Specformer.from_pretrained(folder / "model" / "000")
    signals = photographs()
    spectrum = specformer.decompose(signals.graph, mirrors=signals.mirrors)
    x = torch.as_tensor(signals.signals[0])
    wanted = spectrum.filter(x, target_filter("comb")(spectrum.eigenvalues))
    with torch.no_grad():
        output = model(x.unsqueeze(-1), spectrum).squeeze(-1)
    sse = (output - wanted).double().square().sum().item()
    assert shown["test"]["values"] == pytest.approx([sse], rel=1e-2)


def test_train_for_people(call, here, image):
    status, out, err = call(
        "train", image, "--filter", "low-pass", "--model", "gprgnn", "--recipe", "paper",
        "--set", "schedule.epochs=3", "--set", "schedule.learning_rate=1e-3", "--out", "run",
    )  # fmt: skip
    assert status == 0, err
    assert "low-pass" in out
    assert "GPR-GNN" in out
    assert out.rstrip().endswith("Report: run/report.html")
    assert (here / "run" / "report.html").is_file()
    result = json.loads((here / "run" / "result.json").read_text())
    assert result["settings"]["schedule"]["learning_rate"] == 0.001


def test_report_is_written_anew(call, here, image):
    call("train", image, "--set", "schedule.epochs=2", "--out", "run", "-q")
    report = here / "run" / "report.html"
    before = report.read_text()
    report.unlink()
    written = only_json(call("report", "run", "--json"))
    assert written == {"run_dir": "run", "report": "run/report.html"}
    assert report.read_text() == before
    assert call("report", "run")[:2] == (0, "Report: run/report.html\n")


def test_a_second_run_takes_a_new_folder(call, here, image):
    for expected in ("runs/mine-specformer", "runs/mine-specformer-2"):
        shown = only_json(call("train", image, "--set", "schedule.epochs=2", "--json"))
        assert shown["run_dir"] == expected


# --- tables and the ledger ----------------------------------------------------------------------


def test_recorded_table(call, here):
    shown = only_json(call("table", 1, "--recorded", "--json"))
    assert shown["table"] == 1
    assert {row["metric"] for row in shown["rows"]} == {"sse", "r2"}
    assert all(row.keys() >= ROW_KEYS for row in shown["rows"])
    assert not list(here.iterdir())  # nothing was run, nothing written


def test_recorded_rows_of_some_models(call):
    chosen = ("--models", "specformer", "--recipes", "paper", "--filters", "comb")
    shown = only_json(call("table", 1, "--recorded", *chosen, "--json"))
    assert {(row["model"], row["dataset"]) for row in shown["rows"]} == {("specformer", "comb")}


def test_recorded_table_for_people(call):
    status, out, err = call("table", 1, "--recorded")
    assert (status, err) == (0, "")
    assert "Specformer, projected" in out
    assert "comb" in out
    assert "\x1b" not in out


def test_a_reader_that_has_seen_enough(call, monkeypatch):
    """As in ``specformer table 1 --recorded | head -1``."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert call("table", 1, "--recorded") == (1, "", "")


def test_standard_output_may_be_closed(call, monkeypatch):
    """As in ``specformer datasets >&-``."""
    monkeypatch.setattr(sys, "stdout", None)
    assert call("datasets") == (0, "", "")
    sys.stdout.close()


def test_a_sign_that_standard_output_lacks_ends_nothing(call, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert call("table", 1, "--recorded") == (0, "", "")
    sys.stdout.flush()
    assert rb"SSE (R\xb2)" in written.getvalue()
    assert written.getvalue().isascii()


def test_table_from_data_to_ledger(call, here):
    write_grid_images(here / "data")
    shown = only_json(
        call(
            "table", 1, "--data", here / "data", "--images", "1,0", "--models", "specformer,gcn",
            "--recipes", "projected", "--filters", "comb", "--set", "schedule.epochs=2", "--json",
            "--out", "run",
        )
    )  # fmt: skip
    assert shown["table"] == 1
    assert [(r["model"], r["recipe"], r["metric"]) for r in shown["rows"]] == [
        ("specformer", "projected", "sse"),
        ("specformer", "projected", "r2"),
        ("gcn", "paper", "sse"),
        ("gcn", "paper", "r2"),
    ]
    assert all(row.keys() >= ROW_KEYS and row["runs"] == 2 for row in shown["rows"])
    page = (here / "run" / "report.html").read_text()
    assert page.index("comb, image 1") < page.index("comb, image 0")
    result = json.loads((here / "run" / "result.json").read_text())
    assert "--data" not in result["command"]
    assert str(here) not in result["command"]


# --- errors a user can cause --------------------------------------------------------------------

ERRORS = {
    "unknown source": (["train", "nonsense"], "csbm, zinc, molhiv, molpcba, pcqm4mv2, photographs"),
    "missing file": (["train", "absent.npz"], "absent.npz: there is no such file or folder."),
    "missing folder": (["tune", "absent/"], "absent/: there is no such file or folder."),
    "unknown model": (["train", "mine.png", "--model", "resnet"], "unknown model 'resnet'"),
    "unknown filter": (["train", "mine.png", "--filter", "notch"], "unknown filter 'notch'"),
    "unknown recipe": (["train", "mine.png", "--recipe", "best"], "unknown recipe 'best'"),
    "typing error in --set": (
        ["train", "mine.png", "--set", "schedule.epoch=3"],
        "did you mean 'epochs'?",
    ),
    "--set without a value": (["train", "mine.png", "--set", "x"], "expected key=value"),
    "wrong type in --set": (["train", "mine.png", "--set", "schedule.epochs=many"], "whole number"),
    "no epochs": (["train", "mine.png", "--set", "schedule.epochs=-5"], "epochs=-5"),
    "negative rate": (["train", "mine.png", "--set", "schedule.learning_rate=-1"], "learning_rate"),
    "infinite rate": (
        ["train", "mine.png", "--set", "schedule.learning_rate=.inf"],
        "learning_rate=inf",
    ),
    "odd width": (["train", "mine.png", "--set", "model.hidden_channels=7"], "hidden_channels=7"),
    "no landmarks": (["train", "mine.png", "--set", "landmarks=0"], "landmarks=0"),
    "no runs": (["train", "mine.png", "--runs", "0"], "--runs 0: at least one is needed"),
    "too many runs": (["train", "photographs", "--runs", "99"], "99 images asked for"),
    "missing image": (["train", "absent.png"], "absent.png: no such image file"),
    "bad image": (["train", "text.png"], "text.png: not a readable image"),
    "black image": (["train", "black.png"], "black.png: all pixels are equal"),
    "unknown device": (["train", "mine.png", "--device", "tpu"], "--device tpu"),
    "demo on an unknown device": (["demo", "--device", "tpu"], "--device tpu"),
    "torn molecules": (["table", "3", "--data", "torn", "--datasets", "zinc"], "zinc.npz: "),
    "torn ablation": (["table", "4", "--data", "torn", "--datasets", "molpcba"], "molpcba.npz: "),
    "no such image": (["table", "1", "--data", "images", "--images", "7,"], "image 7 asked for"),
    "images in words": (["table", "1", "--images", "all"], "--images all: give a count"),
    "missing data": (["table", "1", "--data", "empty"], "grid-images.npz was not found"),
    "table that is not here": (["table", "9"], "table 9"),
    "table in words": (["table", "one"], "table one does not exist; choose 1, 2, 3 or 4"),
    "unknown model of a table": (
        ["table", "1", "--data", "images", "--models", "gnc"],
        "unknown model 'gnc'",
    ),
    "unknown filter of a table": (
        ["table", "1", "--data", "images", "--filters", "comb,notch"],
        "unknown filter 'notch'",
    ),
    "no such ledger": (["table", "1", "--recorded", "--results", "absent"], "absent"),
    "ablated baseline": (
        ["table", "4", "--models", "gcn"],
        "tables 1, 2 and 3 only, not to table 4",
    ),
    "overhead": (["table", "overhead"], "make bench SUITE=overhead"),
    "unrecorded": (["table", "2", "--recorded", "--models", "gcnn"], "no model gcnn is recorded"),
    "recorded anew": (
        ["table", "2", "--recorded", "--runs", "3"],
        "--runs: leave it out, as --recorded runs nothing",
    ),
    "missing graph": (["spectrum", "absent.npz"], "absent.npz"),
    "graph of an unknown kind": (["spectrum", "text.png"], "text.png"),
    "folder without edges": (["spectrum", "empty"], "edges.csv"),
    "grid without nodes": (["spectrum", "0x5"], "no nodes"),
    "grid beyond all measure": (["spectrum", "99999x99999"], "10,000,000 nodes"),
    "k that is no number": (["spectrum", "4x4", "--k", "few"], "--k few"),
    "k of three numbers": (["spectrum", "4x4", "--k", "1,2,3"], "--k 1,2,3"),
    "k of nothing": (["spectrum", "4x4", "--k", "0"], "k=0"),
    "negative k": (["spectrum", "4x4", "--k", "-3"], "k=-3"),
    "unknown solver": (["spectrum", "4x4", "--solver", "magic"], "unknown solver 'magic'"),
    "unknown rule": (["spectrum", "4x4", "--isolated", "maybe"], "isolated"),
    "picture below a file": (["spectrum", "4x4", "--plot", "text.png/x.png"], "text.png"),
    "seed below all": (["train", "mine.png", "--seed", "-1"], "from 0 to 4,294,967,295"),
    "seed above all": (["demo", "--seed", "4294967296"], "--seed 4294967296: choose a number"),
    "spectrum over its graph": (
        ["spectrum", "mine.npz", "--out", "mine.npz"],
        "--out mine.npz: is what is read; name another file.",
    ),
    "report over a run": (
        ["report", "finished", "finished", "--out", "finished/result.json"],
        "--out finished/result.json: is a file of a run; name another file.",
    ),
    "report of nothing": (["report", "absent"], "absent: there is no such run folder"),
    "report of an unfinished run": (["report", "unfinished"], "specformer resume unfinished."),
    "out is a file": (["train", "mine.png", "--out", "text.png"], "is a file, not a folder"),
    "out below a file": (["train", "mine.png", "--out", "text.png/run"], "is a file"),
    "out is finished": (["train", "mine.png", "--out", "finished"], "holds a finished run"),
    "table into a finished run": (
        ["table", "1", "--data", "images", "--out", "finished"],
        "holds a finished run",
    ),
    "demo into a finished run": (["demo", "--out", "finished"], "holds a finished run"),
    "out holds a configuration": (["train", "mine.png", "--out", "theirs"], "is not a run's"),
    "resume of a finished run": (["resume", "finished"], "finished: the run is finished"),
    "resume of half a configuration": (["resume", "unfinished"], "damaged (source is missing)"),
    "width of nothing": (["train", "mine.npz", "--set", "model.num_heads=3"], "num_heads=3"),
    "k that is text": (["train", "mine.npz", "--set", "k=few"], "k='few' should be"),
    "one class": (["train", "alike.npz"], "alike.npz: every label is 0"),
    "too few nodes": (["train", "few.npz"], "few: 2 labelled nodes of 2 classes are too few"),
    "filter of a graph": (
        ["train", "mine.npz", "--filter", "comb"],
        "`--filter` applies to signals only; mine.npz is a single graph",
    ),
    "lanes of a graph": (
        ["train", "mine.npz", "--lanes", "2"],
        "`--lanes` applies to molecules only; mine.npz is a single graph",
    ),
    "start of a graph": (
        ["train", "mine.npz", "--from", "r"],
        "`--from` applies to molecules only",
    ),
    "start of a node search": (
        ["tune", "mine.npz", "--from", "r"],
        "`--from` applies to molecules only",
    ),
    "task of an image": (
        ["train", "mine.png", "--task", "regression"],
        "`--task` applies to single graphs and molecules only; mine.png is a set of signals",
    ),
    "search in a file": (["tune", "mine.npz", "--out", "text.png"], "is a file, not a folder"),
    "search in a finished run": (["tune", "mine.npz", "--out", "finished"], "holds a finished run"),
    "picture of another kind": (["spectrum", "4x4", "--plot", "p.svg"], "--plot p.svg: pictures"),
}


@pytest.fixture
def scene(here, image) -> Path:
    """Things to go wrong with."""
    (here / "text.png").write_text("not an image\n")
    Image.fromarray(np.zeros((5, 5), dtype=np.uint8)).save(here / "black.png")
    for folder in ("empty", "unfinished", "finished"):
        (here / folder).mkdir()
    for folder in ("unfinished", "finished"):
        (here / folder / "config.yaml").write_text("command: train\n")
    (here / "finished" / "result.json").write_text("{}")
    (here / "finished" / "report.html").write_text("<p>All of it.</p>")
    (here / "theirs").mkdir()
    (here / "theirs" / "config.yaml").write_text("seed: 3\n")
    write_grid_images(here / "images")
    (here / "torn").mkdir()
    (here / "torn" / "zinc.npz").write_bytes(b"PK\x03\x04 and then nothing")
    (here / "torn" / "molpcba.npz").write_bytes(b"PK\x03\x04 and then nothing")
    ring = np.stack([np.arange(20), np.roll(np.arange(20), 1)])
    graph = {"edge_index": ring, "num_nodes": 20, "x": np.eye(20)}
    np.savez(here / "mine.npz", y=np.arange(20) % 2, **graph)
    np.savez(here / "alike.npz", y=np.zeros(20, dtype=int), **graph)
    np.savez(here / "few.npz", y=np.repeat([0, 1, -1], [1, 1, 18]), **graph)
    return here


@pytest.mark.parametrize(("arguments", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_sentence_and_status_2(arguments, message, call, scene):
    before = {path for path in scene.rglob("*") if "cache" not in path.parts}
    status, out, err = call(*arguments)
    assert status == 2
    assert out == ""
    assert message in err
    sentence = err.strip().splitlines()[-1]
    assert sentence.startswith("Error: ")
    assert "Traceback" not in err
    progress = [line for line in err.splitlines() if line and line != sentence]
    assert not [line for line in progress if "Error" in line]
    after = {path for path in scene.rglob("*") if "cache" not in path.parts}
    assert after - before <= {scene / "runs"}  # no run is left half begun


def test_an_option_that_cannot_be_read_is_refused_before_work_begins(call, scene):
    _, _, err = call("spectrum", "4x4", "--k", "few")
    assert err.strip().splitlines() == [
        "Error: --k few: give one number, or two with a comma between them."
    ]


def test_help_names_every_kind_of_recipe(call):
    _, out, _ = call("train", "--help")
    shown = " ".join(out.replace("│", " ").split())
    assert all(kind in shown for kind in ("paper, best,", "default or a", ".yaml file"))
    assert "…" not in shown.replace("molhiv, …", "").replace("gprgnn, …", "")  # nothing is cut


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", "x", "config.yaml: damaged (seed is 'x')"),
        ("source", None, "config.yaml: damaged (source is None)"),
        ("set", None, "config.yaml: damaged (set is None)"),
        ("device", "cuda", "stopped: was started on cuda, which this machine lacks"),
    ],
)
def test_a_configuration_that_no_run_can_have_is_not_resumed(
    key, value, message, call, scene, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    whole = {"command": "train", "source": "mine.npz", "model": "gcn", "recipe": None, "runs": 1}
    whole |= {"set": [], "seed": 0, "device": "cpu", "repeat": "specformer train mine.npz"}
    whole["settings"] = {}
    (scene / "stopped").mkdir()
    (scene / "stopped" / "config.yaml").write_text(yaml.safe_dump({**whole, key: value}))
    status, out, err = call("resume", "stopped", "-q")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize("kind", ["nodes", "molecules"])
def test_half_a_result_is_not_predicted_from(kind, call, scene):
    (scene / "finished" / "result.json").write_text(json.dumps({"kind": kind, "model": "gcn"}))
    said = "Error: finished/result.json: damaged (settings is missing).\n"
    assert call("predict", "finished") == (2, "", f"Reading finished.\n{said}")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_run_that_is_interrupted_says_how_to_go_on(name, call, scene, monkeypatch):
    number = getattr(signal, name)
    save = Checkpoint.save

    def saved(self, tensors):
        save(self, tensors)
        monkeypatch.setattr(Checkpoint, "save", save)
        signal.raise_signal(number)

    monkeypatch.setattr(Checkpoint, "save", saved)
    changes = ("form=paper", "schedule.epochs=1000000", "schedule.patience=1000000")
    words = ["--runs", 1, *(f"--set={change}" for change in changes)]
    status, _, err = call("train", "mine.npz", *words)
    assert status == 128 + number
    assert err.splitlines()[-1] == "Stopped. Go on with: specformer resume runs/mine-specformer"
    run = scene / "runs" / "mine-specformer"
    held = {path.name for path in run.iterdir()}
    assert held == {"config.yaml", "checkpoint.safetensors", "metrics.jsonl"}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_waits_until_an_import_is_done(name, tmp_path, monkeypatch):
    """Modules in C would hide it behind an ImportError."""
    lines = f"import signal\nsignal.raise_signal(signal.{name})\nwhole = True\n"
    (tmp_path / "signalled.py").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)

    def command():
        importlib.import_module("signalled")
        time.sleep(60)

    with pytest.raises((KeyboardInterrupt, SystemExit)), cli._ending_in_order():
        command()
    assert sys.modules.pop("signalled").whole


def test_a_search_that_is_interrupted_says_how_to_go_on(call, scene, monkeypatch):
    def stopped(job, plan, folder, place):
        if plan.trials == 2:
            folder.mkdir(parents=True)
            (folder / "trials.jsonl").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("specformer.tasks.tune.tune", stopped)
    assert call("tune", "mine.npz", "--trials", 1, "--out", "a search", "-q") == (130, "", "")
    status, _, err = call("tune", "mine.npz", "--trials", 2, "--out", "a search", "-q")
    assert status == 130
    assert err == ("Stopped. Go on with: specformer tune mine.npz --trials 2 --out 'a search' -q\n")


def test_a_table_that_is_interrupted_says_how_to_go_on(call, here, monkeypatch):
    def stopped(*, begin, **options):
        begin()
        raise KeyboardInterrupt

    monkeypatch.setattr("specformer.paper.tables.table3", stopped)
    said = "Stopped. Go on with: specformer table 3 -q --out runs/table-3\n"
    assert call("table", 3, "-q") == (130, "", said)
    assert call("table", 3, "-q", "--out", "runs/table-3") == (130, "", said)
    assert [path.name for path in (here / "runs").iterdir()] == ["table-3"]


@pytest.mark.parametrize(
    "arguments",
    [["demo"], ["demo", "--out", "a/b"], ["table", "2"], ["tune", "mine.npz"], ["train", "cora"]],
    ids=" ".join,
)
def test_a_folder_that_may_not_be_written_to_is_refused_before_work_begins(
    arguments, call, scene, monkeypatch
):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert err.splitlines()[1:] == ["Error: .: may not be written to."]  # after the first words


def test_two_processes_do_not_run_in_one_folder(call, scene):
    config = "command: train\nsource: mine.npz\nmodel: gcn\nrecipe: null\nruns: 1\nset: []\n"
    config += "seed: 0\ndevice: cpu\nrepeat: specformer train mine.npz\nsettings: {}\n"
    (scene / "unfinished" / "config.yaml").write_text(config)
    holds = "import sys; from pathlib import Path; from specformer.files.atomic import locked\n"
    holds += "with locked(Path('unfinished')): print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", holds],
        env=environment(scene),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "held\n"
    refused = (2, "", "Error: unfinished: another process is at work here.\n")
    again = ["train", "mine.npz", "--model", "gcn", "--set", "schedule.epochs=1", "-q"]
    assert call("resume", "unfinished", "-q") == refused
    assert call(*again, "--out", "unfinished") == refused
    assert (scene / "unfinished" / "config.yaml").read_text() == config
    other.kill()
    other.communicate()
    assert call(*again, "--out", "unfinished")[0] == 0  # the folder was let go of


def test_a_demo_that_is_interrupted_leaves_nothing(call, here, monkeypatch):
    seen = []

    def stopped(place, seed):
        seen.append(seed)
        raise KeyboardInterrupt

    monkeypatch.setattr("specformer.paper.demo.demo", stopped)
    for out in ([], ["--out", "mine"]):
        assert call("demo", "--quiet", *out)[0] == 130
    assert seen == [0, 0]
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["unknown model", "missing graph", "out is finished"])
def test_quiet_errors_are_that_one_line(name, call, scene):
    arguments, message = ERRORS[name]
    for switch in ("--quiet", "--json"):
        status, out, err = call(*arguments, switch)
        assert (status, out) == (2, "")
        assert err.count("\n") == 1
        assert message in err


def test_a_name_that_no_report_can_hold_is_refused_before_work_begins(call, scene):
    for arguments in (["train", "mine\udcff.npz"], ["train", "mine.npz", "--out", "a\udcff"]):
        status, out, err = call(*arguments)
        assert (status, out) == (2, "")
        assert re.fullmatch(r"Error: '\w+\\udcff(\.npz)?': is not UTF-8; use another name\.\n", err)
    assert not (scene / "runs").exists()


def test_an_error_in_a_process_of_its_own(tmp_path):
    status, out, err = run(tmp_path, "spectrum", "absent.npz", "--json")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("Error: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["train"],
        ["fly"],
        ["train", "mine.png", "--no-such-option"],
        ["demo", "--seed", "x"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2_without_traceback(arguments, call, scene):
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert "Usage" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("exhaust", "asked"),
    [
        (lambda: torch.empty(2**55), " for 144115188075855872 bytes more"),
        (lambda: np.empty(2**55), " for 256. PiB more"),
        (lambda: [0] * 2**60, ""),
    ],
    ids=["torch", "numpy", "python"],
)
def test_memory_that_runs_out_is_one_sentence(exhaust, asked, call, monkeypatch):
    monkeypatch.setattr("specformer.datasets.registry.survey", lambda data: exhaust())
    status, out, err = call("datasets")
    assert (status, out) == (2, "")
    assert re.fullmatch(f"Error: not enough memory{asked}; free some, or ask for less.\n", err)


def test_a_mistake_of_ours_is_a_traceback(call, monkeypatch):
    def mistaken(data):
        raise RuntimeError("ours")

    monkeypatch.setattr("specformer.datasets.registry.survey", mistaken)
    with pytest.raises(RuntimeError, match="ours"):
        call("datasets")


def test_names_do_not_reach_the_terminal_as_commands(call, here):
    name = "run\x1b[31m[bold]"
    status, _, err = call("report", name)
    assert (status, err[:31]) == (2, "Error: run\\x1b[31m[bold]: there")
    run = RunFolder.create(here / name, {"command": "demo"})
    run.finish("demo", {}, {}, command="demo", seed=0, device=torch.device("cpu"))
    status, out, _ = call("verify", name)
    assert status == 0
    assert "\x1b" not in out
    assert "run\\x1b[31m[bold]" in out


def test_what_is_named_is_not_echoed_without_end(call):
    status, _, err = call("report", "x" * 100_000)
    assert status == 2
    assert len(err) < 2_100
    assert err.startswith("Error: xxx")
    assert err.endswith(": File name too long.\n")


def test_files_that_never_end_are_not_read(call, here):
    run = RunFolder.create(here / "run", {"command": "demo"})
    run.finish("demo", {}, {}, command="demo", seed=0, device=torch.device("cpu"))
    for name in ("result.json", "edges.csv"):
        (here / "run" / name).unlink(missing_ok=True)
        (here / "run" / name).symlink_to("/dev/zero")
    (here / "run" / "checksums.json").unlink()
    status, _, err = call("report", "run")
    assert (status, err.count("not a plain file")) == (2, 1)
    status, _, err = call("inspect", "run")
    assert (status, err.count("is a device or a pipe")) == (2, 1)
