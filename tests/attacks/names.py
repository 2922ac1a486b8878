"""Names that are not names: of nodes, classes, columns, files and folders, opened in Chromium."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.attacks.scene import call, inside
from tests.attacks.tally import Tally
from tests.reports.browser import opened, start_browser

from specformer.datasets import csbm

NAMES: list[str] = json.loads((Path(__file__).parent / "corpus" / "names.json").read_text())
_FEW = ["--quiet", "--device", "cpu", "--runs", "1", "--set", "schedule.epochs=2", "--cache", "c"]
#: Tags that a report has none of: a name would have brought them.
_FOREIGN = "b, img, iframe, object, video, form, input, base, plaintext, textarea, svg[onload]"


def attack(scene: Path, tries: int) -> Iterator[Tally]:
    """So many names, each in every place, or all of them."""
    tally = Tally("hostile name in Chromium", "nodes, classes, columns, files, folders")
    graph = csbm(0.6, num_nodes=40, num_features=3, seed=3)
    (scene / "names").mkdir()
    with inside(scene / "names"), _browser() as browser:
        for name in NAMES[:tries]:
            tally.attempt(lambda name=name: _is_harmless(name, graph, browser), repr(name[:40]))
            assert not Path("taken").exists(), name
    yield tally


@contextmanager
def _browser() -> Iterator[Any]:
    yield from start_browser()


def _is_harmless(name: str, graph: Any, browser: Any) -> bool:
    """Whether a report of a run full of that name is a page without anything of its own."""
    folder = f"{_as_file(name)}.d"
    Path(folder).mkdir()
    _write(Path(folder) / "nodes.csv", ["id", name, f"{name}2", "label"], [
        [f"{name}{i}", *row[:2], f"{name}{label}"]
        for i, (row, label) in enumerate(zip(graph.x.tolist(), graph.y.tolist(), strict=True))
    ])  # fmt: skip
    ends = zip(*graph.adjacency.nonzero(), strict=True)
    _write(Path(folder) / "edges.csv", ["source", "target"],
           [[f"{name}{a}", f"{name}{b}"] for a, b in ends if a < b])  # fmt: skip
    run = f"{_as_file(name)}.run"
    for words in (
        ["train", f"./{folder}", "--model", "gcn", *_FEW, "--out", f"./{run}"],
        ["predict", f"./{run}", "--device", "cpu", "--out", "predictions.csv"],
        ["verify", f"./{run}"],
    ):
        if (status := call(*words)) == 2:
            raise OSError(words[0])  # refused with a sentence
        assert status == 0, words[0]
    with Path("predictions.csv").open(newline="", encoding="utf-8") as file:
        cells = [row[0] for row in csv.reader(file)]
    assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for cell in cells), cells[:3]
    with opened(browser, Path(run).absolute() / "report.html") as page:
        assert page.locator("script").count() == 1
        assert page.locator(_FOREIGN).count() == 0
        assert page.evaluate("window.taken") is None
        assert page.locator("h1").is_visible()
    return True


def _as_file(name: str) -> str:
    """The name as one of a file: without what no system takes, and short enough."""
    text = re.sub(r"[/\x00]", "", name)
    return os.fsencode(text)[:200].decode(errors="ignore")


def _write(path: Path, head: list[str], rows: list[list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
