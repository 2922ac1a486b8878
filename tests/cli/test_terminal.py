"""What the terminal shows: nothing is cut, whatever its width."""

from __future__ import annotations

import io
import re
import sys

import pytest

from specformer.cli.terminal import show_rows, show_table

HEADER = ("model", *(f"set number {number:02d}" for number in range(12)))
CELLS = [[f"{place}.{number:02d} ± 1.23" for number in range(12)] for place in range(2)]
ROWS = [
    (name, *(f"[bold]{cell}[/bold]" for cell in cells))
    for name, cells in zip(("a model", "another model"), CELLS, strict=True)
]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, columns: int, screen: io.StringIO) -> list[str]:
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    show_table("Many columns", HEADER, ROWS, left=1)
    return re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue()).splitlines()


@pytest.mark.parametrize("columns", [80, 120])
def test_what_is_too_wide_goes_on_below(monkeypatch, columns):
    lines = shown(monkeypatch, columns, Screen())
    assert max(map(len, lines)) <= columns
    text = "\n".join(lines)
    assert all(text.count(cell) == 1 for cell in (*HEADER[1:], *CELLS[0], *CELLS[1]))
    assert text.count("another model") > 1
    assert text.count("Many columns") == 1


@pytest.mark.parametrize(("columns", "screen"), [(300, Screen()), (80, io.StringIO())])
def test_in_a_file_and_on_a_wide_screen_a_row_is_a_line(monkeypatch, columns, screen):
    lines = shown(monkeypatch, columns, screen)
    (line,) = [line for line in lines if "another model" in line]
    assert all(cell in line for cell in CELLS[1])


def test_a_word_longer_than_the_screen_is_folded(monkeypatch):
    path = "/somewhere/" + "long/" * 30 + "data.npz"
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", "60")
    show_table("Files", ("name", "file"), [("mine", path)], left=1)
    text = re.sub(r"\x1b\[[\d;]*m|[│\s]", "", sys.stdout.getvalue())
    assert path in text


def test_a_table_without_rows(capsys):
    show_table("Nothing", ("name", "figure"), [])
    assert "figure" in capsys.readouterr().out


def test_small_and_large_errors_keep_their_digits(monkeypatch):
    figure = {"mean": 2.5e-7, "ci95": 1e-8}
    row = {
        "dataset": "mine", "model": "gcn", "parameters": 10, "metric": "rmse", "test": figure,
        "val": {"mean": 52_345.0, "ci95": None}, "seconds_per_epoch": 1.0, "seconds": 2.0,
    }  # fmt: skip
    monkeypatch.setattr(sys, "stdout", screen := io.StringIO())
    show_rows("molecules", [row])
    assert "2.50×10⁻⁷ ± 0.10×10⁻⁷" in screen.getvalue()
    assert " 52,300 " in screen.getvalue()


def test_several_targets_are_told_one_by_one(monkeypatch):
    figure = {"mean": 0.5, "ci95": None, "values": [0.5]}
    row = {
        "dataset": "mine[1]", "model": "gcn", "parameters": 10, "metric": "rmse", "test": figure,
        "val": figure, "seconds_per_epoch": 1.0, "seconds": 2.0,
    }  # fmt: skip
    several = {"logS [mol/L]": {**figure, "mean": 0.25}, "logP": {**figure, "mean": 0.75}, "": None}
    many = {f"target {number}": figure for number in range(100)}
    monkeypatch.setattr(sys, "stdout", screen := io.StringIO())
    show_rows("molecules", [row | {"test_by_target": several}])
    text = screen.getvalue()
    assert re.search(r"mine\[1\].*logS \[mol/L\].*0\.250", text)
    assert re.search(r"logP.*0\.750", text)
    show_rows("molecules", [row | {"test_by_target": many}, row])
    assert "target" not in screen.getvalue()[len(text) :]


def test_the_table_of_a_training_fits_a_small_screen(monkeypatch):
    figure = {"mean": 0.8333, "ci95": 0.0179, "values": [0.82, 0.84, 0.84]}
    row = {
        "dataset": "csbm-heterophilic", "model": "specformer", "parameters": 1_000_000,
        "metric": "accuracy", "test": figure, "epochs": 383.3, "seconds": 1234.5,
    }  # fmt: skip
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", "80")
    show_rows("nodes", [row])
    text = re.sub(r"\x1b\[[\d;]*m", "", sys.stdout.getvalue())
    assert re.search(r"test accuracy .*\n.*\n.* 83\.3% ± 1\.8 +383 +1234\.5", text)
