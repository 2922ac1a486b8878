"""Searching for settings on many small graphs: scores, seeds, and what may not be looked at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tests.tasks.jobs import train_on, trials_of, tune_on
from tests.tasks.trials_file import trials
from tests.training.small_graphs import small_set

from specformer.errors import ConfigError, RunError
from specformer.files.documents import unsealed
from specformer.graphs import read_graph_set, write_graph_set
from specformer.tasks.graphs import graph_work
from specformer.tasks.graphs.graph_models import GRAPH_MODELS, graph_model
from specformer.tasks.graphs.graph_recipe import graph_recipe
from specformer.tasks.trials import GraphTrials, search_space
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
FAST = [
    "model.hidden_channels=8",
    "model.num_heads=2",
    "model.num_layers=1",
    "schedule.epochs=3",
    "schedule.batch_size=16",
]


@pytest.fixture
def graphs_file(tmp_path: Path) -> Path:
    write_graph_set(tmp_path / "small.npz", small_set(40))
    return tmp_path / "small.npz"


def run(source: Path, folder: Path, *more: str, **changes):
    options = {"trials": 3, "splits": 1, "finalists": 2, "runs": 2} | changes
    return tune_on(str(source), assignments=[*FAST, *more], folder=folder, device=CPU, **options)


def subject(source: Path, *more: str, **changes) -> GraphTrials:
    options = {"model": "specformer", "recipe": None, "data": None, "cache": None, "seed": 0}
    options |= changes
    return trials_of(str(source), assignments=[*FAST, *more], device=CPU, **options)


def test_the_winner_is_the_finalist_of_the_lowest_error(graphs_file: Path, tmp_path: Path) -> None:
    result = run(graphs_file, tmp_path / "search")
    done = trials(tmp_path / "search")
    first = [trial for trial in done if trial["splits"] == 1]
    assert [trial["trial"] for trial in first] == [0, 1, 2]
    best = sorted(first, key=lambda trial: trial["score"])[:2]
    finals = {trial["trial"]: trial for trial in done if trial["splits"] == 2}
    assert set(finals) == {trial["trial"] for trial in best}
    assert result["winner"] == min(finals, key=lambda number: finals[number]["score"])
    assert (result["dataset"], result["metric"]) == ("small", "rmse")
    assert len(result["val"]["values"]) == 2
    written = yaml.safe_load((tmp_path / "search" / "best.yaml").read_text(encoding="utf-8"))
    assert unsealed(written) == finals[result["winner"]]["recipe"]
    assert '"test' not in (tmp_path / "search" / "trials.jsonl").read_text(encoding="utf-8")


def test_training_with_the_recipe_gives_what_was_measured(
    graphs_file: Path, tmp_path: Path
) -> None:
    found = run(graphs_file, tmp_path / "search", trials=2)
    trained, outcome = train_on(
        str(graphs_file),
        model="specformer",
        recipe=found["recipe_file"],
        runs=2,
        device=CPU,
        progress=Silent(),
    )
    assert trained["val"]["values"] == found["val"]["values"]
    # The score is the mean, over runs, of the lowest mean of neighbouring epochs: here, of all.
    (curve,) = (array for key, array in outcome.arrays.items() if key.endswith("/curve"))
    assert curve.shape == (3, 2, 3)
    assert found["score"] == pytest.approx(float(curve[:, :, 2].mean()))


def test_more_epochs_than_the_window(graphs_file: Path, monkeypatch) -> None:
    monkeypatch.setattr(GraphTrials, "window", 2)
    found = subject(graphs_file, "schedule.epochs=4")
    recipe = found.recipe(found.assignments)
    curve = np.array([fit_curve(found, recipe, run) for run in (0, 1)])  # [runs, epochs]
    literal = np.mean([min((c[i] + c[i + 1]) / 2 for i in range(3)) for c in curve])
    assert found.measure(recipe, 2).score == pytest.approx(literal)


def fit_curve(found: GraphTrials, recipe, run: int) -> np.ndarray:
    found.measure(recipe, 2)
    work = replace(found.work, recipe=recipe, splits=found._splits[2])
    return work.fit(found._store(recipe), run).curves[:, 2]


@pytest.mark.parametrize("classes", [False, True])
def test_test_targets_change_no_score(graphs_file: Path, tmp_path: Path, classes: bool) -> None:
    whole = small_set(40, classes=classes)
    assert whole.y is not None
    assert whole.test_idx is not None
    hidden = whole.y.copy()
    hidden[whole.test_idx] = np.nan
    first = whole.test_idx[0]  # with none at all the validation part would be the test part
    hidden[first] = 1 - whole.y[first]
    scores = []
    for name, y in (("open", whole.y), ("hidden", hidden)):
        write_graph_set(tmp_path / f"{name}.npz", replace(whole, y=y))
        run(tmp_path / f"{name}.npz", tmp_path / name, "split=official")
        scores.append([trial["score"] for trial in trials(tmp_path / name)])
    assert scores[0] == scores[1]
    assert len(set(scores[0])) > 1


def test_seeds_draw_other_settings_and_other_weights(graphs_file: Path, tmp_path: Path) -> None:
    first, again, other = (
        run(graphs_file, tmp_path / name, "split=official", seed=seed)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first["score"] == again["score"]
    assert [t["set"] for t in trials(tmp_path / "a")] == [t["set"] for t in trials(tmp_path / "b")]
    drawn = [{tuple(t["set"]) for t in trials(tmp_path / name)[1:3]} for name in ("a", "c")]
    assert not drawn[0] & drawn[1]
    # One split, two runs: only the weights differ.
    assert len(set(other["val"]["values"])) == 2


def test_a_stopped_search_goes_on(graphs_file: Path, tmp_path: Path) -> None:
    whole = run(graphs_file, tmp_path / "whole")
    run(graphs_file, tmp_path / "parts", trials=1, finalists=1, runs=1)
    before = trials(tmp_path / "parts")
    again = run(graphs_file, tmp_path / "parts")
    assert trials(tmp_path / "parts")[: len(before)] == before  # seconds and all
    assert (again["winner"], again["score"]) == (whole["winner"], whole["score"])


def test_spectra_are_made_once_by_matrix(graphs_file: Path, monkeypatch) -> None:
    solved = []
    real = graph_work.graph_spectra

    def counting(graphs, recipe, *rest):
        solved.append(recipe.matrix)
        return real(graphs, recipe, *rest)

    monkeypatch.setattr(graph_work, "graph_spectra", counting)
    found = subject(graphs_file)
    scores = {}
    for matrix in ("laplacian", "adjacency-with-loops"):
        recipe = found.recipe([*found.assignments, f"matrix={matrix}"])
        scores[matrix] = {found.measure(recipe, 2).score for _ in range(2)}
    assert solved == ["laplacian", "adjacency-with-loops"]
    assert all(len(found) == 1 for found in scores.values())
    assert scores["laplacian"] != scores["adjacency-with-loops"]


def test_a_diverged_setting_has_no_score(graphs_file: Path) -> None:
    found = subject(graphs_file)
    recipe = found.recipe([*found.assignments, "schedule.learning_rate=1e30", "schedule.warmup=0"])
    measured = found.measure(recipe, 1)
    assert (measured.score, measured.val) == (None, None)


def test_one_of_the_targets(graphs_file: Path) -> None:
    write_graph_set(graphs_file, replace(read_graph_set(graphs_file), task_names=("a", "b")))
    found = subject(graphs_file, "targets=[b]", "metric=mae")
    assert (found.work.graphs.num_tasks, found.metric, found.lower) == (1, "mae", True)


def test_molecules_of_a_table(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    rows = [f"{'C' * n}{'O' * m},{n % 2}" for n in range(1, 11) for m in range(1, 5)]
    (tmp_path / "mine.csv").write_text("\n".join(["smiles,odd", *rows]) + "\n")
    result = run(tmp_path / "mine.csv", tmp_path / "search", trials=2, finalists=1, runs=1)
    assert (result["metric"], result["trials"]) == ("rocauc", 2)
    done = trials(tmp_path / "search")
    assert result["score"] == max(trial["score"] for trial in done)
    assert 0.0 <= result["score"] <= 1.0


def test_no_model_is_larger_than_asked_for(graphs_file: Path, tmp_path: Path) -> None:
    found = subject(graphs_file)
    limit = found.size(found.recipe(found.assignments)) + 200
    tune_on(
        str(graphs_file),
        assignments=["schedule.epochs=1", "model.hidden_channels=8", "model.num_heads=2"],
        recipe=str(written(tmp_path / "start.yaml", {"model": {"num_layers": 1}})),
        parameters=3 * limit,
        trials=4,
        finalists=1,
        runs=1,
        folder=tmp_path / "search",
        device=CPU,
    )
    for trial in trials(tmp_path / "search"):
        recipe = found.recipe(trial["set"])
        assert found.size(recipe) <= 3 * limit


def written(path: Path, settings: dict) -> Path:
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def test_a_width_that_not_all_heads_divide(graphs_file: Path, tmp_path: Path) -> None:
    result = tune_on(
        str(graphs_file),
        assignments=["schedule.epochs=1", "model.hidden_channels=12", "model.num_layers=1"],
        trials=6,
        splits=1,
        finalists=1,
        runs=1,
        folder=tmp_path,
        device=CPU,
    )
    assert result["trials"] == 6
    assert {trial["recipe"]["model"]["num_heads"] for trial in trials(tmp_path)} <= {2, 4}


@pytest.mark.parametrize("model", GRAPH_MODELS)
def test_every_choice_is_one_of_the_model(model: str) -> None:
    space = search_space("graph_search.yaml", model)
    assert {"schedule.learning_rate", "model.hidden_channels", "schedule.batch_size"} <= set(space)
    for key, choices in space.items():
        for choice in choices:
            changes = ["model.hidden_channels=160", f"{key}={json.dumps(choice)}"]
            recipe = graph_recipe("default", "mine", changes, model)[1]
            if key.startswith("model."):
                graph_model(model, recipe, [3], [2], 1)


def test_baselines_are_tuned_too(graphs_file: Path, tmp_path: Path) -> None:
    result = tune_on(
        str(graphs_file),
        model="gin",
        assignments=["schedule.epochs=1", "model.num_layers=1", "model.hidden_channels=8"],
        trials=2,
        finalists=1,
        folder=tmp_path,
        device=CPU,
    )
    assert result["model"] == "gin"
    assert len(result["val"]["values"]) == 3  # the finalists' runs, where none are named
    again, _ = train_on(
        str(graphs_file),
        model="gin",
        recipe=result["recipe_file"],
        device=CPU,
        progress=Silent(),
    )
    assert again["val"]["values"][0] == result["val"]["values"][0]


def test_what_cannot_be_searched(graphs_file: Path, tmp_path: Path) -> None:
    for changes, message in (
        ({"model": "gat"}, "unknown model 'gat'"),
        ({"splits": 0}, "--splits 0"),
        ({"runs": 0}, "--runs 0"),
        ({"parameters": 10}, "more than --parameters 10"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(graphs_file, tmp_path / "search", **changes)
    with pytest.raises(ConfigError, match="photographs: signals are fitted"):
        tune_on("photographs", tmp_path / "search")


@pytest.mark.parametrize("source", ["zinc", "cora"])
def test_a_wrong_setting_is_refused_before_data_are_fetched(source: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key 'learn_rate'; did you mean"):
        tune_on(
            source,
            assignments=["schedule.learn_rate=1"],
            data=tmp_path,
            folder=tmp_path,
            device=CPU,
        )


def test_every_trial_starts_from_the_models_of_a_run(graphs_file: Path, tmp_path: Path) -> None:
    """Their making is not searched, and `train --from` with the winner gives its validation."""
    common = {"model": "specformer", "recipe": None, "progress": Silent(), "device": CPU}
    first = RunFolder.create(tmp_path / "first", {"command": "train", "source": str(graphs_file)})
    result, outcome = train_on(str(graphs_file), assignments=FAST, seed=5, runs=1, **common)
    first.write_models(outcome.models)
    first.finish("molecules", result, outcome.arrays, command="test", seed=5, device=CPU)
    short = ["schedule.epochs=2", "schedule.batch_size=16"]
    options = {"trials": 2, "splits": 1, "finalists": 2, "runs": 1, "device": CPU}
    found = tune_on(
        str(graphs_file), assignments=short, folder=tmp_path / "s", start=first.path, **options
    )
    for trial in trials(tmp_path / "s"):
        assert trial["recipe"]["model"]["hidden_channels"] == 8
        drawn = {change.partition("=")[0] for change in trial["set"]}
        assert not drawn & {"model.hidden_channels", "model.pooling", "matrix"}
    again, _ = train_on(
        str(graphs_file), start=first.path, runs=1, **common | {"recipe": found["recipe_file"]}
    )
    assert again["val"]["mean"] == pytest.approx(found["val"]["mean"])
    with pytest.raises(RunError, match="its trials had other settings"):
        tune_on(str(graphs_file), assignments=short, folder=tmp_path / "s", **options)
