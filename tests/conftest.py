"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specformer import cli
from specformer.cli import output


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets; without it tests are skipped, but fail in CI."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SPECFORMER_DATA", beside))
    if not folder.is_dir():
        reason = f"no real data at {folder}; set SPECFORMER_DATA to its folder"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, for commands run inside this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECFORMER_DATA", raising=False)
    return tmp_path


@pytest.fixture
def call(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command inside this process: its status, and what it wrote to either stream."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specformer", *map(str, arguments)])
        monkeypatch.setattr(output, "EVERY", 3600.0)  # a busy machine says no more than others
        capfd.readouterr()
        try:
            cli.main()
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return call
