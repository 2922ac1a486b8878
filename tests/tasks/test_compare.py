"""Comparing models: the same splits, what is kept, what is gone on with, who fails."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from tests.tasks.jobs import predict_with, train_on
from tests.tasks.trials_file import trials
from torch_geometric.data import Data

import specformer.tasks.compare as comparing
from specformer.datasets import csbm, make_splits
from specformer.errors import ConfigError, RunError
from specformer.graphs import read_graph, write_npz
from specformer.reports.standings import verdict
from specformer.tasks.compare import compare
from specformer.tasks.contest import Comparison
from specformer.tasks.resolve import read_job
from specformer.training.runs.folder import RunFolder

FAST = ["schedule.epochs=8"]
WILD = [*FAST, "schedule.learning_rate=1e38"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "blocks.npz"
    write_npz(path, csbm(0.8, num_nodes=120, num_features=12, seed=3))
    return path


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def compared(graph: Path, tmp_path_factory) -> Comparison:
    out = tmp_path_factory.mktemp("runs") / "found"
    return compare(graph, ["specformer", "gcn", "mlp"], runs=4, changes=FAST, device="cpu", out=out)


def test_rows_are_those_of_training_each_model_alone(graph: Path, compared: Comparison) -> None:
    assert {row["model"] for row in compared.rows} == {"specformer", "gcn", "mlp"}
    for row in compared.rows:
        alone, _ = train_on(graph, model=row["model"], runs=4, assignments=FAST)
        assert row["test"]["values"] == pytest.approx(alone["test"]["values"])
        assert row["val"]["values"] == pytest.approx(alone["val"]["values"])
        assert (row["recipe"], row["parameters"]) == ("default", alone["parameters"])
    means = [row["test"]["mean"] for row in compared.rows]
    assert means == sorted(means, reverse=True)


def test_differences_are_nadeau_and_bengios(graph: Path, compared: Comparison) -> None:
    values = {row["model"]: np.array(row["test"]["values"]) for row in compared.rows}
    split = make_splits(csbm(0.8, num_nodes=120, num_features=12, seed=3), "auto", 1, 0)[0]
    overlap = split.test.sum() / split.train.sum()
    assert len(compared.differences) == 3
    for each in compared.differences:
        gaps = values[each["model"]] - values[each["against"]]
        t = gaps.mean() / np.sqrt((1 / 4 + overlap) * gaps.var(ddof=1))
        assert each["mean"] == pytest.approx(gaps.mean())
        assert each["p"] == pytest.approx(2 * stats.t.sf(abs(t), 3))
        assert each["p"] <= each["p_holm"] <= 1.0
    best, *others = compared.rows
    assert best["difference"] is None
    for row in others:
        assert row["difference"]["against"] == best["model"]
        gap = row["test"]["mean"] - best["test"]["mean"]
        assert row["difference"]["mean"] == pytest.approx(gap)


def test_the_folder_holds_a_run_of_every_model(compared: Comparison) -> None:
    result = json.loads((compared.run_dir / "result.json").read_text())
    assert result["rows"] == compared.rows
    assert set(RunFolder(compared.run_dir).verified().values()) == {"intact"}
    for row in compared.rows:
        run = RunFolder.open(compared.run_dir / row["folder"])
        assert (read_job(run).model, run.result()["test"]) == (row["model"], row["test"])
        assert predict_with(run).rows == 120
        assert (run.path / "report.html").is_file()


def test_the_files_of_all_models_are_verified(compared: Comparison, tmp_path: Path) -> None:
    found = RunFolder(shutil.copytree(compared.run_dir, tmp_path / "copy"))
    weights = "gcn/model/000/model.safetensors"
    assert found.verified()[weights] == "intact"
    content = (found.path / weights).read_bytes()
    (found.path / weights).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert found.verified()[weights] == "altered"
    (found.path / "gcn/checksums.json").unlink()  # or an altered model would be called intact
    assert found.verified()["gcn/checksums.json"] == "missing"


def test_the_report_and_the_text_say_which_hold(compared: Comparison) -> None:
    page, text = compared.report.read_text(), str(compared)
    for row in compared.rows:
        assert f'<a href="{row["folder"]}/report.html">' in page
        assert f">{row['recipe']}<" in page
    assert page.count(">Recipe<") == 1  # the standings alone have the costs
    assert "Which differences hold" in page
    assert "All pairs: the model of the row minus that of the column" in page
    assert text.splitlines()[0].startswith("model ")
    assert "paired t-test over 4 splits, corrected for the training data they share" in text
    assert "paired t-test over 4 splits" in page


def test_a_notebook_shows_the_table(compared: Comparison) -> None:
    shown = compared._repr_html_()
    assert shown.count("<tr>") == 4
    assert "&lt; 0.05" in shown  # no text is taken for a tag


def test_a_graph_in_memory_is_kept_in_the_folder(graph: Path, tmp_path: Path) -> None:
    data = Data(torch.randn(60, 4), torch.randint(60, (2, 200)), y=torch.arange(60) % 2)
    options = {"runs": 2, "changes": FAST, "device": "cpu"}
    with pytest.raises(ConfigError, match="out: name a folder"):
        compare(data, ["gcn", "mlp"], **options)
    found = compare(data, ["gcn", "mlp"], out=tmp_path / "out", **options)
    assert found.result["dataset"] == "data"
    run = RunFolder.open(tmp_path / "out" / "gcn")
    assert predict_with(run).rows == 60
    before = (run.path / "result.json").read_bytes()
    compare(data, ["gcn", "mlp"], out=tmp_path / "out", **options)
    assert (run.path / "result.json").read_bytes() == before


def test_what_is_there_is_not_trained_again(graph: Path, compared: Comparison) -> None:
    written = {
        row["model"]: (compared.run_dir / row["folder"] / "result.json").read_bytes()
        for row in compared.rows
    }
    left = compared.run_dir / "gcn" / "checkpoint.safetensors"  # by a kill after the result
    left.write_bytes(b"")
    more = compare(
        graph,
        ["specformer", "gcn", "mlp", "gprgnn"],
        runs=4,
        changes=FAST,
        device="cpu",
        against="mlp",
        out=compared.run_dir,
    )
    assert more.result["seconds"] > sum(row["seconds"] for row in compared.rows)
    assert {row["model"] for row in more.rows} == {*written, "gprgnn"}
    assert not left.exists()
    for model, content in written.items():
        assert (compared.run_dir / model / "result.json").read_bytes() == content
    same = {row["model"]: row["difference"] for row in more.rows}
    assert same["mlp"] is None
    assert {row["against"] for row in same.values() if row} == {"mlp"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"runs": 3}, "runs: 4 there, 3"),
        ({"seed": 1}, "seed: 0"),
        ({"changes": ["epochs=9"]}, "set: "),
    ],
)
def test_a_folder_of_other_settings_is_refused(
    graph: Path, compared: Comparison, changed: dict, told: str
) -> None:
    options = {"runs": 4, "seed": 0, "changes": FAST} | changed
    with pytest.raises(RunError, match=f"comparison of other settings \\({told}"):
        compare(graph, ["gcn", "mlp"], device="cpu", out=compared.run_dir, **options)
    assert (compared.run_dir / "result.json").exists()


def test_runs_of_other_commands_are_refused(graph: Path, compared: Comparison) -> None:
    with pytest.raises(RunError, match="is not a comparison's folder"):
        compare(graph, ["gcn", "mlp"], changes=FAST, out=compared.run_dir / "gcn")


@pytest.mark.parametrize("place", ["out", "out/gcn"])
def test_files_of_others_stay(graph: Path, tmp_path: Path, place: str) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("theirs: true\n")
    with pytest.raises(RunError, match=r"config.yaml: is not a run's|not a comparison's folder"):
        compare(graph, ["gcn", "gcn:default"], runs=1, changes=WILD, out=tmp_path / "out")
    assert (folder / "config.yaml").read_text() == "theirs: true\n"


def test_changed_data_are_refused(graph: Path, tmp_path: Path) -> None:
    options = {"runs": 2, "changes": FAST, "out": tmp_path / "out"}
    source = tmp_path / "mine.npz"
    source.write_bytes(graph.read_bytes())
    found = compare(source, ["gcn", "mlp"], **options)
    kept = (found.run_dir / "result.json").read_bytes()
    other = read_graph(source)
    write_npz(source, replace(other, x=2 * other.x))  # the splits stay the same
    with pytest.raises(RunError, match="gcn: was trained on other data than those of"):
        compare(source, ["gcn", "mlp", "gprgnn"], **options)
    assert (found.run_dir / "result.json").read_bytes() == kept


def test_a_difference_that_is_always_the_same_is_not_called_none() -> None:
    rows = [
        {"name": name, "model": name, "recipe": "default", "test": {"mean": mean, "ci95": 0.0}}
        for name, mean in (("gcn", 1.0), ("mlp", 0.5))
    ]
    rows[0]["difference"] = None
    rows[1]["difference"] = {"mean": -0.5, "holds": None, "p_holm": None}
    result = {"dataset": "g", "metric": "accuracy", "runs": 2, "rows": rows, "against": "gcn"}
    told = verdict({**result, "is_one_split": False, "failures": []})
    assert told.endswith("To MLP the difference is the same in every split: there is no test.")
    assert "told apart" not in told


def test_equal_models_have_one_order_everywhere(tmp_path: Path) -> None:
    graph = csbm(0.8, num_nodes=120, num_features=2, seed=3)
    classes = np.eye(2, dtype=np.float32)[graph.y]
    write_npz(tmp_path / "easy.npz", replace(graph, x=classes))
    for models in (["mlp", "gat", "gcn"], ["gcn", "mlp", "gat"]):
        found = compare(
            tmp_path / "easy.npz", models, runs=2, changes=["schedule.epochs=60"], device="cpu",
            out=tmp_path / models[0],
        )  # fmt: skip
        assert {row["test"]["mean"] for row in found.rows} == {1.0}
        assert [row["model"] for row in found.rows] == ["gat", "gcn", "mlp"]
        pairs = [(each["model"], each["against"]) for each in found.differences]
        assert pairs == [("gat", "gcn"), ("gat", "mlp"), ("gcn", "mlp")]
        picture = found.report.read_text().split("best on top")[1].split("</svg>")[0]
        assert re.findall(r">(GAT|GCN|MLP)</text>", picture) == ["MLP", "GCN", "GAT"]  # upwards
        told = verdict(found.result)
        assert "GAT, GCN and MLP share the best test accuracy, 100.0%." in told
        assert "GAT cannot be told apart from GCN and MLP (" in told


def test_a_graph_in_memory_does_not_replace_another(tmp_path: Path) -> None:
    options = {"runs": 2, "changes": FAST, "out": tmp_path / "out"}
    one = csbm(0.8, num_nodes=60, num_features=12, seed=0)
    found = compare(one, ["gcn", "mlp"], **options)
    assert compare(one, ["gcn", "mlp"], **options).rows == found.rows
    kept = (tmp_path / "out" / "data.npz").read_bytes()
    with pytest.raises(RunError, match="holds a comparison on another graph"):
        compare(csbm(0.8, num_nodes=60, num_features=12, seed=1), ["gcn", "mlp"], **options)
    assert (tmp_path / "out" / "data.npz").read_bytes() == kept


def test_a_model_that_fails_is_left_out_and_tried_again(
    graph: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe, out = tmp_path / "wild.yaml", tmp_path / "out"
    recipe.write_text("schedule: {learning_rate: 1.0e+38}\n")
    options = {"runs": 2, "changes": FAST, "device": "cpu", "out": out}
    names = ["gcn", f"mlp:{recipe}", "mlp"]
    found = compare(graph, names, **options)
    assert {row["name"] for row in found.rows} == {"gcn", "mlp"}
    (failure,) = found.result["failures"]
    assert failure["model"] == f"mlp:{recipe}"
    assert "training diverged" in failure["error"]
    assert "is left out: training diverged" in caplog.text
    assert "could not be trained" in found.report.read_text()
    recipe.write_text("schedule: {learning_rate: 0.02}\n")
    for checkpoint in (out / "mlp-wild").glob("checkpoint*"):
        checkpoint.unlink()
    again = compare(graph, names, **options)
    assert again.result["failures"] == []
    assert {row["name"] for row in again.rows} == set(names)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
            "not enough memory",
        ),
        (OSError(28, "No space left on device", "x/model"), "x/model: No space left on device."),
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug"),
    ],
)
def test_whatever_stops_one_model_the_others_go_on(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    train = comparing.train

    def failing(job, *arguments, **options):
        if job.model == "gcn":
            raise error
        return train(job, *arguments, **options)

    monkeypatch.setattr(comparing, "train", failing)
    found = compare(graph, ["gcn", "mlp"], runs=2, changes=FAST, out=tmp_path / "out")
    assert [row["model"] for row in found.rows] == ["mlp"]
    assert found.result["failures"][0]["error"].startswith(told)
    assert not (tmp_path / "out" / "gcn").exists()
    assert "gcn could not be trained" in str(found)


def test_nothing_is_left_where_no_model_trains(graph: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no model could be trained"):
        compare(graph, ["gcn", "mlp"], runs=2, changes=WILD, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_search_has_its_seconds_and_is_gone_on_with(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = {"runs": 2, "seconds": 1.5, "changes": FAST, "device": "cpu", "out": out}
    found = compare(graph, ["gcn", "mlp"], **options)
    for row in found.rows:
        tried = trials(out / "search" / row["folder"])
        assert row["recipe"] == "default, tuned"
        assert row["search"]["trials"] == len(tried) >= 1
        assert row["search"]["seconds"] == pytest.approx(sum(each["seconds"] for each in tried))
        best = max(tried, key=lambda each: each["score"])
        settings = read_job(RunFolder(out / row["folder"])).settings
        assert settings.schedule.learning_rate == best["recipe"]["schedule"]["learning_rate"]
        assert {each["splits"] for each in tried} == {2}
    # A search whose time is up begins no further trial when it is gone on with.
    for name in ("result.json", "gcn/result.json", "search/gcn/best.yaml"):
        (out / name).unlink()
    before = trials(out / "search" / "gcn")
    entry = json.dumps({key: value for key, value in before[0].items() if key != "checksum"})
    spent = entry.replace(f'"seconds": {before[0]["seconds"]}', '"seconds": 2.0')
    lines = (out / "search" / "gcn" / "trials.jsonl").read_text().splitlines()
    (out / "search" / "gcn" / "trials.jsonl").write_text("\n".join([spent, *lines[1:]]) + "\n")
    compare(graph, ["gcn", "mlp"], **options)
    assert len(trials(out / "search" / "gcn")) == len(before)


def test_one_split_says_nothing(graph: Path, tmp_path: Path) -> None:
    found = compare(graph, ["gcn", "mlp"], runs=1, changes=FAST, out=tmp_path / "out")
    (difference,) = found.differences
    assert (difference["ci95"], difference["p"], difference["holds"]) == (None, None, None)
    assert "With one split nothing can be said" in str(found)
    assert "With one split nothing can be said" in found.report.read_text()


def test_runs_of_one_split_are_told_from_splits(tmp_path: Path) -> None:
    graph = csbm(0.8, num_nodes=120, num_features=12, seed=3)
    split = make_splits(graph, "auto", 1, 0)[0]
    masks = {"train_mask": split.train, "val_mask": split.val, "test_mask": split.test}
    write_npz(tmp_path / "own.npz", replace(graph, **masks))
    found = compare(
        tmp_path / "own.npz", ["gcn", "mlp"], runs=3, changes=FAST, out=tmp_path / "out"
    )
    assert (found.result["is_one_split"], found.result["overlap"]) == (True, 0.0)
    values = [row["test"]["values"] for row in found.rows]
    assert found.differences[0]["p"] == pytest.approx(stats.ttest_rel(*values).pvalue)
    assert "it says nothing of other splits" in str(found)


@pytest.mark.parametrize(
    ("models", "changes", "message"),
    [
        (["gcn", "gnc"], FAST, "unknown model 'gnc'"),
        (["gcn"], FAST, "a comparison needs at least two"),
        (["gcn", "specformer:bset"], FAST, "unknown recipe 'bset'"),
        (["specformer:a/x.yaml", "specformer:b/x.yaml"], FAST, "would share a folder"),
        (["specformer", "gcn"], ["model.num_heads=2"], "would change nothing"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    graph: Path, tmp_path: Path, models: list[str], changes: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        compare(graph, models, changes=changes, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_signals_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="on nodes and on molecules only"):
        compare("photographs", out=tmp_path / "out")


def test_molecules_by_their_error(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    rows = [f"{'C' * n}{'O' * m},{n}" for n in range(1, 9) for m in range(1, 5)]
    (tmp_path / "chains.csv").write_text("\n".join(["smiles,carbons", *rows]) + "\n")
    changes = ["schedule.epochs=3", "model.hidden_channels=8", "model.num_layers=1"]
    found = compare(
        tmp_path / "chains.csv",
        ["specformer", "gin"],
        changes=changes,
        task="regression",
        device="cpu",
        out=tmp_path / "out",
    )
    assert (found.result["metric"], found.result["runs"]) == ("rmse", 3)
    for row in found.rows:
        options = {"model": row["model"], "runs": 3, "task": "regression"}
        alone, _ = train_on(tmp_path / "chains.csv", assignments=changes, **options)
        assert row["test"]["values"] == pytest.approx(alone["test"]["values"])
    best, other = found.rows
    assert best["test"]["mean"] <= other["test"]["mean"]  # an error: less is better
    assert other["difference"]["mean"] >= 0
    assert "has the best test RMSE" in str(found)
    page = found.report.read_text()
    assert "Learning from many graphs" in page
    assert "Which differences hold" in page
    run = RunFolder.open(found.run_dir / "gin")
    assert predict_with(run, smiles=["CCO"]).rows == 1


@pytest.mark.parametrize("change", [{"val": {}}, {"test": {"mean": 1}}, {"parameters": "many"}])
def test_a_kept_run_of_another_shape_is_left_out_with_a_sentence(graph, tmp_path, change) -> None:
    def again() -> Comparison:
        models = ["gcn", "mlp"]
        return compare(graph, models, runs=2, changes=FAST, device="cpu", out=tmp_path / "found")

    again()
    run = RunFolder(tmp_path / "found" / "gcn")
    (run.path / "checksums.json").unlink()
    run.write_result(run.result() | change)
    found = again()
    assert [row["model"] for row in found.rows] == ["mlp"]
    assert "damaged" in found.result["failures"][0]["error"]
