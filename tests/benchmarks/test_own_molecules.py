"""A file's test parts as sets of graphs, and the errors of models on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.own_molecules import main, measured, table, write_parts
from specformer.datasets.molecule_splits import scaffolds
from specformer.graphs import read_graph_set
from specformer.tasks.job import Workplace

pytest.importorskip("rdkit")


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    chains = ["C" * n + "O" * m for n in range(1, 9) for m in range(1, 4)]
    rings = ["C1CC1", "C1CCC1", "C1CCCC1", "C1CCCCC1", "C1CCCCCC1", "C1COC1"]
    lines = [f"{smiles},{len(smiles)}.5" for smiles in chains + rings]
    (tmp_path / "mine.csv").write_text("\n".join(["smiles,size", *lines]) + "\n")
    return write_parts(tmp_path / "mine.csv", tmp_path / "rows")


def test_parts_are_apart_by_chance_or_by_scaffold(parts: list[Path]) -> None:
    assert [path.stem for path in parts] == [
        f"mine-{kind}-{seed}" for kind in ("random", "scaffold") for seed in range(3)
    ]
    for path in parts:
        graphs = read_graph_set(path)
        train, test = graphs.train_idx, graphs.test_idx
        assert sorted([*train, *test]) == list(range(30))
        assert len(graphs.valid_idx) == 0
        assert len(test) == 3
        found = np.array(scaffolds(graphs.smiles))
        if "scaffold" in path.stem:
            assert not {*found[test]} & {*found[train]}


def test_the_error_is_of_the_mean_of_five_runs(parts: list[Path]) -> None:
    row = measured(parts[0], "gin", Workplace(torch.device("cpu")), ["schedule.epochs=1"])
    assert (row["dataset"], row["model"], row["metric"]) == ("mine-random-0", "gin", "rmse")
    assert len(row["test"]["values"]) == row["runs"] == 5
    assert row["test_together"] <= row["test"]["mean"]  # errors are convex


def test_what_is_kept_is_not_trained_again(
    parts: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in parts[1:]:
        path.unlink()
    arguments = [str(parts[0].parent), "--models", "forest", "--set", "model.num_trees=2"]
    main(arguments)
    first = capsys.readouterr().out
    main(arguments)
    assert capsys.readouterr().out == first
    assert first.splitlines()[2].startswith("| forest | ")


def test_the_table_has_intervals_over_parts() -> None:
    rows = [
        {
            "dataset": f"mine-random-{seed}",
            "model": "gin",
            "test_together": error,
            "test": {"mean": 2},
        }
        for seed, error in enumerate((0.9, 1.0, 1.1))
    ]
    half = 4.302653 * 0.1 / 3**0.5  # Student's for two degrees of freedom
    assert table(rows).splitlines()[2] == f"| gin | 1.000 ± {half:.3f} | – | 2.000 ± 0.000 | – |"
