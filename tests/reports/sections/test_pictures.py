"""Pictures on a page: a line, a panel and a row for every recipe, read back from the SVG."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.reports.example_run import statistics, write_run

from specformer.reports.html import render_report
from specformer.reports.looks import look
from specformer.reports.sections import filter_section, node_section, pictures
from specformer.reports.variants import Rows

SVG = "{http://www.w3.org/2000/svg}"
RECIPES = ("paper", "best")
EPOCHS, RUNS = 12, 3


@pytest.fixture(scope="module")
def run() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Two recipes of Specformer and GCN on a graph; the recipes' spectra differ in length."""
    rng = np.random.default_rng(0)
    arrays, entries = {}, []
    for recipe, length in zip(RECIPES, (20, 30), strict=True):
        where = f"nodes/cora/specformer ({recipe})"
        arrays[f"{where}/eigenvalues"] = np.linspace(0, 2, length)
        arrays[f"{where}/response"] = rng.normal(size=(length, 2))
        arrays[f"{where}/attention"] = rng.dirichlet(np.ones(3), size=(2, 3))
    for model, recipe in (("gcn", "default"), *(("specformer", name) for name in RECIPES)):
        arrays[f"nodes/cora/{model} ({recipe})/curve"] = rng.random((EPOCHS, RUNS, 3))
        test = statistics(rng.random(RUNS))
        entries.append(
            {"dataset": "cora", "model": model, "recipe": recipe, "runs": RUNS, "test": test}
        )
    return {"nodes": entries}, arrays


def lines(svg: str, color: str) -> list[np.ndarray]:
    """The points ``[n, 2]`` of every line of a colour, without its legend's."""
    found = []
    for path in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        style = path.get("style", "")
        if "fill: none" in style and f"{color})" in style:
            numbers = re.findall(r"-?[\d.]+", path.get("d", ""))
            found.append(np.array(numbers, float).reshape(-1, 2))
    return [points for points in found if len(points) > 2]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_every_recipe_has_its_own_learning_curve(run):
    result, arrays = run
    (picture,) = pictures.by_epoch(Rows.of("nodes", result, arrays), 2)

    assert [line.label for line in picture.key] == [
        "GCN",
        "Specformer (paper)",
        "Specformer (best)",
    ]
    drawn = lines(picture.svg, look("specformer").color)
    assert len(drawn) == len(RECIPES)
    assert len(lines(picture.svg, look("gcn").color)) == 1
    # Heights on the page fall by one and the same factor of what was measured.
    read = np.concatenate([points[:, 1] for points in drawn])
    curves = [arrays[f"nodes/cora/specformer ({recipe})/curve"] for recipe in RECIPES]
    true = np.concatenate([np.median(curve[..., 2], axis=1) for curve in curves])
    slope, intercept = np.polyfit(true, read, 1)
    assert slope < 0
    np.testing.assert_allclose(read, slope * true + intercept, atol=0.02)


def test_every_recipe_has_its_own_heads_and_attention(run):
    result, arrays = run
    rows = Rows.of("nodes", result, arrays)
    heads, attention = list(pictures.heads(rows)), list(pictures.attention(rows))

    assert len(heads) == len(attention) == len(RECIPES)
    for recipe, head, heat in zip(RECIPES, heads, attention, strict=True):
        assert f"Specformer ({recipe})" in texts(head.svg)
        mean = arrays[f"nodes/cora/specformer ({recipe})/attention"].mean(axis=0)
        assert [text for text in texts(heat.svg) if re.fullmatch(r"\d\.\d\d", text)] == [
            f"{value:.2f}" for value in mean.ravel()
        ]


def test_every_recipe_has_its_own_row_of_accuracies(run):
    (picture,) = node_section.accuracies(Rows.of("nodes", *run))
    assert {"GCN", "Specformer (paper)", "Specformer (best)"} <= set(texts(picture.svg))


def test_errors_at_a_glance_scroll_where_they_would_shrink_on_a_phone():
    entries = [
        {"filter": "comb", "model": model, "recipe": "paper", "sse": {"mean": mean}}
        for model, mean in (("gcn", 50.0), ("specformer", 0.1))
    ]
    (picture,) = filter_section.overview(Rows.of("filters", {"filters": entries}, {}))
    assert picture.wide
    assert {"comb", "GCN", "Specformer"} <= set(texts(picture.svg))
    assert not list(
        filter_section.overview(Rows.of("filters", {"filters": entries[:1]}, {}))
    )  # nothing to compare


def test_spectra_are_drawn_once_unless_they_differ(run):
    result, arrays = run
    assert len(list(pictures.spectra(result, arrays))) == 2
    same = arrays["nodes/cora/specformer (paper)/eigenvalues"]
    equal = arrays | {"nodes/cora/specformer (best)/eigenvalues": same.copy()}
    (picture,) = pictures.spectra(result, equal)
    assert "cora" in texts(picture.svg)


def test_images_and_errors_belong_to_the_same_recipe():
    rng = np.random.default_rng(1)
    true = rng.random((1, 6, 6))
    learned = {"paper": true + 0.5, "projected": true + 0.01}
    arrays = {"filters/comb/true": true}
    arrays |= {
        f"filters/comb/specformer ({name})/image": images for name, images in learned.items()
    }
    entries = [
        {
            "filter": "comb",
            "model": "specformer",
            "recipe": name,
            "sse": statistics(np.square(images - true).sum((1, 2))),
        }
        for name, images in learned.items()
    ]

    (picture,) = filter_section.filtered_images(Rows.of("filters", {"filters": entries}, arrays))

    # 36 pixels, each half or a hundredth off.
    assert [text for text in texts(picture.svg) if "SSE" in text] == ["SSE 9.00", "SSE 0.00360"]


def test_a_single_filter_is_drawn_on_every_image_kept():
    rng = np.random.default_rng(2)
    true = rng.random((3, 6, 6))
    arrays = {"filters/titles": np.array(["image 19", "image 28", "image 4"])}
    for name in ("comb", "low-pass"):
        arrays |= {f"filters/{name}/true": true, f"filters/{name}/gprgnn (paper)/image": true}
    entries = [
        {"filter": name, "model": "gprgnn", "recipe": "paper", "sse": statistics(np.zeros(3))}
        for name in ("comb", "low-pass")
    ]

    def drawn(shown):
        found = filter_section.filtered_images(Rows.of("filters", {"filters": shown}, arrays))
        return [next(text for text in texts(p.svg) if "image" in text) for p in found]

    assert drawn(entries) == ["comb, image 19", "low-pass, image 28"]
    assert drawn(entries[:1]) == ["comb, image 19", "comb, image 28", "comb, image 4"]


def test_the_page_has_one_key_for_all_lines(run, tmp_path):
    result, arrays = run
    page = render_report(write_run(tmp_path / "run", result, arrays))
    *heads, key = re.findall(r'<ul class="key".*?</ul>', page, flags=re.S)
    assert all("head 1" in each for each in heads)
    assert re.findall(r"</svg>\s*([^<]+)</li>", key) == [
        "GCN",
        "Specformer (paper)",
        "Specformer (best)",
    ]
    dashes = re.findall(r"stroke-dasharray: ([^\"]+)", key)
    assert len(set(dashes)) == 3
