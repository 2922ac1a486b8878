"""Table 2 on a graph the test writes, from the run to the ledger."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tasks.jobs import run_table

from benchmarks.ledger import add, check, rendered
from specformer.datasets import csbm
from specformer.errors import ConfigError, DataNotFoundError
from specformer.graphs import write_npz
from specformer.paper.published import TABLE_2
from specformer.paper.recorded import recorded_rows
from specformer.paper.table_rows import contestant_name, interval
from specformer.paper.tables import NODE_TABLE, table2
from specformer.reports.html import render_report
from specformer.reports.looks import look
from specformer.tasks.nodes import node_work as module
from specformer.tasks.nodes.node_recipe import NODE_MODELS
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two models on a stand-in for Cora, recorded as a run."""
    folder = tmp_path_factory.mktemp("data")
    write_npz(folder / "cora.npz", csbm(0.6, num_nodes=60, num_features=5, seed=2))
    result, arrays = run_table(
        table2,
        datasets=["cora"],
        models=["gcn", "specformer"],
        runs=3,
        assignments=["schedule.epochs=5"],
        data=folder,
        device=CPU,
        progress=Silent(),
    )
    made = RunFolder.create(folder / "run", {})
    made.finish("nodes", result, arrays, command="specformer table 2", seed=0, device=CPU)
    return made


def test_rows_have_both_selection_rules_and_the_papers_figure(run):
    result = run.result()
    keys = {"model", "recipe", "dataset", "metric", "mean", "ci95", "runs", "paper", "parameters"}
    rows = result["rows"]
    assert all(keys <= set(row) for row in rows)
    assert [(row["model"], row["recipe"], row["metric"]) for row in rows] == [
        ("gcn", "default", "accuracy"),
        ("gcn", "default", "accuracy-by-accuracy"),
        ("specformer", "paper", "accuracy"),
        ("specformer", "paper", "accuracy-by-accuracy"),
        ("specformer", "best", "accuracy"),
        ("specformer", "best", "accuracy-by-accuracy"),
    ]
    assert rows[0]["paper"] == 0.8714
    assert rows[2]["paper"] == 0.8857
    entry = result["nodes"][1]
    assert rows[2]["mean"] == pytest.approx(np.mean(entry["test"]["values"]))
    assert len(set(entry["splits"])) == rows[2]["runs"] == 3


def test_every_row_has_arrays_and_a_line_of_its_own(run):
    result, arrays = run.result(), run.outputs()
    curves = [
        arrays[f"nodes/cora/{entry['model']} ({entry['recipe']})/curve"]
        for entry in result["nodes"]
    ]
    assert len(curves) == sum(name.endswith("/curve") for name in arrays) == 3
    for entry, curve in zip(result["nodes"], curves, strict=True):
        assert curve.shape == (5, 3, 3)
        # The validation accuracy of the best epoch is one of those drawn.
        best = np.nanmax(curve[..., 2], axis=0)
        np.testing.assert_allclose(best, entry["val_by_accuracy"]["values"], rtol=1e-6)
    assert {reading["of"] for reading in run.metrics()} == {
        f"nodes/cora/{entry['model']} ({entry['recipe']})" for entry in result["nodes"]
    }

    page = render_report(run)

    (drawn,) = re.findall(r'<svg[^>]*aria-label="cora: validation accuracy of.*?</svg>', page, re.S)
    thick = [
        style
        for style in re.findall(r'style="(fill: none;[^"]*)"', drawn)
        if "stroke-width: 2.1" in style and look("specformer").color in style
    ]
    assert len(set(thick)) == len(thick) == 2
    # In several windows of the spectrum each.
    heads = re.findall(r'aria-label="cora: the response of each head of Specformer ([^"]*)"', page)
    assert set(heads) == {"(paper).", "(best)."}


def test_part_of_a_run_goes_into_the_ledger_and_a_document(run, tmp_path):
    ledger = tmp_path / "results"
    ledger.mkdir()
    add(run, ledger, "ours", ["paper"])
    assert check(ledger) == []
    rows = recorded_rows(ledger, 2)
    assert {row["model"] for row in rows} == {"specformer"}
    text = rendered("<!-- results:table-2 -->\n<!-- /results -->", ledger)
    assert "| Specformer |" in text
    assert interval(rows[0]) in text
    assert "[88.57]" in text


def test_a_tuned_baseline_is_told_from_the_untuned_one():
    names = [contestant_name("gcn", recipe) for recipe in ("default", "best")]
    assert names == ["GCN", "GCN, best"]


def test_the_papers_models_can_all_be_run():
    assert set(TABLE_2) <= set(NODE_MODELS)
    assert NODE_TABLE == ("chameleon", "squirrel", "actor", "cora", "citeseer", "photo")


def test_the_large_sets_stand_beside_the_papers_figures(tmp_path):
    """Penn94 runs by the paper's recipe on its five splits, as many as its file holds."""
    graph = csbm(0.4, num_nodes=60, num_features=5, seed=2)
    part = (np.arange(60)[:, None] + np.arange(5)) % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    write_npz(tmp_path / "penn94.npz", replace(graph, **masks))
    result, _ = run_table(
        table2,
        datasets=["penn94"],
        models=["h2gcn", "jacobiconv", "specformer"],
        assignments=["schedule.epochs=2"],
        data=tmp_path,
        device=CPU,
        progress=Silent(),
    )
    rows = {row["model"]: row for row in result["rows"]}
    assert {model: row["paper"] for model, row in rows.items()} == {
        "h2gcn": None,  # out of memory in the paper
        "jacobiconv": 0.8335,
        "specformer": 0.8432,
    }
    assert {row["runs"] for row in rows.values()} == {5}
    assert TABLE_2["specformer"]["ogbn-arxiv"] == 0.7237


def test_the_papers_figures_are_those_of_its_source(shared_data):
    """Every mean of the table as the paper's LaTeX has it."""
    source = shared_data.parent / "paper" / "specformer.tex"
    if not source.is_file():
        pytest.skip(f"no {source.name} beside the data")
    text = source.read_text(encoding="utf-8")
    table = text[: text.index(r"\label{tab:node_cla_pfm}")].rpartition(r"\begin{tabular}")[2]
    lines = [line.split("&") for line in table.splitlines() if line.count("&") == 9]
    names = {"ChebyNet": "chebnet", "H$_2$GCN": "h2gcn", "GPR-GNN": "gprgnn"}
    found = {}
    for name, size, *cells in lines:
        if not size.strip().endswith("K"):
            continue
        means = [re.search(r"\d+\.\d+|OOM", cell)[0] for cell in cells]
        key = name.strip().rstrip("*")
        found[names.get(key, key.lower())] = {
            dataset: pytest.approx(float(mean) / 100)
            for dataset, mean in zip(TABLE_2["specformer"], means, strict=True)
            if mean != "OOM"
        }
    assert found == TABLE_2


def test_what_cannot_be_run_is_named(tmp_path):
    with pytest.raises(ConfigError, match="unknown model 'lstm'"):
        run_table(table2, models=["lstm"], device=CPU, progress=Silent())
    with pytest.raises(DataNotFoundError, match=r"computers\.npz"):
        run_table(table2, datasets=["computers"], data=tmp_path, device=CPU, progress=Silent())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"assignments": ["model.sharing=huge"]}, "recipe default: model: sharing='huge' should"),
        ({"recipes": ["paper", "bset"]}, r"unknown recipe 'bset'; choose from paper, .*best"),
        ({"recipes": ["authors"]}, "none of these models has a recipe authors for these"),
    ],
)
def test_what_cannot_run_is_refused_before_a_graph_is_read(monkeypatch, options, why):
    monkeypatch.setattr(module, "node_graph", lambda *_: pytest.fail("read"))
    with pytest.raises(ConfigError, match=why):
        run_table(
            table2, datasets=["cora"], models=["gcn"], device=CPU, progress=Silent(), **options
        )


class Refusing(Silent):
    """Nothing may be trained while this is told."""

    def stage(self, *_):
        raise AssertionError("a row was trained")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": 7}, "penn94: 7 runs asked for, but it has 5 splits"),
        ({"assignments": ["baseline.order=3"]}, "baseline.order is not a setting of gcn"),
    ],
    ids=["splits", "settings"],
)
def test_what_a_later_row_cannot_have_is_refused_before_the_first(tmp_path, changes, message):
    graph = csbm(0.4, num_nodes=60, num_features=5, seed=2)
    part = (np.arange(60)[:, None] + np.arange(5)) % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    write_npz(tmp_path / "cora.npz", graph)
    write_npz(tmp_path / "penn94.npz", replace(graph, **masks))
    options = {"datasets": ["cora", "penn94"], "models": ["chebnet", "gcn"], "data": tmp_path}
    with pytest.raises(ConfigError, match=message):
        run_table(table2, **options, **changes, device=CPU, progress=Refusing())
