"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


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
