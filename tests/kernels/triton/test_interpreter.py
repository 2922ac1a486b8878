"""All kernels in Triton's interpreter, in a Python of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.kernels.triton.graphs import COMPARED

HERE = Path(__file__).parent


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("chosen", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_kernels_interpreted(chosen: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", chosen]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [*command, "-p", "no:xdist", *(str(HERE / name) for name in COMPARED)],
        cwd=HERE.parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
