"""Table 1 on two small images: rows as the contract has them, numbers that can be recomputed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.datasets.grid_images import write_grid_images
from tests.tasks.jobs import run_table

from specformer.datasets import FILTERS
from specformer.errors import ConfigError, DataNotFoundError
from specformer.paper.published import TABLE_1
from specformer.paper.tables import table1
from specformer.tasks.recipes.settings import shipped
from specformer.tasks.signal_work import MODELS, signal_recipe
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
ROW_KEYS = {
    "model", "recipe", "dataset", "metric", "mean", "ci95", "runs", "paper", "parameters",
}  # fmt: skip
SHORT = ["schedule.epochs=2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_grid_images(tmp_path_factory.mktemp("data")).parent


def run(data, **options):
    options = {"assignments": SHORT, **options}
    return run_table(table1, data=data, device=CPU, progress=Silent(), **options)


@pytest.fixture(scope="module")
def whole(data):
    return run(data)


def test_rows_are_the_contracts(whole):
    result, _ = whole
    assert result["table"] == 1
    for row in result["rows"]:
        assert row.keys() >= ROW_KEYS
        assert row["runs"] == 2
        assert np.isfinite(row["mean"])
        assert row["ci95"] >= 0
        # "nearly 2K trainable parameters" (Section 5.1)
        assert 1900 <= row["parameters"] <= 2100
    names = [(r["model"], r["recipe"], r["dataset"], r["metric"]) for r in result["rows"]]
    contestants = [(m, "paper") for m in MODELS] + [("specformer", "projected")]
    assert len(names) == len(set(names))
    assert set(names) == {
        (*contestant, name, metric)
        for contestant in contestants
        for name in FILTERS
        for metric in ("sse", "r2")
    }


def test_settings_are_recorded_whole(whole):
    result, _ = whole
    assert set(result["recipes"]) == {"paper", "projected"} == set(shipped("filters.yaml"))
    for recipe in result["recipes"].values():
        assert recipe["schedule"]["epochs"] == 2
        assert recipe["schedule"]["patience"] == 200
    assert result["spectra"][0]["num_nodes"] == 144


def test_means_and_pictures_tell_the_same(whole, data):
    """SSE and R² again, from the images kept for the report."""
    result, arrays = whole
    with np.load(data / "grid-images.npz") as file:
        mask = file["mask"]
    for entry in result["filters"]:
        label = f"{entry['model']} ({entry['recipe']})"
        truth = arrays[f"filters/{entry['filter']}/true"][:, mask].astype(np.float64)
        image = arrays[f"filters/{entry['filter']}/{label}/image"][:, mask]
        sse = ((image - truth) ** 2).sum(axis=1)
        np.testing.assert_allclose(entry["sse"]["values"], sse, rtol=1e-3, atol=1e-6)
        spread = ((truth - truth.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        np.testing.assert_allclose(entry["r2"]["values"], 1 - sse / spread, rtol=1e-3, atol=1e-4)
        assert entry["sse"]["mean"] == pytest.approx(np.mean(entry["sse"]["values"]))


def test_a_part_is_that_part_of_the_whole(whole, data):
    """The first image alone gives its numbers again: a run's seed is its own."""
    part, _ = run(data, images=1, models=["specformer", "bernnet"])
    expected = {
        (e["model"], e["recipe"], e["filter"]): e["sse"]["values"][0] for e in whole[0]["filters"]
    }
    assert len(part["filters"]) == 3 * len(FILTERS)
    for entry in part["filters"]:
        key = (entry["model"], entry["recipe"], entry["filter"])
        assert entry["sse"]["values"] == pytest.approx([expected[key]], rel=1e-3)
    assert all(row["ci95"] is None and row["runs"] == 1 for row in part["rows"])


def test_seeds(data):
    def values(seed: int) -> list[float]:
        result, _ = run(data, seed=seed, models=["specformer"], filters=["comb"])
        return [row["mean"] for row in result["rows"]]

    assert values(0) == values(0)
    assert values(0) != values(1)


def test_choices(data):
    result, arrays = run(
        data, filters=["comb"], models=["specformer"], recipes=["projected"], images=1
    )
    assert {(r["model"], r["recipe"], r["dataset"]) for r in result["rows"]} == {
        ("specformer", "projected", "comb")
    }
    assert arrays["filters/comb/true"].shape == (1, 12, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filters": ["lowpass"]}, "unknown filter 'lowpass'"),
        ({"models": ["gnc"]}, "unknown model 'gnc'.*gcn"),
        ({"recipes": ["papre"]}, "unknown recipe 'papre'.*paper"),
        ({"assignments": ["schedule.epoch=2"]}, "unknown key 'epoch'; did you mean 'epochs'"),
        ({"assignments": ["schedule.epochs=0"]}, "recipe paper: schedule: epochs=0"),
        ({"assignments": ["landmarks=0"]}, "landmarks=0"),
        ({"assignments": ["model.num_blocks=0"]}, "num_blocks=0"),
        ({"assignments": ["model.init_std=0"]}, "init_std=0.0"),
        ({"images": 3}, "3 images asked for"),
    ],
)
def test_what_is_unknown_is_refused_before_any_work(options, message, data):
    with pytest.raises(ConfigError, match=message):
        run(data, **options)


def test_missing_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPECFORMER_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match=r"grid-images\.npz"):
        run(tmp_path)


def test_the_papers_figures():
    assert list(TABLE_1) == list(MODELS)
    assert TABLE_1["gcn"]["sse"]["high-pass"] == 67.6635
    assert TABLE_1["gat"]["r2"]["band-pass"] == 0.4823
    assert TABLE_1["chebnet"]["sse"]["comb"] == 4.0735
    assert TABLE_1["gprgnn"]["r2"]["low-pass"] == 0.9984
    assert TABLE_1["bernnet"]["sse"]["band-rejection"] == 0.9313
    assert TABLE_1["jacobiconv"]["sse"]["comb"] == 0.2933
    assert list(TABLE_1["specformer"]["sse"].values()) == [0.0002, 0.0026, 0.0017, 0.0014, 0.0057]
    for model in TABLE_1.values():
        assert list(model["sse"]) == list(model["r2"]) == list(FILTERS)
        assert all(0 < value < 1 for value in model["r2"].values())


def test_rows_stand_beside_the_papers_figures(whole):
    for row in whole[0]["rows"]:
        assert row["paper"] == TABLE_1[row["model"]][row["metric"]][row["dataset"]]


@pytest.mark.parametrize("name", shipped("filters.yaml"))
def test_every_recipe_builds_and_says_what_it_is(name):
    recipe = signal_recipe(name)
    assert recipe.description.endswith(".")
    assert recipe.model.hidden_channels == 16
    assert recipe.schedule.learning_rate == 0.01
