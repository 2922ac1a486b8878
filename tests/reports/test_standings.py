"""Runs side by side: nothing is lost, nothing is mixed up, differences are scipy's."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
from scipy import stats
from tests.reports.example_run import example, write_run

from specformer.errors import RunError
from specformer.reports.html import render_comparison
from specformer.reports.standings import differing_settings, merged_runs, names_of_runs
from specformer.reports.variants import Rows
from specformer.training.runs.folder import RunFolder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two runs of Specformer on the same splits of one data set, the second a little better."""
    folder = tmp_path_factory.mktemp("pair")
    result, arrays = example()
    nodes = [each for each in result["nodes"] if each["model"] == "specformer"]
    first = {**result, "filters": [], "nodes": [{**nodes[0], "splits": list("abcde")}]}
    second = copy.deepcopy(first)
    test = second["nodes"][0]["test"]
    test["values"] = [x + d for x, d in zip(test["values"], [0.03, 0.02, 0.04, 0.03, 0.03],
                                            strict=True)]  # fmt: skip
    test["mean"] = float(np.mean(test["values"]))
    other = {
        key: array + 1 if key.endswith("/response") else array for key, array in arrays.items()
    }
    return write_run(folder / "one", first, arrays), write_run(folder / "two", second, other)


def test_each_run_keeps_its_numbers_and_arrays(pair):
    result, arrays = merged_runs(pair)

    assert [entry["recipe"] for entry in result["nodes"]] == ["one", "two"]
    ((_, _, found),) = list(Rows.of("nodes", result, arrays).found("response"))
    by_label = {style.label: array for style, array in found.items()}
    assert set(by_label) == {"Specformer (one)", "Specformer (two)"}
    gap = by_label["Specformer (two)"] - by_label["Specformer (one)"]
    np.testing.assert_allclose(gap, 1.0)


def test_runs_on_different_images_are_not_laid_over_each_other(tmp_path):
    result, arrays = example()
    smaller = {
        key: array[..., :-3] if key.startswith("filters/") and array.ndim else array
        for key, array in arrays.items()
    }
    runs = [write_run(tmp_path / "a", result, arrays), write_run(tmp_path / "b", result, smaller)]
    _, found = merged_runs(runs)

    kept = {key for key in arrays if key.startswith("filters/") and key in found}
    assert "filters/eigenvalues" in arrays
    assert not kept
    assert "Squared error" in render_comparison(runs)


def test_costs_name_the_recipes_and_not_the_runs(tmp_path):
    result, arrays = example()
    nodes = [each for each in result["nodes"] if each["model"] == "specformer"][:1]
    runs = [
        write_run(
            tmp_path / name, {"nodes": [{**nodes[0], "recipe": recipe, "form": "deep-3"}]}, arrays
        )
        for name, recipe in (("one", "default"), ("two", "quick.yaml"))
    ]
    page = render_comparison(runs)
    costs = page[page.index("What it took") :]
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", costs[costs.index("<tbody>") :])
    assert [cell for cell in cells if "deep-3" in cell] == ["default, deep-3", "quick.yaml, deep-3"]
    assert "Specformer (one)" in costs


def test_paired_differences_are_corrected_and_told(pair):
    page = render_comparison(pair)
    one, two = (run.result()["nodes"][0]["test"]["values"] for run in pair)
    gaps = np.subtract(two, one)
    error = gaps.std(ddof=1) * np.sqrt(1 / 5 + 1 / 3)
    p = 2 * stats.t.sf(gaps.mean() / error, 4)

    table = re.search(r"<table[^>]*>\s*<caption>[^§]*?Verdict.*?</table>", page, re.S).group()
    row = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", table[table.index("<tbody>") :])
    half = stats.t.ppf(0.975, 4) * error
    assert row == [
        "Specformer (two)", "Specformer (one)", f"+{100 * gaps.mean():.1f}",
        f"± {100 * half:.1f}", f"{p:.3f}", "holds" if p < 0.05 else "may be chance",
    ]  # fmt: skip


def test_only_settings_that_differ_are_listed(tmp_path):
    shared = {"seed": 0, "device": "cpu"}
    runs = {
        "a": RunFolder.create(tmp_path / "a", {**shared, "settings": {"model": {"heads": 2}}}),
        "b": RunFolder.create(
            tmp_path / "b",
            {
                **shared,
                "device": "cuda",
                "settings": {"model": {"heads": 4}, "rate": 0.1, "forms": {"paper": {"k": 1}}},
            },
        ),
    }

    assert differing_settings(runs).rows == (
        ("model.heads", "2", "4"), ("rate", "–", "0.1"), ("forms", "–", "paper"),
    )  # fmt: skip


def test_settings_are_those_of_the_form_that_was_taken(tmp_path):
    auto = {"form": "auto", "model": {"epsilon": 100.0}, "forms": {"deep": {}, "paper": {}}}
    runs = {}
    for form, epsilon in (("deep", 10.0), ("paper", 100.0)):
        runs[form] = RunFolder.create(tmp_path / form, {"seed": 0, "settings": auto})
        used = {"form": form, "model": {"epsilon": epsilon}, "forms": {}, "idle": form}
        runs[form].write_result({"settings": used})
    assert differing_settings(runs).rows == (
        ("form", "deep", "paper"), ("model.epsilon", "10.0", "100.0"),
    )  # fmt: skip


def test_settings_of_one_model_alone_are_no_difference_to_another(tmp_path):
    settings = {
        "a": {"forms": {"paper": {}}, "rate": 1},
        "b": {"baseline": {"heads": 2}, "rate": 2},
    }
    runs = {
        name: RunFolder.create(tmp_path / name, {"model": name, "settings": own})
        for name, own in settings.items()
    }
    assert differing_settings(runs).rows == (("model", "a", "b"), ("rate", "1", "2"))


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [RunFolder(tmp_path / part) for part in ("x/run", "y/run", "z")]

    assert list(names_of_runs(runs)) == ["x/run", "y/run", "z"]
    with pytest.raises(RunError, match="every run once"):
        names_of_runs([runs[0], runs[0]])


def test_nothing_to_compare_is_said(tmp_path):
    runs = [write_run(tmp_path / name, {"kind": "nodes"}, {}) for name in "ab"]

    with pytest.raises(RunError, match="figures to compare"):
        render_comparison(runs)


def test_runs_on_different_data_are_shown_without_pairs(tmp_path):
    result, arrays = example()
    runs = [
        write_run(
            tmp_path / name,
            {"nodes": [each for each in result["nodes"] if each["dataset"] == name]},
            arrays,
        )
        for name in ("csbm-homophilic", "csbm-heterophilic")
    ]

    page = render_comparison(runs)

    assert "csbm-homophilic" in page
    assert "csbm-heterophilic" in page
