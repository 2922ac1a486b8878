"""What is under way is said at once, and again until there is progress to see."""

from __future__ import annotations

import logging
import time

import pytest

from specformer.cli import output
from specformer.cli.output import echo, heartbeat, start_heartbeat, without_heartbeat


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "EVERY", 0.01)


def heard(capfd: pytest.CaptureFixture[str], lines: int) -> list[str]:
    """Wait until so many lines were written, however long that takes."""
    found: list[str] = []
    while len(found) < lines:
        time.sleep(0.01)
        found += capfd.readouterr().err.splitlines()
    return found


def test_words_are_said_again_until_the_command_ends(capfd: pytest.CaptureFixture[str]) -> None:
    with heartbeat():
        start_heartbeat("Reading mine.", silent=False)
        first, second, *_ = heard(capfd, 2)
    assert first == "Reading mine."
    assert second[8:] == " Reading mine · 0 s"
    capfd.readouterr()
    time.sleep(0.05)
    assert capfd.readouterr().err == ""


def test_a_stage_tells_its_own_progress(capfd: pytest.CaptureFixture[str]) -> None:
    with heartbeat():
        start_heartbeat("Reading mine.", silent=False)
        with without_heartbeat():
            time.sleep(0.03)  # a line that was on its way
            capfd.readouterr()
            time.sleep(0.05)
            assert capfd.readouterr().err == ""
        assert heard(capfd, 1)[0][8:].startswith(" Still working · ")


def test_on_a_terminal_one_line_is_written_over(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_is_terminal", lambda: True)
    err = ""
    with heartbeat():
        start_heartbeat("Reading mine.", silent=False)
        while err.count("\r\x1b[2K") < 2:
            time.sleep(0.01)
            err += capfd.readouterr().err
        with without_heartbeat():
            time.sleep(0.03)  # a line that was on its way
            echo("Read.", err=True)
            err += capfd.readouterr().err
    first, over, *others = err.split("\n")
    assert first == "Reading mine."
    *waits, last = over.split("\r\x1b[2K")[1:]
    assert {wait[8:] for wait in waits} <= {" Reading mine · 0 s", ""}
    assert (last, others) == ("Read.", [""])


def test_a_warning_takes_the_line_too(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_is_terminal", lambda: True)
    usual, err = logging.lastResort, ""
    logger = logging.getLogger("specformer.tasks")
    monkeypatch.setattr(logger, "propagate", False)  # to pytest's own handlers
    with heartbeat():
        start_heartbeat("Reading mine.", silent=False)
        while "\r\x1b[2K" not in err:
            time.sleep(0.01)
            err += capfd.readouterr().err
        with without_heartbeat():
            time.sleep(0.03)  # a line that was on its way
            logger.warning("Mind %s.", "the gap")
            err += capfd.readouterr().err
    assert err.endswith("\r\x1b[2KMind the gap.\n")
    assert logging.lastResort is usual


def test_silence_where_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    with heartbeat():
        start_heartbeat("Reading mine.", silent=True)
        time.sleep(0.05)
    with without_heartbeat():  # outside of a command too
        pass
    assert capfd.readouterr().err == ""
