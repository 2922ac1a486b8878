"""Table 4 on sets the test writes: every variant a model of its own, from the run to the ledger."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.jobs import run_table

from benchmarks.ledger import add, check, rendered
from specformer.datasets import csbm
from specformer.errors import ConfigError
from specformer.graphs import GraphSet, write_graph_set, write_npz
from specformer.paper.published import TABLE_4
from specformer.paper.table_rows import table_grid
from specformer.paper.tables import ABLATED, VARIANTS, table2, table4
from specformer.reports.html import render_report
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

DATASETS = tuple(name for names in ABLATED.values() for name in names)
CPU = torch.device("cpu")
FAST = ["schedule.epochs=2", "model.hidden_channels=8", "model.num_heads=2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Files called squirrel, citeseer and molpcba."""
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(("squirrel", "citeseer")):
        write_npz(folder / f"{name}.npz", csbm(0.6, num_nodes=60, num_features=5, seed=seed))
    random = np.random.default_rng(0)
    y = random.integers(0, 2, (24, 128)).astype(float)
    chains = GraphSet(
        np.full(24, 3),
        np.full(24, 2),
        np.tile([[0, 1], [1, 2]], 24),
        node_feat=random.integers(0, 2, (72, 9)),
        edge_feat=random.integers(0, 2, (48, 3)),
        y=y,
    )
    parts = dict(
        zip(("train_idx", "valid_idx", "test_idx"), np.split(np.arange(24), 3), strict=True)
    )
    write_graph_set(folder / "molpcba.npz", replace(chains, **parts))
    return folder


@pytest.fixture(scope="module")
def run(data: Path) -> RunFolder:
    made = RunFolder.create(data / "run", {})
    result, arrays = run_table(
        table4,
        runs=2,
        assignments=FAST,
        data=data,
        device=CPU,
        progress=Silent(),
        begin=lambda: made.path,
    )
    made.finish("ablations", result, arrays, command="specformer table 4", seed=0, device=CPU)
    return made


def test_every_variant_is_there_beside_the_papers_figure(run: RunFolder) -> None:
    rows = run.result()["rows"]
    for row in rows:
        assert row["paper"] == TABLE_4[row["recipe"]][row["dataset"]]
    found = {(row["recipe"], row["dataset"]) for row in rows}
    assert found == {(variant, name) for variant in VARIANTS for name in DATASETS}


def test_parts_left_out_are_left_out(run: RunFolder) -> None:
    result = run.result()
    counts = {
        (row["dataset"], row["recipe"]): row["parameters"]
        for row in result["rows"]
        if row["metric"] in ("accuracy", "ap")
    }
    for name in DATASETS:
        bare, encoding, medium, small, large = (counts[name, variant] for variant in VARIANTS)
        assert encoding - bare == 8 * 8  # of the map from [λ ‖ ρ(λ)]
        assert medium - encoding == 4 * (8 * 8 + 8) + 2 * 8  # attention and its norm
        assert small < medium < large
    settings = {name: result["recipes"][name]["citeseer"]["specformer"] for name in VARIANTS}
    assert not settings["bare"]["model"]["encoding"]
    assert settings["large"]["model"]["sharing"] == "large"


def test_the_whole_model_is_that_of_table_2(run: RunFolder, data: Path) -> None:
    direct, _ = run_table(
        table2,
        datasets=["citeseer"],
        models=["specformer"],
        recipes=["paper"],
        runs=2,
        assignments=FAST,
        data=data,
        device=CPU,
        progress=Silent(),
    )
    ours = [
        entry
        for entry in run.result()["nodes"]
        if (entry["recipe"], entry["dataset"]) == ("medium", "citeseer")
    ]
    assert ours[0]["test"] == direct["nodes"][0]["test"]


def test_from_the_run_to_the_tables(run: RunFolder, tmp_path: Path) -> None:
    header, cells, _ = table_grid(4, run.result()["rows"])
    assert header == ["model", "parameters", "squirrel", "citeseer", "molpcba"]
    assert [line[0] for line in cells] == [
        "Medium, λ alone",
        "Medium, ρ(λ) without attention",
        "Medium",
        "Small",
        "Large",
    ]
    add(run, tmp_path / "results", "ablations")
    assert check(tmp_path / "results") == []
    text = rendered("<!-- results:table-4 -->\n<!-- /results -->\n", tmp_path / "results")
    assert "| Medium, λ alone |" in text
    assert "[0.2696]" in text
    report = render_report(run)
    assert all(escape(line[0]) in report for line in cells)  # as the terminal calls them
    assert "Specformer (" not in report
    assert "Ablations (Table 4)" in report


def test_unknown_names_are_refused() -> None:
    options = {"device": CPU, "progress": Silent()}
    with pytest.raises(ConfigError, match="unknown variant 'tiny'; choose from bare, encoding"):
        run_table(table4, recipes=["tiny"], **options)
    with pytest.raises(ConfigError, match="unknown data set 'cora'; choose from squirrel"):
        run_table(table4, datasets=["cora"], **options)
