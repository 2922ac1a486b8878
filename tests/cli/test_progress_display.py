"""Progress: nothing is cut on a terminal, and a file gets lines while it lasts."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest
from rich.console import Console

from specformer.cli import progress_display
from specformer.cli.progress_display import laid_out, progress_bars
from specformer.errors import ConfigError

FIGURES = {"loss": 0.353, "runs_left": 2.0}


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def plain(text: str) -> str:
    """Without what moves the cursor and colours."""
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text).replace("\r", "")


def terminal(monkeypatch) -> Screen:
    """A terminal in place of standard error; within a test, as pytest puts its own there before."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", found := Screen())
    return found


def lasting(columns: int) -> tuple[io.StringIO, progress_display._Live]:
    """Progress of which only what stays is written."""
    file = io.StringIO()
    return file, progress_display._Live(Console(file=file, width=columns))


@pytest.mark.parametrize("silent", [True, False])
def test_without_a_stage_there_is_nothing(silent, capsys):
    with progress_bars(silent=silent):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("label", ["mine: specformer", "a-data-set-with-a-long-name: specformer"])
def test_nothing_is_cut(columns, label):
    file, progress = lasting(columns)
    with progress.stage(label, 2000, "accuracy") as update:
        update(2000, 0.625, **FIGURES)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    together = " ".join(file.getvalue().split())
    for part in (label, "2,000/2,000", "accuracy 0.625 · loss 0.353 · runs left 2", "0:00"):
        assert part in together


def test_a_terminal_has_a_bar_and_a_file_has_none(monkeypatch, capsys):
    for screen in (terminal(monkeypatch), None):
        if screen is None:
            monkeypatch.undo()
        with progress_bars(silent=False) as progress, progress.stage("mine", 2, "loss") as update:
            update(2, 0.5)
        shown = plain(screen.getvalue()) if screen else capsys.readouterr().err
        assert "mine" in shown
        assert ("━" in shown) == (screen is not None)


@pytest.mark.parametrize("width", range(44, 130, 7))
def test_rows_fit_and_hold_everything_once(width):
    parts = ("mine: specformer", "400/2,000", "accuracy 0.625 · loss 0.353", "0:05, at most 1:20")
    rows = laid_out(*parts, width)
    assert all(len(left) + bar + len(right) + 2 <= width for left, bar, right in rows)
    together = "\n".join(left + right for left, _, right in rows)
    assert all(together.count(part) == 1 for part in parts)
    assert sum(bar > 0 for _, bar, _ in rows) == 1


def test_what_is_one_step_has_neither_count_nor_bar():
    file, progress = lasting(80)
    with progress.stage("mine: spectrum", 1, ""):
        pass
    assert file.getvalue() == "mine: spectrum · 0:00\n"


def test_the_time_left_is_told_as_a_bound(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: now[0])
    stage = progress_display._Stage("mine", 1000, "loss")
    now[0] = 110.0
    stage.update(600, 0.5)  # goes on from a checkpoint: no pace can be told yet
    assert stage.times(ended=False) == "0:10"
    now[0] = 120.0
    stage.update(700, 0.5)
    assert stage.times(ended=False) == "0:20, at most 0:30 left"
    now[0] = 125.0
    assert stage.times(ended=False) == "0:25, at most 0:25 left"
    assert stage.times(ended=True) == "0:25"
    now[0] = 151.0  # all of that has passed, and the next hundred are not done yet
    assert stage.times(ended=False) == "0:51"


def test_the_time_left_forgets_what_checkpoints_held(monkeypatch):
    """Runs in lanes go on one after the other, each with a jump."""
    now = [0.0]
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: now[0])
    stage = progress_display._Stage("mine", 10_000, "loss")
    for done in (1000, 2000, 3000, *range(3001, 3201)):
        now[0] += 1.0
        stage.update(done, 0.5)
    assert stage.times(ended=False) == "3:23, at most 1:53:20 left"


@pytest.mark.parametrize("wanted", [True, False])
def test_no_color(wanted, monkeypatch):
    screen = terminal(monkeypatch)
    if not wanted:
        monkeypatch.setenv("NO_COLOR", "1")
    with progress_bars(silent=False) as progress, progress.stage("mine", 2, "loss") as update:
        update(2, 0.5)
    assert bool(re.search(r"\x1b\[[\d;]*3\dm", screen.getvalue())) == wanted


def test_a_file_gets_lines_while_a_stage_lasts(capsys, monkeypatch):
    monkeypatch.setattr(progress_display, "EVERY", 0.02)
    seen = ""
    with progress_bars(silent=False) as progress:
        progress.say("mine: 3 nodes")
        with progress.stage("mine: gcn", 2000, "accuracy") as update:
            update(400, 0.5, **FIGURES)
            for _ in range(500):  # until a line comes without any further update
                time.sleep(0.01)
                seen += capsys.readouterr().err
                if seen.count("\n") > 1:
                    break
            update(900, 0.625, **FIGURES)
    first, *middle = seen.splitlines()
    assert first == "mine: 3 nodes"
    known = r"mine: gcn · 400/2,000 · accuracy 0\.5 · loss 0\.353 · runs left 2 · \d:\d\d"
    assert re.fullmatch(rf"\d\d:\d\d:\d\d {known}", middle[0])
    assert "900/2,000 · accuracy 0.625" in capsys.readouterr().err


def test_a_stage_that_is_refused_shows_nothing(capsys):
    file, live = lasting(80)
    with progress_bars(silent=False) as logged:
        for progress in (live, logged):
            with progress.stage("first", 2, "loss") as update:
                update(2, 0.5)
            with pytest.raises(ConfigError), progress.stage("second", 2, "loss"):
                raise ConfigError("num_heads=5")
    for shown in (file.getvalue(), capsys.readouterr().err):
        assert "first" in shown
        assert "second" not in shown
