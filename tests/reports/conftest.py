"""A run folder to report on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reports.example_run import example, write_run

from specformer.reports.html import render_report
from specformer.training.runs.folder import RunFolder


@pytest.fixture(scope="session")
def contents() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return example()


@pytest.fixture(scope="session")
def run(contents, tmp_path_factory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("runs") / "demo", *contents)


@pytest.fixture(scope="session")
def page(run) -> str:
    return render_report(run)
