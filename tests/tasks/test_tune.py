"""Searching for settings of nodes: what is tried, what is kept, what may not be looked at."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from tests.tasks.jobs import classify, tune_on
from tests.tasks.trials_file import trials

from specformer.datasets import csbm, make_splits
from specformer.errors import ConfigError, RunError
from specformer.files.documents import unsealed
from specformer.graphs import read_graph, write_npz
from specformer.tasks.job import Workplace
from specformer.tasks.nodes.node_recipe import NODE_MODELS, node_model, node_recipe
from specformer.tasks.nodes.node_work import node_spectrum
from specformer.tasks.trials import search_space
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "blocks.npz"
    write_npz(path, csbm(0.6, num_nodes=80, num_features=8, seed=3))
    return path


def run(graph, folder, **changes):
    options = {"trials": 4, "splits": 2, "finalists": 2, "runs": 3} | changes
    return tune_on(
        str(graph), assignments=["schedule.epochs=6"], folder=folder, device=CPU, **options
    )


def test_the_best_finalist_becomes_a_recipe(graph, tmp_path):
    result = run(graph, tmp_path)
    done = trials(tmp_path)
    assert [trial["trial"] for trial in done if trial["splits"] == 2] == [0, 1, 2, 3]
    finals = {trial["trial"]: trial for trial in done if trial["splits"] == 3}
    first = sorted(done[:4], key=lambda trial: (-trial["score"], trial["trial"]))[:2]
    assert set(finals) == {trial["trial"] for trial in first}
    assert result["winner"] == max(finals, key=lambda number: finals[number]["score"])
    written = yaml.safe_load((tmp_path / "best.yaml").read_text(encoding="utf-8"))
    assert unsealed(written) == finals[result["winner"]]["recipe"]
    name, recipe = node_recipe(result["recipe_file"], "blocks")
    assert name == result["recipe_file"]
    assert recipe.schedule.epochs == 6
    assert recipe.monitor == "metric"


def test_trials_of_other_data_are_refused(graph, tmp_path):
    source = tmp_path / "mine.npz"
    source.write_bytes(graph.read_bytes())
    run(source, tmp_path / "out", trials=1, finalists=1)
    before, whole = trials(tmp_path / "out"), read_graph(source)
    write_npz(source, replace(whole, x=2 * whole.x))
    with pytest.raises(RunError, match=r"had other settings \(other data\), so their scores"):
        run(source, tmp_path / "out", trials=2, finalists=1)
    assert trials(tmp_path / "out") == before


def test_the_report_lists_every_trial_the_best_first(graph, tmp_path):
    result = run(graph, tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"Trial {result['winner']} of 4 has the best validation accuracy" in page
    final, first = re.findall(r"<table.*?</table>", page, re.DOTALL)
    for table, splits in ((final, 3), (first, 2)):
        judged = [trial for trial in trials(tmp_path) if trial["splits"] == splits]
        judged.sort(key=lambda trial: -trial["score"])
        shown = re.findall(r"<tr>\s*<t[hd][^>]*>(\d+)</t[hd]>\s*<td[^>]*>([^<]*)</td>", table)
        assert shown == [(str(each["trial"]), f"{each['score']:.4g}") for each in judged]


def test_a_score_is_what_training_with_the_recipe_gives(graph, tmp_path):
    result = run(graph, tmp_path, trials=2, finalists=1)
    recipe = node_recipe(result["recipe_file"], "blocks")[1]
    whole = read_graph(graph)
    outcome = classify(
        whole,
        node_spectrum(whole, recipe, Workplace(CPU)),
        make_splits(whole, recipe.split, 3, 0),
        "specformer",
        recipe,
        device=CPU,
        seed=0,
        progress=Silent(),
    )
    assert outcome.row["val_by_accuracy"]["values"] == pytest.approx(result["val"]["values"])


def test_finalists_train_on_the_splits_that_a_file_holds(tmp_path):
    part = (np.arange(80)[:, None] + np.arange(4)) % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    path = tmp_path / "masked.npz"
    write_npz(path, replace(csbm(0.6, num_nodes=80, num_features=8, seed=3), **masks))
    tune_on(
        str(path),
        assignments=["schedule.epochs=2", "split=official"],
        trials=1,
        splits=2,
        finalists=1,
        folder=tmp_path / "search",
        device=CPU,
    )
    assert [trial["splits"] for trial in trials(tmp_path / "search")] == [2, 4]


def test_test_nodes_leave_no_trace(graph, tmp_path):
    run(graph, tmp_path, trials=2, finalists=1, runs=2)
    assert '"test' not in (tmp_path / "trials.jsonl").read_text(encoding="utf-8")


def test_settings_that_diverge_are_no_constant_guess(tmp_path):
    """Scores that are no numbers are all taken for class 0, here four fifths of the nodes."""
    drawn = csbm(0.6, num_nodes=100, num_features=8, seed=3)
    path = tmp_path / "uneven.npz"
    write_npz(path, replace(drawn, y=np.arange(100) % 5 // 4))
    far = {"trials": 2, "splits": 2, "finalists": 1, "runs": 2, "device": CPU, "model": "gcn"}
    rates = ["schedule.epochs=30", "schedule.learning_rate=1e30"]
    with pytest.raises(RunError, match=r"uneven: training diverged in every trial that could win"):
        tune_on(str(path), assignments=rates, folder=tmp_path / "search", **far)
    assert [trial["score"] for trial in trials(tmp_path / "search")] == [None, None]
    assert not (tmp_path / "search" / "best.yaml").exists()


def test_a_stopped_search_goes_on(graph, tmp_path):
    whole = run(graph, tmp_path / "whole")
    run(graph, tmp_path / "parts", trials=2, finalists=1, runs=2)
    before = trials(tmp_path / "parts")
    again = run(graph, tmp_path / "parts")
    after = trials(tmp_path / "parts")
    assert after[: len(before)] == before  # nothing is run twice, seconds and all
    assert (again["winner"], again["val"]) == (whole["winner"], whole["val"])
    assert again["seconds"] > sum(trial["seconds"] for trial in before)


def test_later_trials_start_from_the_best(graph, tmp_path):
    run(graph, tmp_path, trials=7, splits=1, finalists=1, runs=1, explore=4)
    done = {trial["trial"]: trial for trial in trials(tmp_path)}
    earlier = sorted(
        (number for number in done if number < 6),
        key=lambda number: (-done[number]["score"], number),
    )[:3]
    child = done[6]["set"]
    starts = [
        number for number in earlier if child[: len(done[number]["set"])] == done[number]["set"]
    ]
    assert starts
    # Drawn afresh: one value of every list but features, as raw columns are always prepared.
    assert len(done[5]["set"]) == 2 + 13


def test_baselines_have_settings_of_their_own(graph, tmp_path):
    result = run(graph, tmp_path, model="gprgnn", trials=2, finalists=1, runs=2)
    keys = {change.partition("=")[0] for trial in trials(tmp_path) for change in trial["set"]}
    assert {"baseline.dropout", "baseline.alpha", "schedule.filter_learning_rate"} <= keys
    assert not any(key.startswith("model.") for key in keys)
    assert result["model"] == "gprgnn"


@pytest.mark.parametrize("model", NODE_MODELS)
def test_every_choice_builds_a_model(model):
    space = search_space("node_search.yaml", model)
    for key, choices in space.items():
        assert choices
        for choice in choices:
            recipe = node_recipe("default", "mine", [f"{key}={json.dumps(choice)}"], model)[1]
            node_model(model, recipe, 5, 2)
    assert {"schedule.learning_rate", "schedule.weight_decay", "features"} <= set(space)


def test_what_is_set_is_not_searched(graph, tmp_path):
    folder = tmp_path / "search"
    tune_on(
        str(graph),
        model="chebnet",
        assignments=["schedule.epochs=2", "baseline.order=1"],
        trials=4,
        splits=1,
        finalists=1,
        runs=1,
        folder=folder,
        device=CPU,
    )
    assert {trial["recipe"]["baseline"]["order"] for trial in trials(folder)} == {1}
    assert "baseline.order" in search_space("node_search.yaml", "chebnet")


def test_no_trial_begins_when_the_time_is_up(graph, tmp_path):
    result = run(graph, tmp_path, trials=3, seconds=0.0, runs=2)
    assert [trial["trial"] for trial in trials(tmp_path)] == [0]
    assert (result["trials"], result["winner"]) == (1, 0)
    assert run(graph, tmp_path, trials=3, finalists=1, runs=2)["trials"] == 3


def test_what_cannot_be_searched(graph, tmp_path):
    with pytest.raises(ConfigError, match="unknown model 'resnet'"):
        run(graph, tmp_path, model="resnet")
    with pytest.raises(ConfigError, match="--trials 0"):
        run(graph, tmp_path, trials=0)
    with pytest.raises(ConfigError, match="--seconds -1: it must not be negative"):
        run(graph, tmp_path, seconds=-1.0)
    (tmp_path / "trials.jsonl").write_text("{half", encoding="utf-8")
    with pytest.raises(RunError, match=r"trials\.jsonl: damaged"):
        run(graph, tmp_path)
