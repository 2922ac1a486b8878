"""Table 3: rows that were run, the paper's figures for the rest, the best by each metric."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.jobs import run_table

from benchmarks.ledger import add, check, markdown_table
from specformer.errors import ConfigError
from specformer.graphs import GraphSet, write_graph_set
from specformer.paper.published import TABLE_3
from specformer.paper.recorded import recorded_rows
from specformer.paper.table_rows import table_grid, with_cited
from specformer.paper.tables import GRAPH_TABLE, _graph_rows, table3
from specformer.training.evaluation.summaries import summary
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
COMMON = {"device": CPU, "progress": Silent()}
FAST = ["model.hidden_channels=8", "model.num_heads=2", "model.num_layers=1", "schedule.epochs=1"]


def row(model: str, dataset: str, mean: float, recipe: str = "paper") -> dict:
    metric = {"zinc": "mae", "molhiv": "rocauc", "molpcba": "ap"}[dataset]
    keys = {"model": model, "dataset": dataset, "mean": mean, "recipe": recipe, "metric": metric}
    return {**keys, "ci95": None, "runs": 1, "paper": 0.5, "parameters": 10, "seconds": 1.0}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file called zinc."""
    random = np.random.default_rng(0)
    chains = GraphSet(
        np.full(30, 3),
        np.full(30, 2),
        np.tile([[0, 1], [1, 2]], 30),
        node_feat=random.integers(0, 28, (90, 1)),
        edge_feat=random.integers(0, 4, (60, 1)),
        y=random.standard_normal((30, 1)),
    )
    parts = dict(
        zip(("train_idx", "valid_idx", "test_idx"), np.split(np.arange(30), 3), strict=True)
    )
    write_graph_set(tmp_path / "zinc.npz", replace(chains, **parts))
    return tmp_path


def test_the_paper_has_thirteen_models() -> None:
    assert len(TABLE_3) == 13
    assert TABLE_3["specformer"] == {
        "zinc": (0.066, 0.003), "molhiv": (0.7889, 0.0124), "molpcba": (0.2972, 0.0023)
    }  # fmt: skip
    assert "molhiv" not in TABLE_3["gatedgcn"]
    assert "molpcba" not in TABLE_3["cin"]


def test_models_not_run_are_cited() -> None:
    rows = with_cited(3, [row("specformer", "zinc", 0.07), row("gcn", "zinc", 0.3)])
    assert {found["dataset"] for found in rows} == {"zinc"}
    cited = [found for found in rows if found["recipe"] == "cited"]
    assert len(cited) == 11  # thirteen, less ours and the one that was run
    assert all(found["runs"] == 0 and found["parameters"] is None for found in cited)
    assert rows[-1]["model"] == "specformer"
    header, cells, bold = table_grid(3, rows)
    assert header == ["model", "parameters", "zinc"]
    names = [line[0] for line in cells]
    assert "GIN, cited" in names
    assert "GCN" in names
    best = [line[0] for line, strong in zip(cells, bold, strict=True) if strong]
    assert best == ["Spec-GN, cited", "GPS, cited", "Specformer"]  # all have 0.07


def test_lower_wins_on_zinc_and_higher_on_the_others() -> None:
    rows = [
        row("specformer", "zinc", 0.05),
        row("specformer", "molhiv", 0.95),
        row("specformer", "molpcba", 0.1),
    ]
    _, cells, bold = table_grid(3, with_cited(3, rows))
    strong = {line[0]: columns for line, columns in zip(cells, bold, strict=True)}
    assert strong["Specformer"] == {2, 3}
    assert strong["Spec-GN, cited"] == {4}


def test_pcqm4mv2_runs_beside_its_own_table(tmp_path: Path, data: Path) -> None:
    """It is no column of the table's own: nothing runs it unless asked for."""
    assert GRAPH_TABLE == ("zinc", "molhiv", "molpcba")
    (data / "zinc.npz").rename(data / "pcqm4mv2.npz")
    result, _ = run_table(
        table3,
        datasets=["pcqm4mv2"],
        models=["specformer", "gin", "pna"],
        runs=1,
        assignments=["model.hidden_channels=8", "model.num_layers=1", "schedule.epochs=1"],
        data=data,
        **COMMON,
    )
    rows = [found for found in result["rows"] if found["metric"] == "mae"]
    assert [(found["model"], found["paper"]) for found in rows] == [
        ("specformer", 0.0916),
        ("gin", 0.1195),
        ("pna", None),
    ]
    shown = with_cited(3, result["rows"])
    cited = {found["model"]: found for found in shown if found["recipe"] == "cited"}
    assert {model: found["mean"] for model, found in cited.items()} == {
        "gcn": 0.1379, "gcn-vn": 0.1153, "gin-vn": 0.1083, "gps-small": 0.0938,
        "grpe": 0.0890, "egt": 0.0869, "graphormer": 0.0864, "gps-medium": 0.0858,
    }  # fmt: skip
    assert cited["egt"]["parameters"] == 89_300_000
    _, cells, _ = table_grid(3, shown)
    assert ["GIN-VN, cited", "6,700,000", "[0.1083]"] in cells


def test_all_epochs_that_differ() -> None:
    at_loss, at_metric, at_end = (summary([value]) for value in (0.28, 0.29, 0.285))
    entry = {
        **row("specformer", "molpcba", 0.0),
        "test": at_loss,
        "test_by_metric": at_metric,
        "test_at_end": at_end,
    }
    rows = _graph_rows(entry)
    assert [(found["metric"], found["values"]) for found in rows] == [
        ("ap", [0.28]),
        ("ap-by-ap", [0.29]),
        ("ap-at-end", [0.285]),
    ]
    for changed, shown in (
        ({}, "0.2800 (0.2900, end 0.2850) [0.2972]"),
        ({"test": at_metric}, "0.2900 (end 0.2850) [0.2972]"),
        ({"test": at_end}, "0.2850 (0.2900) [0.2972]"),
        ({"test": at_metric, "test_at_end": None}, "0.2900 [0.2972]"),  # diverged, in one run
    ):
        _, cells, _ = table_grid(3, _graph_rows({**entry, **changed}))
        assert cells[0][2] == shown


def test_a_part_of_it_runs_and_is_recorded(tmp_path: Path, data: Path) -> None:
    result, arrays = run_table(
        table3,
        datasets=["zinc"],
        models=["specformer"],
        recipes=["paper"],
        runs=2,
        assignments=FAST,
        data=data,
        device=CPU,
        progress=Silent(),
    )
    (found,) = result["rows"]
    assert (found["model"], found["recipe"], found["metric"]) == ("specformer", "paper", "mae")
    assert (found["runs"], found["paper"]) == (2, 0.066)
    where = "molecules/zinc/specformer (paper)"
    drawn = ("curve", "tested", "calibration", "eigenvalues", "response", "attention", "by_size")
    assert {f"{where}/{name}" for name in drawn} <= set(arrays)
    predicted, measured = arrays[f"{where}/tested"][..., 0]
    assert np.abs(predicted - measured).mean() == pytest.approx(result["rows"][-1]["mean"])
    run = RunFolder.create(tmp_path / "run", {"command": "table"})
    run.finish("molecules", result, arrays, command="test", seed=0, device=CPU)
    ledger = tmp_path / "results"
    add(run, ledger)
    assert recorded_rows(ledger, 3) == result["rows"]
    assert check(ledger) == []
    entry = {**run.result(), "name": "run"}
    text = markdown_table([entry])
    assert "GPS, cited" in text
    assert text.count("± 0.0") > 10


def test_a_stopped_table_goes_on(tmp_path: Path, data: Path) -> None:
    common = {
        "datasets": ["zinc"],
        "models": ["specformer"],
        "recipes": ["paper"],
        "runs": 2,
        "assignments": FAST,
        "data": data,
        "device": CPU,
    }
    folder = tmp_path / "run"
    first, _ = run_table(table3, begin=lambda: folder, progress=Silent(), **common)
    (folder / "checkpoint-zinc-specformer-paper-001.safetensors").unlink()
    kept = folder / "checkpoint-zinc-specformer-paper-000.safetensors"
    before = kept.stat().st_mtime_ns
    again, _ = run_table(table3, begin=lambda: folder, progress=Silent(), **common)
    assert kept.stat().st_mtime_ns == before  # that run was only read
    assert again["rows"][0]["mean"] == first["rows"][0]["mean"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown model 'odd'"):
        run_table(table3, models=["odd"], **COMMON)
    with pytest.raises(ConfigError, match="unknown data set 'cora'"):
        run_table(table3, datasets=["cora"], **COMMON)


@pytest.mark.parametrize("change", ["metric=rmse", "task=classification", "targets=[logP]"])
def test_no_other_figure_stands_beside_the_papers(change: str, data: Path) -> None:
    with pytest.raises(ConfigError, match=r"the table has mae over all targets of zinc"):
        run_table(table3, datasets=["zinc"], assignments=[*FAST, change], data=data, **COMMON)


@pytest.mark.parametrize("options", [{"recipes": ["odd"]}, {"assignments": ["metric=rmse"]}])
def test_what_cannot_be_run_is_refused_before_anything_is_made(options) -> None:
    def begin() -> None:
        pytest.fail("something was begun")

    with pytest.raises(ConfigError):
        run_table(table3, models=["specformer"], begin=begin, **options, **COMMON)
