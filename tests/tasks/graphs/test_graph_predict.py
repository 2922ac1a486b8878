"""Predictions for SMILES: their spread over the runs tells unfamiliar molecules."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from tests.tasks.jobs import CPU, predict_with, train_on

from specformer.training.runs.folder import RunFolder

pytest.importorskip("rdkit")

SMALL = [
    "schedule.epochs=15", "schedule.learning_rate=0.01", "schedule.batch_size=16",
    "model.hidden_channels=16", "model.num_layers=2",
]  # fmt: skip


def test_models_differ_most_on_molecules_unlike_those_learned_from(tmp_path: Path) -> None:
    """Of the same atoms, but three times as long as any, or branched where all were chains."""
    source = tmp_path / "chains.csv"
    short = [("C" * n + "O" * m, n + 0.3 * m) for n in range(1, 13) for m in range(1, 6)]
    lines = [f"{smiles},{target}" for smiles, target in short]
    source.write_text("\n".join(["smiles,carbons", *lines]) + "\n")
    run = RunFolder.create(tmp_path / "run", {"source": str(source)})
    result, outcome = train_on(source, assignments=SMALL, task="regression", runs=5)
    run.write_models(outcome.models)
    run.finish("molecules", result, outcome.arrays, command="", seed=0, device=CPU)
    familiar = ["C" * n + "O" * m for n in (3, 6, 9) for m in (2, 4)]
    unlike = ["C" * 40, "O" * 30, "C" * 25 + "O" * 25, "OC(O)(O)CC(O)(O)CC(O)(O)CC(O)(O)O"]
    text = predict_with(run, smiles=(*familiar, *unlike)).text
    spread = [float(row["spread"]) for row in csv.DictReader(io.StringIO(text))]
    assert min(spread[len(familiar) :]) > 2 * max(spread[: len(familiar)]) > 0
