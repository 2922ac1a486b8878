"""The demo, end to end, as a user runs it.

One test for all of it: it takes a minute, and pytest-xdist would run a shared fixture once a
worker.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import yaml
from tests.cli.command_line import only_json, run

FILTER_MODELS = {"specformer", "gprgnn", "bernnet"}
NODE_MODELS = {"specformer", "gcn", "gprgnn"}


def test_demo(tmp_path):
    shown = only_json(run(tmp_path, "demo", "--json", "--seed", "0", "--device", "cpu"))
    folder = tmp_path / shown["run_dir"]
    assert folder == tmp_path / "runs" / "demo"
    assert Path(shown["report"]).name == "report.html"
    check_files(folder, shown)
    check_filters(shown["filters"])
    check_nodes(shown["nodes"])
    check_spectra(shown["spectra"])
    check_report(tmp_path / shown["report"], shown)


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
    assert len(readings) > 100
    with np.load(folder / "outputs.npz", allow_pickle=False) as arrays:
        assert all(np.asarray(arrays[name]).size for name in arrays.files)


def check_filters(rows: list[dict]) -> None:
    """Specformer is closest to every filter, by far."""
    names = {row["filter"] for row in rows}
    assert len(names) >= 2
    for name in names:
        errors = {row["model"]: row["sse"]["mean"] for row in rows if row["filter"] == name}
        assert errors.keys() == FILTER_MODELS
        others = [error for model, error in errors.items() if model != "specformer"]
        assert errors["specformer"] < min(others) / 10
    for row in rows:
        assert len(row["sse"]["values"]) == row["images"] == 4
        assert row["r2"]["mean"] > 0.9


def check_nodes(rows: list[dict]) -> None:
    datasets = {row["dataset"] for row in rows}
    assert datasets == {"csbm-homophilic", "csbm-heterophilic"}
    for dataset in datasets:
        found = [row for row in rows if row["dataset"] == dataset]
        assert {row["model"] for row in found} == NODE_MODELS
        assert len({tuple(row["splits"]) for row in found}) == 1  # all saw the same splits
    for row in rows:
        assert row["runs"] == len(row["splits"]) == len(set(row["splits"]))
        for part in ("test", "val", "test_by_accuracy"):
            assert 0.7 < row[part]["mean"] <= 1
            assert row[part]["mean"] == np.mean(row[part]["values"])


def check_spectra(rows: list[dict]) -> None:
    assert [row["name"] for row in rows] == ["grid-40x40", "csbm-homophilic", "csbm-heterophilic"]
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
