"""A forest in place of a network: train, predict, compare, tune, and what is refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from tests.tasks.jobs import CPU, predict_with, train_on, tune_on

from specformer.errors import ConfigError
from specformer.graphs import fragment_counts, read_molecules
from specformer.reports.html import write_report
from specformer.tasks.compare import compare
from specformer.tasks.graphs.graph_models import load_graph_models
from specformer.tasks.graphs.graph_recipe import graph_recipe
from specformer.tasks.graphs.graph_work import graph_splits
from specformer.tasks.job import run_seed
from specformer.training.runs.folder import RunFolder

pytest.importorskip("rdkit")
FEW = ["model.num_trees=12", "model.fingerprint=64"]


def chains(path: Path, kind: str = "numbers") -> Path:
    """Chains of carbon and oxygen, with the number of carbons, or its remainder, as targets."""
    rows = [(n, m) for n in range(1, 13) for m in range(1, 6)]
    told = {
        "numbers": lambda n, m: f"{n + 0.3 * m}",
        "two": lambda n, m: f"{n % 2},{m % 2 if n > 1 else ''}",
        "three": lambda n, m: ("low", "mid", "high")[n % 3],
    }[kind]
    header = "smiles,even,odd" if kind == "two" else "smiles,carbons"
    lines = [f"{'C' * n}{'O' * m},{told(n, m)}" for n, m in rows]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def finished(tmp_path: Path, source: Path, **options) -> tuple[RunFolder, dict]:
    run = RunFolder.create(tmp_path / "run", {"source": str(source)})
    result, outcome = train_on(str(source), model="forest", **{"runs": 1, **options})
    run.write_models(outcome.models)
    return run, run.finish("molecules", result, outcome.arrays, command="", seed=0, device=CPU)


def cells(run: RunFolder, column: str) -> np.ndarray:
    rows = csv.DictReader(io.StringIO(predict_with(run).text))
    return np.array([float(row[column]) for row in rows])


def test_train_and_predict_are_scikit_learns_ensemble(tmp_path: Path) -> None:
    source = chains(tmp_path / "chains.csv")
    run, result = finished(tmp_path, source, runs=3, assignments=FEW)
    graphs = read_molecules(source).graphs
    counts = fragment_counts(graphs, 64)
    recipe = graph_recipe(None, "chains", FEW, "forest")[1]
    said = []
    for number, split in enumerate(graph_splits(graphs, recipe.settled(graphs), 3, 0)):
        theirs = RandomForestRegressor(12, max_features=1 / 3, random_state=run_seed(0, number))
        theirs.fit(counts[split.train], graphs.y[split.train, 0].astype(float))
        said.append(theirs.predict(counts))
        error = np.sqrt(np.mean((said[-1] - graphs.y[:, 0])[split.test] ** 2))
        assert result["test"]["values"][number] == pytest.approx(error, rel=1e-6)
    np.testing.assert_allclose(cells(run, "prediction"), np.mean(said, axis=0), rtol=1e-4)
    spread = np.std(said, axis=0, ddof=1)
    np.testing.assert_allclose(cells(run, "spread"), spread, rtol=1e-2, atol=1e-6)
    assert result["parameters"] == sum(p.numel() for p in load_graph_models(run)[0].parameters())


def test_runs_of_one_split_tell_errors_beside_their_spread(tmp_path: Path) -> None:
    source = chains(tmp_path / "chains.csv")
    header, *lines = source.read_text().splitlines()
    parts = [("train", "valid", "test", "train")[place % 4] for place in range(len(lines))]
    rows = [f"{line},{part}" for line, part in zip(lines, parts, strict=True)]
    source.write_text("\n".join([f"{header},split", *rows]) + "\n")
    run, _ = finished(tmp_path, source, runs=3, assignments=FEW)
    (bins,) = (array for name, array in run.outputs().items() if name.endswith("calibration"))
    graphs = read_molecules(source).graphs
    test = np.array(parts) == "test"
    spread = cells(run, "spread")[test]
    errors = cells(run, "prediction")[test] - graphs.y[test, 0]
    assert bins[:, 2].sum() == test.sum()
    assert np.average(bins[:, 0] ** 2, weights=bins[:, 2]) == pytest.approx(
        np.mean(spread**2), rel=1e-2
    )
    assert np.average(bins[:, 1] ** 2, weights=bins[:, 2]) == pytest.approx(
        np.mean(errors**2), rel=1e-3
    )
    assert "Spread and error" in write_report(run).read_text()


def test_classes_of_several_targets_with_gaps(tmp_path: Path) -> None:
    source = chains(tmp_path / "chains.csv", "two")
    run, result = finished(tmp_path, source, assignments=FEW)
    assert (result["task"], result["metric"]) == ("classification", "rocauc")
    graphs = read_molecules(source).graphs
    recipe = graph_recipe(None, "chains", FEW, "forest")[1].settled(graphs)
    train = graph_splits(graphs, recipe, 1, 0)[0].train & ~np.isnan(graphs.y[:, 1])
    theirs = RandomForestClassifier(12, random_state=run_seed(0, 0))
    counts = fragment_counts(graphs, 64)
    theirs.fit(counts[train], graphs.y[train, 1])
    expected = theirs.predict_proba(counts)[:, 1]
    np.testing.assert_allclose(cells(run, "probability(odd)"), expected, atol=1e-6)


def test_three_classes(tmp_path: Path) -> None:
    source = chains(tmp_path / "chains.csv", "three")
    run, result = finished(tmp_path, source, assignments=[*FEW, "targets=[carbons]"])
    assert result["classes"] == ["high", "low", "mid"]
    shares = [cells(run, f"probability({name})") for name in result["classes"]]
    np.testing.assert_allclose(np.sum(shares, axis=0), 1.0, atol=1e-5)


def test_compared_on_the_same_splits(tmp_path: Path) -> None:
    source = chains(tmp_path / "chains.csv")
    fast = ["schedule.epochs=2"]
    out = tmp_path / "runs"
    found = compare(
        source, ["specformer", "gin", "forest"], runs=2, changes=fast, device="cpu", out=out
    )
    assert {row["model"] for row in found.rows} == {"specformer", "gin", "forest"}
    rows = [RunFolder.open(out / row["folder"]).result()["molecules"][0] for row in found.rows]
    assert rows[0]["splits"] == rows[1]["splits"] == rows[2]["splits"]
    assert "Forest" in found.report.read_text()


def test_tuned(tmp_path: Path) -> None:
    source = chains(tmp_path / "chains.csv")
    result = tune_on(
        str(source), model="forest", assignments=FEW, trials=3, finalists=1, folder=tmp_path
    )
    again, _ = train_on(str(source), model="forest", recipe=result["recipe_file"])
    assert again["val"]["values"][0] == result["val"]["values"][0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("schedule.epochs=3", "a forest is grown once, without epochs"),
        ("standardise=true", "would change nothing"),
        ("model.num_trees=0", "num_trees=0 must be at least 1"),
        ("model.max_features=1.5", "max_features=1.5 must be above 0 and at most 1"),
        ("model.num_heads=2", "num_heads"),
    ],
)
def test_what_a_forest_cannot_have(tmp_path: Path, change: str, told: str) -> None:
    source = chains(tmp_path / "chains.csv")
    with pytest.raises(ConfigError, match=told):
        train_on(str(source), model="forest", assignments=[change])
