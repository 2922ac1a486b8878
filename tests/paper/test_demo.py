"""The demo, end to end."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.cli.command_line import only_json

from specformer.tasks.recipes.settings import shipped

FILTER_MODELS = {"specformer", "gprgnn", "bernnet"}
NODE_MODELS = {"specformer", "gcn", "gprgnn"}
PARTS = ("test", "val", "test_by_accuracy")


def demo(call) -> dict:
    shown = only_json(call("demo", "--json", "--seed", "0", "--device", "cpu"))
    assert (shown["run_dir"], Path(shown["report"]).name) == ("runs/demo", "report.html")
    check_files(Path(shown["run_dir"]), shown)
    check_filters(shown["filters"])
    check_nodes(shown["nodes"])
    check_report(Path(shown["report"]), shown)
    return shown


def test_a_small_demo(call, monkeypatch):
    def small(name):
        settings = shipped(name)
        settings["filters"] |= {"images": 2, "size": 12}
        settings["nodes"] |= {"num_nodes": 150, "splits": 2}
        for recipe, epochs in (
            (settings["filters"]["specformer"], 60),
            (settings["filters"]["baselines"], 60),
            (settings["nodes"]["recipe"], 20),
        ):
            recipe["schedule"] |= {"epochs": epochs}
        return settings

    monkeypatch.setattr("specformer.paper.demo.shipped", small)
    check_spectra(demo(call)["spectra"], "grid-12x12")


@pytest.mark.slow
def test_the_demo_as_it_is_shipped(call):
    shown = demo(call)
    check_spectra(shown["spectra"], "grid-40x40")
    check_closeness(shown["filters"])
    for row in shown["nodes"]:
        assert min(row[part]["mean"] for part in PARTS) > 0.7


def check_files(folder: Path, shown: dict) -> None:
    files = {path.name for path in folder.iterdir()}
    assert files >= {"config.yaml", "metrics.jsonl", "outputs.npz", "result.json", "report.html"}
    assert not [name for name in files if name.startswith(".") or name.endswith(".part")]
    result = json.loads((folder / "result.json").read_text())
    for key in ("kind", "title", "seconds", "spectra", "filters", "nodes", "command", "created"):
        assert result[key] == shown[key], key
    assert result["kind"] == "demo"
    assert result["seed"] == 0
    assert result["command"] == "specformer demo --seed 0 --device cpu"
    measured = {"specformer", "python", "packages", "device", "cpu_cores", "commit"}
    assert result["environment"].keys() >= measured
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config.items() >= {"command": "demo", "seed": 0, "device": "cpu"}.items()
    readings = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(readings) > 20
    with np.load(folder / "outputs.npz", allow_pickle=False) as arrays:
        assert all(np.asarray(arrays[name]).size for name in arrays.files)


def check_filters(rows: list[dict]) -> None:
    assert {(row["filter"], row["model"]) for row in rows} == {
        (name, model) for name in ("band-rejection", "comb") for model in FILTER_MODELS
    }
    for row in rows:
        assert len(row["sse"]["values"]) == row["images"]


def check_closeness(rows: list[dict]) -> None:
    """Specformer is closest to every filter, by far."""
    for name in {row["filter"] for row in rows}:
        errors = {row["model"]: row["sse"]["mean"] for row in rows if row["filter"] == name}
        others = [error for model, error in errors.items() if model != "specformer"]
        assert errors["specformer"] < min(others) / 10
    assert min(row["r2"]["mean"] for row in rows) > 0.9


def check_nodes(rows: list[dict]) -> None:
    datasets = {row["dataset"] for row in rows}
    assert datasets == {"csbm-homophilic", "csbm-heterophilic"}
    for dataset in datasets:
        found = [row for row in rows if row["dataset"] == dataset]
        assert {row["model"] for row in found} == NODE_MODELS
        assert len({tuple(row["splits"]) for row in found}) == 1  # all saw the same splits
    for row in rows:
        assert row["runs"] == len(row["splits"]) == len(set(row["splits"]))
        for part in PARTS:
            assert 0 < row[part]["mean"] <= 1
            assert row[part]["mean"] == np.mean(row[part]["values"])


def check_spectra(rows: list[dict], grid: str) -> None:
    assert [row["name"] for row in rows] == [grid, "csbm-homophilic", "csbm-heterophilic"]
    for row in rows:
        assert row["num_eigenpairs"] == row["num_nodes"]
        assert row["max_residual"] < 1e-4
        assert row["max_orthogonality_error"] < 1e-4


class Fetched(HTMLParser):
    """What a browser would load beside the page itself."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        for name, value in attrs:
            if name in ("src", "srcset", "data", "xlink:href") or (name == "href" and tag != "a"):
                self.addresses.append(value or "")


def check_report(path: Path, shown: dict) -> None:
    page = path.read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    fetched = Fetched(page)
    assert not [a for a in fetched.addresses if not a.startswith(("data:", "#"))]
    assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", page)
    assert "<svg" in page or "data:image" in page
    for row in (*shown["filters"], *shown["nodes"]):
        assert row.get("filter", row.get("dataset")) in page
    for label in ("Specformer", "GPR-GNN", "BernNet", "GCN"):
        assert label in page
