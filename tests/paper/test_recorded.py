"""Every number this repository shows is one it has recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import ledger
from specformer.paper.recorded import recorded_rows

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"<!-- results:.*?<!-- /results -->", re.DOTALL)
#: 1.2e-05, 1.22×10⁻⁵: how errors are written. 1e-5, a tolerance, has no digits after a point.
FIGURE = re.compile(r"\d\.\d+\s*(?:[eE][-+]?\d+|[×x·]\s*10(?:[⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹]|\^|<sup>))")


def test_the_ledger_and_the_tables_made_from_it_are_in_order():
    assert ledger.check(ROOT / "results") == []


def test_table_1_is_recorded_whole():
    rows = recorded_rows(ROOT / "results", 1)
    found = {(row["model"], row["recipe"], row["dataset"], row["metric"]) for row in rows}
    assert len(found) == len(rows) == 8 * 5 * 2
    assert all(row["runs"] == 50 for row in rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_error_is_typed_by_hand(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if FIGURE.search(line)]
    assert lines == [], "put it into a <!-- results:… --> block, made by `make tables`"


@pytest.mark.parametrize(
    ("text", "is_figure"),
    [
        ("SSE 1.2e-05 here", True),
        ("1.22×10⁻⁵", True),
        ("1.5 × 10<sup>-3</sup>", True),
        ("within 1e-5", False),
        ("version 2.13.0", False),
        ("0.01 and 10 × 10 pixels", False),
    ],
)
def test_what_counts_as_a_figure(text, is_figure):
    assert bool(FIGURE.search(text)) is is_figure
