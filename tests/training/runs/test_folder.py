"""Run folders: what is written comes back, what is finished stays, what is damaged is refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from specformer import Specformer
from specformer.cli.command_run import portable_command
from specformer.errors import RunError
from specformer.files.documents import sealed
from specformer.training.runs.folder import RunFolder

CONFIG = {"command": "train", "seed": 3, "set": ["schedule.epochs=3"], "out": None}
ROWS = [{"epoch": 0, "loss": 1.5}, {"epoch": 10, "loss": None}]
RESULT = {"kind": "filters", "seconds": 1.5, "rows": [{"mean": 0.1}]}
ARRAYS = {"curve": np.linspace(0, 1, 5), "titles": np.array(["a", "ü"])}


@pytest.fixture
def finished(tmp_path) -> RunFolder:
    run = RunFolder.create(tmp_path / "run", CONFIG)
    run.write_metrics(ROWS)
    run.write_outputs(ARRAYS)
    run.write_result(RESULT)
    return run


def test_round_trip(finished):
    again = RunFolder.open(finished.path)
    assert again.config() == CONFIG
    assert again.metrics() == ROWS
    assert again.result() == RESULT
    outputs = again.outputs()
    assert outputs.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(outputs[name], array)
    files = {path.name for path in finished.path.iterdir()}
    assert files == {"config.yaml", "metrics.jsonl", "outputs.npz", "result.json"}


def test_a_finished_run_keeps_no_checkpoint(tmp_path):
    run = RunFolder.create(tmp_path / "run", CONFIG)
    for name in ("checkpoint.safetensors", "checkpoint-000.safetensors", "other.safetensors"):
        (run.path / name).write_bytes(b"state")
    run.finish("filters", RESULT, {}, command="test", seed=0, device=torch.device("cpu"))
    assert [path.name for path in run.path.glob("*.safetensors")] == ["other.safetensors"]


def test_a_finished_run_is_refused_and_left_alone(finished):
    before = {path: path.read_bytes() for path in finished.path.iterdir()}
    with pytest.raises(RunError, match="holds a finished run; choose another --out"):
        RunFolder.create(finished.path, {"seed": 4})
    assert {path: path.read_bytes() for path in finished.path.iterdir()} == before


def test_an_unfinished_run_starts_again(tmp_path):
    RunFolder.create(tmp_path / "run", {**CONFIG, "seed": 1})
    assert RunFolder.create(tmp_path / "run", {**CONFIG, "seed": 2}).config()["seed"] == 2


@pytest.mark.parametrize("content", ["seed: 3\n", "not: [yaml", ""])
def test_a_configuration_of_something_else_is_left_alone(tmp_path, content):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(RunError, match=r"config\.yaml: (is not a run's|missing or damaged)"):
        RunFolder.create(tmp_path, CONFIG)
    assert (tmp_path / "config.yaml").read_text() == content


def test_only_a_run_that_came_to_nothing_is_withdrawn(tmp_path, finished):
    RunFolder.create(tmp_path / "nothing", CONFIG).withdraw()
    assert not (tmp_path / "nothing").exists()
    finished.withdraw()
    assert finished.result() == RESULT


def test_a_file_is_no_place_for_a_run(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match="file: is a file, not a folder"):
            RunFolder.create(path, CONFIG)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_stopped_run_keeps_its_settings(tmp_path):
    config = {**CONFIG, "command": "train", "device": "cuda"}
    run = RunFolder.create(tmp_path / "run", config)
    (run.path / "checkpoint-000.safetensors").write_bytes(b"state")
    with pytest.raises(RunError, match=r"stopped run of other settings; .* resume .*/run, or"):
        RunFolder.create(run.path, {**config, "seed": 2})
    with pytest.raises(RunError, match="stopped run of other settings"):
        RunFolder.create(run.path, {**config, "filter": "comb"})
    assert run.config() == config
    assert RunFolder.create(run.path, {**config, "device": "cpu"}).config()["device"] == "cpu"


def test_runs_that_start_together_get_folders_of_their_own(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda n: RunFolder.fresh(tmp_path / "runs", "demo", {"seed": n}), range(40))
        )
    assert len({run.path for run in found}) == 40
    assert [run.config()["seed"] for run in found] == list(range(40))


def test_fresh_names_count_up(tmp_path):
    names = [RunFolder.fresh(tmp_path / "runs", "demo", CONFIG).path.name for _ in range(3)]
    assert names == ["demo", "demo-2", "demo-3"]


def test_only_a_run_is_opened(tmp_path):
    with pytest.raises(RunError, match=r"not a run folder \(config.yaml is missing\)\.$"):
        RunFolder.open(tmp_path)
    Specformer(3, 8, 2).save_pretrained(tmp_path)
    with pytest.raises(RunError, match=r"; load the model in it by its class's from_pretrained"):
        RunFolder.open(tmp_path)
    with pytest.raises(RunError, match=r"runs/market: there is no such run folder\.$"):
        RunFolder.open(tmp_path / "runs" / "market")
    RunFolder.create(tmp_path / "runs" / "market-specformer", CONFIG)
    with pytest.raises(RunError, match=r"did you mean .*/runs/market-specformer\?$"):
        RunFolder.open(tmp_path / "runs" / "market")


def test_an_unfinished_run_says_so(tmp_path):
    run = RunFolder.create(tmp_path / "run", CONFIG)
    assert run.metrics() == []
    with pytest.raises(RunError, match=r"not finished \(result.json is missing\)"):
        run.result()
    with pytest.raises(RunError, match=r"outputs.npz: missing or damaged"):
        run.outputs()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.yaml", b"seed: [1,"),
        ("config.yaml", b"- just\n- a list"),
        ("config.yaml", b"\xff\xfe\x00"),
        ("metrics.jsonl", b'{"epoch": 0}\n{"epo'),
        ("metrics.jsonl", b"\xff\xfe"),
        ("outputs.npz", b""),
        ("outputs.npz", b"PK\x03\x04 and then nothing"),
        ("result.json", b'{"kind": '),
        ("result.json", b"[1, 2]"),
        ("result.json", b"\xff\xfe"),
    ],
)
def test_damage_is_named(finished, name, content):
    (finished.path / name).write_bytes(content)
    read = {
        "config.yaml": finished.config,
        "metrics.jsonl": finished.metrics,
        "outputs.npz": finished.outputs,
        "result.json": finished.result,
    }[name]
    with pytest.raises(RunError, match=name):
        read()


@pytest.mark.parametrize(
    ("name", "was", "becomes"),
    [
        ("config.yaml", b"seed: ", b"seed: 1"),
        ("metrics.jsonl", b'"epoch": 0', b'"epoch": 1'),
        ("result.json", b'"kind": "', b'"kind": "x'),
    ],
)
def test_documents_know_what_they_held(tmp_path, name, was, becomes):
    """Of a run under way too, which has no ``checksums.json`` yet."""
    run = RunFolder.create(tmp_path / "run", {"command": "train", "seed": 3})
    run.append_metrics({"epoch": 0, "loss": float("nan")})
    if name == "result.json":
        run.write_result({"kind": "nodes"})
    read = {"config.yaml": run.config, "metrics.jsonl": run.metrics, "result.json": run.result}
    assert read[name]()
    path = run.path / name
    assert was in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(was, becomes))
    with pytest.raises(RunError, match=rf"{name}: .*altered or damaged; put it back"):
        read[name]()


def test_pickles_are_never_loaded(finished):
    np.savez(finished.path / "outputs.npz", x=np.array([{}], dtype=object))
    with pytest.raises(RunError, match=r"outputs\.npz"):
        finished.outputs()


def test_an_npy_file_is_no_archive(finished):
    with (finished.path / "outputs.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(RunError, match=r"outputs\.npz"):
        finished.outputs()


def test_an_interrupted_write_leaves_the_old_file(finished):
    def rows():
        yield {"epoch": 0}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finished.write_metrics(rows())
    with pytest.raises(TypeError):
        finished.write_result({"kind": object()})
    with pytest.raises(ValueError, match="nan"):
        finished.write_result({"mean": float("nan")})
    with pytest.raises(AttributeError):
        finished.write_outputs({"x": _Breaks()})
    assert finished.metrics() == ROWS
    assert finished.result() == RESULT
    np.testing.assert_array_equal(finished.outputs()["curve"], ARRAYS["curve"])
    assert not list(finished.path.glob(".*"))


class _Breaks:
    def __array__(self, *arguments, **options):
        raise AttributeError("no array here")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["demo"], "specformer demo"),
        (["demo", "--out", "a b", "--seed", "3"], "specformer demo --seed 3"),
        (["table", "1", "--data=/here", "--cache", "/c", "-q"], "specformer table 1"),
        (["train", "my photo.png", "--json"], "specformer train 'my photo.png'"),
        (["train", "x", "--set", "a=1", "--quiet"], "specformer train x --set a=1"),
        # A value that looks like a switch goes with its option.
        (["train", "x", "--out", "--json", "--seed", "1"], "specformer train x --seed 1"),
    ],
)
def test_portable_command(arguments, command):
    assert portable_command(arguments) == command


@pytest.mark.parametrize(
    ("name", "read"),
    [("result.json", "result"), ("metrics.jsonl", "metrics"), ("config.yaml", "config")],
)
def test_files_that_are_nested_without_end_are_refused(finished, name, read):
    (finished.path / name).write_text("[" * 100_000)
    with pytest.raises(RunError, match=rf"{name}: .*damaged \(it is nested more than 50 deep"):
        getattr(finished, read)()


@pytest.fixture
def ended(tmp_path) -> RunFolder:
    run = RunFolder.create(tmp_path / "run", CONFIG)
    run.write_models([Specformer(2, 4, 2, num_heads=1)])
    run.finish("nodes", RESULT, ARRAYS, command="test", seed=0, device=torch.device("cpu"))
    return run


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("result.json", RunFolder.result),
        ("metrics.jsonl", RunFolder.metrics),
        ("config.yaml", RunFolder.config),
        ("outputs.npz", RunFolder.outputs),
    ],
)
def test_a_file_that_was_altered_after_the_run_is_refused(ended, name, read):
    read(ended)
    added = json.dumps(sealed({})).encode() if name == "metrics.jsonl" else b" "
    (ended.path / name).write_bytes((ended.path / name).read_bytes() + added)
    with pytest.raises(RunError, match=rf"{name}: was altered .* or remove checksums\.json to use"):
        read(ended)
    (ended.path / "checksums.json").unlink()
    read(ended)


def test_what_is_intact_can_be_asked(ended, call):
    model = {f"model/000/{name}" for name in ("config.json", "model.safetensors", "README.md")}
    files = {"config.yaml", "metrics.jsonl", "outputs.npz", "result.json"} | model
    assert ended.verified() == dict.fromkeys(files, "intact")
    status, out, err = call("verify", ended.path, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["intact"]
    (ended.path / "model" / "000" / "config.json").write_text("{}")
    status, out, err = call("verify", ended.path, "--json")
    assert (status, json.loads(out)["intact"]) == (2, False)
    assert err == f"Error: {ended.path}: model/000/config.json is altered.\n"
    (ended.path / "checksums.json").write_text("{")
    with pytest.raises(RunError, match=r"checksums\.json: damaged"):
        ended.result()
    (ended.path / "checksums.json").unlink()
    with pytest.raises(RunError, match="it cannot be verified"):
        ended.verified()
    (ended.path / "result.json").unlink()
    with pytest.raises(RunError, match="the run is not finished; go on with specformer resume"):
        ended.verified()
