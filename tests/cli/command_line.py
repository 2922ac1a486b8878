"""The command line in a process of its own, and what its JSON holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib

import specformer

TRAIN_KEYS = {
    "dataset", "model", "recipe", "runs", "metric", "test", "val", "parameters", "seconds",
    "run_dir",
}  # fmt: skip
ROW_KEYS = {
    "model", "recipe", "dataset", "metric", "mean", "ci95", "runs", "paper", "parameters",
}  # fmt: skip
SOURCE = Path(specformer.__file__).parents[1]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """This process's, with a cache of its own and without what changes colours."""
    forcing = ("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TERM")
    kept = {key: value for key, value in os.environ.items() if key not in forcing}
    ours = {
        "PYTHONPATH": str(SOURCE),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": matplotlib.get_cachedir(),  # its list of fonts takes seconds to make
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    return {**kept, **ours, **more}


def run(tmp_path: Path, *arguments: object) -> tuple[int, str, str]:
    """As ``call``, in a process of its own in ``tmp_path``."""
    done = subprocess.run(
        [sys.executable, "-m", "specformer", *map(str, arguments)],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def only_json(done: tuple[int, str, str]) -> dict:
    """The one object on standard output, with nothing beside it on either stream."""
    status, out, err = done
    assert (status, err) == (0, "")
    assert out.count("\n") == 1
    content = json.loads(out)
    assert isinstance(content, dict)
    return content
