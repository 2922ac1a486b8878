"""The choice between forms of the model: by validation, told, and kept for a resumed run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.jobs import train_source

from specformer.datasets import csbm
from specformer.errors import ConfigError
from specformer.graphs import write_npz
from specformer.tasks.job import Request, Workplace
from specformer.tasks.nodes import node_fit
from specformer.tasks.nodes import node_recipe as recipes
from specformer.tasks.nodes.node_fit import _with_recipe
from specformer.tasks.nodes.node_recipe import node_recipe
from specformer.tasks.nodes.node_work import NodeWork
from specformer.tasks.resolve import resolve
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

QUICK = ("schedule.epochs=3", "schedule.patience=3", "model.hidden_channels=8")


def names(*changes: str) -> list[str]:
    return list(node_recipe("default", "mine", changes)[1].forms)


def test_default_has_forms_and_named_recipes_have_none() -> None:
    assert names() == ["paper", "smooth-2", "smooth-counts", "deep-3", "deep-8"]
    assert not node_recipe("paper", "cora")[1].forms
    assert not node_recipe("best", "squirrel-filtered")[1].forms
    assert not node_recipe("default", "mine", model="gcn")[1].forms


def test_changes_reach_every_form() -> None:
    changed = node_recipe("default", "mine", ["model.num_heads=2", "schedule.epochs=7"])[1]
    assert {form.model.num_heads for form in changed.forms.values()} == {2}
    assert {form.schedule.epochs for form in changed.forms.values()} == {7}


def test_forms_that_changes_rule_out_are_not_tried() -> None:
    assert names("model.form=deep") == ["smooth-2", "smooth-counts", "deep-3", "deep-8"]
    only = node_recipe("default", "mine", ["model.space=hidden"])[1]
    assert (only.form, only.model.space, only.forms) == ("paper", "hidden", {})


def test_a_form_by_name() -> None:
    named = node_recipe("default", "mine", ["form=deep-8"])[1]
    assert (named.form, named.model.num_layers, named.forms) == ("deep-8", 8, {})
    with pytest.raises(ConfigError, match="odd"):
        node_recipe("default", "mine", ["form=odd"])


@pytest.fixture(autouse=True)
def every_form(here, monkeypatch) -> None:
    """A small graph, and all forms of the model for it, as on a GPU."""
    write_npz(here / "mine.npz", csbm(0.7, num_nodes=150, num_features=6))
    monkeypatch.setattr(recipes, "_MOST_ON_CPU", 2**30)


def result_of(*more: str, runs: int = 2, folder: Path | None = None) -> dict[str, Any]:
    begin = (lambda: None) if folder is None else (lambda: RunFolder(folder))
    return train_source("mine.npz", [*QUICK, *more], begin, runs=runs, recipe="default").result


def test_the_form_that_validates_best_trains() -> None:
    trained = result_of()
    row = trained["nodes"][0]
    tried = row["forms_tried"]
    assert list(tried) == names()
    assert row["form"] == trained["form"] == max(tried, key=tried.get)
    chosen = f"form={row['form']}"
    taken = node_recipe("default", "mine", [*QUICK, chosen])[1]
    assert trained["settings"]["model"] == dataclasses.asdict(taken.model)
    alone = result_of(chosen)
    assert alone["test"]["values"] == trained["test"]["values"]
    assert alone["val"]["mean"] == pytest.approx(tried[row["form"]], abs=1e-7)


def test_large_graphs_on_a_cpu_try_the_papers_form_alone(monkeypatch, caplog) -> None:
    monkeypatch.setattr(recipes, "_MOST_ON_CPU", 10)
    row = result_of(runs=1)["nodes"][0]
    assert row["form"] == "paper"
    assert "forms_tried" not in row
    assert "smooth-2, smooth-counts, deep-3, deep-8 not tried" in caplog.text


def test_on_a_cpu_forms_are_tried_as_far_as_they_are_quick(monkeypatch) -> None:
    """Entries times blocks times width: 2 and 3 and 8 blocks of width 64."""
    monkeypatch.setattr(recipes, "_QUICK_ON_CPU", 500 * 2 * 64)
    monkeypatch.setattr(recipes, "_MOST_ON_CPU", 1000 * 2 * 64)
    recipe = node_recipe("default", "mine")[1]
    cpu = torch.device("cpu")
    assert recipe.tried(100, cpu) == (names(), 3)
    assert recipe.tried(600, cpu) == (names()[:-1], 1)
    assert recipe.tried(1000, cpu) == (["paper", "smooth-2", "smooth-counts"], 1)
    assert recipe.tried(1001, cpu) == (["paper"], 3)
    deep = node_recipe("default", "mine", ["model.form=deep"])[1]
    assert deep.tried(10**9, cpu) == (["smooth-2"], 1)  # one has to do
    assert recipe.tried(10**9, torch.device("cuda")) == (names(), 3)


def test_a_form_with_loops_has_a_spectrum_of_its_own(here) -> None:
    place = Workplace(torch.device("cpu"))
    job = resolve(Request("mine.npz", recipe="default"), 1)
    work = NodeWork.load(job, place).with_spectra(place)
    spectra = {work.recipe.spectrum_key: work.spectrum}
    smooth, paper = (
        _with_recipe(work, work.recipe.taking(name), place, spectra)
        for name in ("smooth-2", "paper")
    )
    adjacency = work.graph.adjacency.toarray() + np.eye(work.graph.num_nodes)
    scale = 1 / np.sqrt(adjacency.sum(axis=1))
    laplacian = np.eye(len(scale)) - scale[:, None] * adjacency * scale
    expected = torch.from_numpy(np.linalg.eigvalsh(laplacian)).float()
    torch.testing.assert_close(smooth.spectrum.eigenvalues, expected, atol=1e-6, rtol=0)
    assert paper.spectrum is work.spectrum
    again = _with_recipe(work, work.recipe.taking("smooth-2"), place, spectra)
    assert again.spectrum is smooth.spectrum


def test_predictions_are_made_with_the_spectrum_of_the_form(call, here) -> None:
    """Those of a run in which the default takes a form with loops, of the graph trained on."""
    changes = [word for change in [*QUICK, "form=smooth-2"] for word in ("--set", change)]
    status, *_ = call("train", "mine.npz", "--runs", 1, *changes, "--out", "run", "--json")
    assert status == 0
    status, _, told = call("predict", "run", "--out", "predictions.csv")
    assert (status, "eigenvalues are" in told) == (0, False)


def test_a_form_prepares_features_in_its_own_way(here) -> None:
    """Words are divided by their number in one form and counted in the other; columns are not."""
    words = np.random.default_rng(0).poisson(0.2, (150, 40)).astype(np.float32)
    graph = csbm(0.7, num_nodes=150, num_features=6)
    write_npz(here / "mine.npz", dataclasses.replace(graph, x=words))
    found = {}
    for form in ("smooth-2", "smooth-counts"):
        begin = lambda: None  # noqa: E731
        trained = train_source("mine.npz", [*QUICK, f"form={form}"], begin, runs=1)
        found[form] = trained.outcome.beside[0]["features.json"]["scaling"]
    assert found == {"smooth-2": "rows", "smooth-counts": "none"}
    assert result_of("form=smooth-counts")["settings"]["features"] == "counts"


def test_a_resumed_run_does_not_try_again(tmp_path, monkeypatch) -> None:
    """Stopped between the second form and the third, then resumed: the first two are known."""
    tried: list[str] = []
    validated = node_fit._validated

    def stopping(work, place, checkpoint, name):
        tried.append(name)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return validated(work, place, checkpoint, name)

    monkeypatch.setattr(node_fit, "_validated", stopping)
    with pytest.raises(KeyboardInterrupt):
        result_of(runs=1, folder=tmp_path)
    said: list[str] = []
    monkeypatch.setattr(Silent, "say", lambda _, text: said.append(text))
    resumed = result_of(runs=1, folder=tmp_path)
    assert "mine: tried before: paper, smooth-2" in said
    third = "smooth-counts"
    assert tried == ["paper", "smooth-2", third, third, "deep-3", "deep-8"]
    whole = result_of(runs=1)
    assert resumed["nodes"][0]["forms_tried"] == whole["nodes"][0]["forms_tried"]
    assert resumed["test"] == whole["test"]
