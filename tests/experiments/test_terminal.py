"""Tables on the terminal: nothing is cut, whatever the width."""

from __future__ import annotations

import pytest

from specformer.experiments.terminal import show_table

HEADER = ("model", *(f"set number {number}" for number in range(12)))
ROWS = [
    (name, *(f"[bold]{place}.{number:02d} ± 1.23[/bold]" for number in range(12)))
    for place, name in enumerate(("a model", "another model"))
]


@pytest.fixture
def lines(capsys) -> list[str]:
    show_table("Many columns", HEADER, ROWS, left=1)
    return capsys.readouterr().out.splitlines()


def test_what_is_too_wide_goes_on_below(lines):
    assert max(map(len, lines)) <= 160
    shown = "\n".join(lines)
    for cell in (*HEADER[1:], *(f"{place}.{n:02d} ± 1.23" for place in (0, 1) for n in range(12))):
        assert shown.count(cell) >= 1
    assert shown.count("another model") == shown.count("Many columns") + 1 == 2


def test_a_table_without_rows(capsys):
    show_table("Nothing", ("name", "figure"), [])
    assert "figure" in capsys.readouterr().out
