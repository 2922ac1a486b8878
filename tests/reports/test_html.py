"""The report: whole, self-contained, true to the numbers, and safe to open."""

from __future__ import annotations

import base64
import copy
import hashlib
import os
import re
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from tests.reports.example_run import DATASETS, MODELS, NODE_MODELS, write_run

from specformer.errors import RunError
from specformer.reports import html, numbers
from specformer.reports.html import render_report, write_report
from specformer.reports.looks import look
from specformer.training.runs.folder import OUTPUTS, RunFolder

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(HTMLParser):
    """Collects tags, text and whatever a browser would fetch; refuses unbalanced tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.text: list[str] = []
        self.strong: list[str] = []
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        found = dict(attrs)
        self.tags[tag] += 1
        self.attributes.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        if tag != "a":
            self.fetched += [found[k] for k in ("src", "href", "xlink:href", "data") if k in found]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "strong":
            self.strong.append(data)


@pytest.fixture(scope="module")
def read(page) -> Reader:
    return Reader(page)


def test_report_is_one_balanced_document_with_unique_ids(page, read):
    assert page.startswith("<!DOCTYPE html>")
    assert (read.tags["html"], read.tags["h1"], read.tags["main"]) == (1, 1, 1)
    assert [name for name, times in Counter(read.ids).items() if times > 1] == []


def test_report_fetches_nothing(page, read):
    outside = [
        link for link in read.fetched if not link.startswith(("#", "data:image/png;base64,"))
    ]

    assert outside == []
    assert read.tags["link"] == read.tags["iframe"] == 0
    assert "@import" not in page
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    assert set(re.findall(r'https?://[^"\s<]*', page)) <= {"http://www.w3.org/2000/svg"}


def test_the_policy_allows_the_one_script_and_nothing_from_outside(page):
    (code,) = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()

    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )


def test_references_inside_pictures_resolve(page, read):
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page))

    assert used
    assert used <= set(read.ids)


def test_every_model_and_number_is_there(contents, read):
    text = " ".join(read.text)
    for entry in contents[0]["filters"]:
        assert look(entry["model"]).label in text
        assert numbers.error(entry["sse"]["mean"]) in text
        assert numbers.r_squared(entry["r2"]["mean"]) in text
    for entry in contents[0]["nodes"]:
        mean, ci95 = entry["test"]["mean"], entry["test"]["ci95"]
        assert numbers.percent(mean) in text
        assert f"± {numbers.percent(ci95, like=mean)}" in text
        assert entry["description"] in text
    for told in ("specformer demo --seed 0", "0123456789ab", "2.13.0", "dense", "4 March 2025"):
        assert told in text


def test_best_numbers_are_bold(contents, read):
    rows = contents[0]["filters"]
    for name in {row["filter"] for row in rows}:
        means = sorted(row["sse"]["mean"] for row in rows if row["filter"] == name)
        assert numbers.error(means[0]) in read.strong
        assert numbers.error(means[1]) not in read.strong


def test_every_picture_is_drawn_and_described(read):
    filters = len({"low-pass", "band-rejection", "comb"})
    # Overview; response, images, attention and curve of each filter; accuracy, response, attention
    # and curve of each data set; a spectrum of the grid and of each data set.
    expected = 1 + 4 * filters + 4 * len(DATASETS) + 1 + len(DATASETS)
    hidden = sum("hidden" in found for _, found in read.attributes)  # closer looks at filters
    described = [found for tag, found in read.attributes if tag == "svg" and found.get("role")]

    assert len(described) - hidden == expected
    assert all(found["aria-label"] for found in described)


def test_tables_have_scoped_heads(read):
    heads = [found.get("scope") for tag, found in read.attributes if tag == "th"]

    assert set(heads) == {"col", "row"}
    assert heads.count("row") == 3 * len(MODELS) + 2 * len(NODE_MODELS) + 1


def test_page_suits_dark_narrow_and_print(page):
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert 'name="viewport"' in page
    assert "var(--plot-vermilion, #d55e00)" in page


def test_page_stays_small(page):
    assert len(page) < 2_500_000


@pytest.mark.parametrize("left_out", ["all", "file", "targets", "images", "half"])
def test_missing_arrays_leave_their_pictures_out(contents, tmp_path, left_out):
    result, arrays = few(contents)
    keep = {
        "all": lambda name: name == "filters/titles",
        "file": lambda name: False,
        "targets": lambda name: not name.endswith("/target"),
        "images": lambda name: not name.endswith(("/raw", "/titles", "bernnet/image")),
        "half": lambda name: len(name) % 2 == 0,
    }[left_out]
    kept = {name: array for name, array in arrays.items() if keep(name)}

    read = Reader(render_report(write_run(tmp_path / "run", result, kept)))

    assert "Specformer" in " ".join(read.text)


@pytest.mark.parametrize("without", [("filters",), ("nodes",), ("filters", "nodes", "spectra")])
def test_parts_of_a_result_may_be_absent(contents, tmp_path, without):
    result = {key: value for key, value in contents[0].items() if key not in without}

    read = Reader(render_report(write_run(tmp_path / "run", result, {})))

    assert ("filters" in read.ids) == ("filters" not in without)
    assert ("nodes" in read.ids) == ("nodes" not in without)


def test_bare_result_has_a_report(tmp_path):
    run = write_run(tmp_path / "run", {"kind": "filters", "filters": [], "nodes": []}, {})

    assert "This run recorded no comparison of models." in render_report(run)


def test_what_users_write_is_escaped(contents, tmp_path):
    attack = "<script>alert('x')</script>"
    result, arrays = copy.deepcopy(contents[0]), dict(contents[1])
    result |= {"title": attack, "command": attack, "kind": attack, "created": attack}
    result["environment"]["packages"] = {attack: attack}
    result["spectra"][0] |= {"name": attack, "solver": attack}
    result["filters"] = result["filters"][:2]
    for entry in result["filters"]:
        entry |= {"formula": attack, "recipe": attack}
    result["nodes"] = [result["nodes"][0] | {"dataset": attack, "description": attack}]
    arrays["filters/titles"] = np.array([f"{attack} $x^{{2}}$ --> $"] * 2)

    page = render_report(write_run(tmp_path / "run", result, arrays))

    assert Reader(page).tags["script"] == 1
    assert page.count("<script") == 1
    assert "&lt;script&gt;" in page


def test_one_run_of_one_model_is_not_called_a_mean_or_the_best(tmp_path):
    curve = np.linspace(1.0, 0.5, 5).reshape(5, 1, 1).repeat(3, axis=-1)
    one = {"mean": 0.5, "ci95": None, "values": [0.5]}
    entry = {"dataset": "own", "model": "specformer", "recipe": "default", "runs": 1, "test": one}
    result = {"nodes": [entry], "molecules": [entry | {"metric": "rmse"}]}
    arrays = {f"{kind}/own/specformer/curve": curve for kind in result}

    read = Reader(render_report(write_run(tmp_path / "run", result, arrays)))

    text = " ".join(read.text)
    assert [word for word in ("interval", "mean", "median", "tint", "bold", "all data sets")
            if word in text] == []  # fmt: skip
    assert read.strong == []
    for told in ("Test accuracy.", "Test RMSE. Lower is better.", "What it took."):
        assert told in text


def test_figures_of_another_epoch_are_shown_where_they_differ(tmp_path):
    kept, other = ({"mean": mean, "ci95": None, "values": [mean]} for mean in (0.5, 0.75))
    entry = {
        "dataset": "own", "model": "specformer", "recipe": "default", "runs": 1, "metric": "rmse",
        "test": kept,
    }  # fmt: skip
    for by_metric in (kept, other):
        result = {"molecules": [entry | {"test_by_metric": by_metric}]}
        folder = tmp_path / str(by_metric["mean"])
        text = " ".join(Reader(render_report(write_run(folder, result, {}))).text)
        assert ("at the epoch of the best validation RMSE" in text) == (by_metric != kept)


def test_several_targets_have_figures_of_their_own(tmp_path):
    one = {"mean": 0.5, "ci95": None, "values": [0.5]}
    entry = {
        "dataset": "own", "model": "specformer", "recipe": "default", "runs": 1, "test": one,
        "metric": "rmse", "test_by_target": {"logS": {**one, "mean": 0.25}, "logP": None},
    }  # fmt: skip
    other = entry | {"dataset": "many", "test_by_target": {f"t{n}": one for n in range(100)}}

    result = {"molecules": [entry, other]}
    text = " ".join(Reader(render_report(write_run(tmp_path / "run", result, {}))).text)

    assert "Test RMSE of each target of own." in text
    assert "each target of many" not in text
    for told in ("logS", "0.250", "logP", "–"):
        assert told in text


def test_several_runs_and_models_are_explained(read):
    text = " ".join(read.text)
    for told in (
        "mean over 5 runs ± 95% interval. The best of a data set is bold.",
        "mean over 2 images ± 95% interval. Lower is better; the best of a filter is bold.",
        "Validation accuracy by epoch: the line is the median over runs, the tint their range.",
        "What it took, over all data sets.",
    ):
        assert told in text


def few(contents):
    """The last filter and the last data set of the example."""
    result, arrays = copy.deepcopy(contents[0]), contents[1]
    for key, name in (("filters", "filter"), ("nodes", "dataset")):
        result[key] = [each for each in result[key] if each[name] == result[key][-1][name]]
    return result, arrays


def slim(contents):
    """The same without images: those take longest to draw."""
    result, arrays = few(contents)
    images = ("/image", "/raw", "/true")
    return result, {name: array for name, array in arrays.items() if not name.endswith(images)}


@pytest.mark.parametrize("images", [2, 50])  # of which the arrays hold two
def test_pictures_of_some_images_and_of_one_run_say_so(contents, tmp_path, images):
    result, arrays = slim(contents)
    for entry in result["filters"]:
        entry["images"] = images

    text = " ".join(Reader(render_report(write_run(tmp_path / "run", result, arrays))).text)

    which = "images" if images == 2 else "the first 2 images"
    assert f"a line the median over {which} and the tint around it their range" in text
    assert f"Loss by epoch: the line is the median over {which}, the tint their range" in text
    assert "makes of the graph’s eigenvalues, in the first run." in text
    assert "the mean of Specformer’s heads, in the first run." in text


def test_scaled_curves_are_told(contents, tmp_path):
    told = "Curves of models other than Specformer are scaled to fit their outputs."
    result, arrays = slim(contents)
    for name, model in (("all", None), ("ours", "specformer"), ("no curve", "gat")):
        kept = [entry for entry in result["filters"] if model in (None, entry["model"])]
        run = write_run(tmp_path / name, result | {"filters": kept}, arrays)
        assert (told in " ".join(Reader(render_report(run)).text)) == (model is None)


def test_an_unknown_model_has_a_row(contents, tmp_path):
    result = copy.deepcopy(contents[0])
    result["filters"][0]["model"] = "my-model"
    result["filters"][1]["sse"] = {"mean": None, "ci95": None, "values": []}

    text = " ".join(Reader(render_report(write_run(tmp_path / "run", result, {}))).text)

    assert "my-model" in text


def test_writing_again_replaces_the_report_whole(contents, tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", contents[0] | {"filters": [], "nodes": []}, {})
    path = write_report(run)
    first = path.read_text(encoding="utf-8")
    assert path == run.path / "report.html"
    assert first == render_report(run)

    run.write_result({"title": "Second"})
    write_report(run)
    second = path.read_text(encoding="utf-8")
    assert "<title>Second</title>" in second

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(run)
    assert path.read_text(encoding="utf-8") == second
    assert sorted(item.name for item in run.path.iterdir()) == [
        "config.yaml",
        "report.html",
        "result.json",
    ]


def test_report_is_the_same_each_time(contents, tmp_path):
    result = contents[0] | {"filters": contents[0]["filters"][:5], "nodes": []}
    run = write_run(tmp_path / "run", result, contents[1])

    assert render_report(run) == render_report(run)


def test_damaged_arrays_are_refused(contents, tmp_path):
    run = write_run(tmp_path / "run", contents[0], {})
    (run.path / OUTPUTS).write_bytes(b"not an npz")

    with pytest.raises(RunError, match="damaged"):
        html.render_report(run)


@pytest.mark.parametrize(
    "change",
    [
        {"filters": [{"sse": {"mean": 1.0}}]},
        {"filters": "many"},
        {"nodes": [{"model": "gcn", "dataset": "a", "test": {"mean": "high"}}]},
        {"nodes": [{"model": "gcn", "dataset": "a", "test": 0.5}]},
    ],
    ids=str,
)
def test_a_result_of_another_shape_is_one_sentence(contents, tmp_path, change):
    run = write_run(tmp_path / "run", contents[0] | change, {})
    before = sorted(run.path.iterdir())
    with pytest.raises(RunError, match="no report can be made of it; its files are not as"):
        write_report(run)
    assert sorted(run.path.iterdir()) == before


def test_arrays_of_another_shape_are_one_sentence(contents, tmp_path):
    result, arrays = few(contents)
    names = ("filters/comb/true", "filters/comb/specformer/response", "filters/titles")
    for number, name in enumerate(names):
        odd = arrays | {name: np.zeros(1)}
        with pytest.raises(RunError, match="no report can be made"):
            write_report(write_run(tmp_path / str(number), result, odd))


def test_a_mistake_of_ours_is_not_laid_to_the_run(contents, tmp_path, monkeypatch):
    def mistaken(result):
        raise KeyError("ours")

    run = RunFolder.create(tmp_path / "run", {"command": "demo"})
    run.finish("demo", {}, {}, command="demo", seed=0, device=torch.device("cpu"))
    monkeypatch.setattr(html, "summary", mistaken)
    with pytest.raises(KeyError, match="ours"):
        write_report(run)
