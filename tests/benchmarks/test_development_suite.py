"""The development suite: a row of one model, and the table of several."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.development_suite import measured, table
from specformer.datasets import csbm
from specformer.graphs import write_npz
from specformer.tasks.job import Workplace


def test_a_row_has_the_figures_of_three_splits(here: Path) -> None:
    write_npz(here / "mine.npz", csbm(0.7, num_nodes=60, num_features=6))
    row = measured("mine.npz", "mlp", Workplace(torch.device("cpu")))
    assert (row["dataset"], row["model"], row["metric"]) == ("mine", "mlp", "accuracy")
    assert len(row["test"]["values"]) == len(row["val"]["values"]) == 3
    assert row["test"]["mean"] == pytest.approx(sum(row["test"]["values"]) / 3)


def test_the_table_ranks_models() -> None:
    figures = {"cora": (0.80, 0.85, 0.75), "actor": (0.40, 0.30, 0.40), "photo": (0.9, 0.9, 0.95)}
    models = "specformer", "gcn", "mlp"
    rows = [
        {"dataset": graph, "model": model, "test": {"mean": value}}
        for graph, values in figures.items()
        for model, value in zip(models, values, strict=True)
    ]
    assert table(rows).splitlines() == [
        "| | specformer | gcn | mlp |",
        "|---|---|---|---|",
        "| cora | 80.0 | **85.0** | 75.0 |",
        "| photo | 90.0 | 90.0 | **95.0** |",
        "| actor | **40.0** | 30.0 | **40.0** |",
        "| mean rank | **1.7** | 2.0 | **1.7** |",
        "| most behind the best | **5.0** | 10.0 | 10.0 |",
    ]
