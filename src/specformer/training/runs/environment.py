r"""What a result was measured with: versions, hardware, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import specformer
from specformer.errors import ConfigError

_PACKAGES = ("torch", "torch-geometric", "numpy", "scipy", "scikit-image")


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware and the source's commit, for a result file.

    ``threads`` is recorded because sums over another number of threads round in another way.
    """
    return {
        "specformer": specformer.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "device": device_name(device),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": commit(),
    }


def device_name(device: torch.device) -> str:
    """The GPU's own name, or the CPU's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the checkout this package runs from, None for an installed package.

    A ``+`` behind it says that files differ from it. ``SPECFORMER_COMMIT`` states it where git is
    absent.
    """
    stated = os.environ.get("SPECFORMER_COMMIT")
    if stated:
        return stated
    here = Path(specformer.__file__).resolve().parent
    try:
        head = _git(here, "rev-parse", "--short=12", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def choose_device(name: str) -> torch.device:
    """``auto`` takes a GPU if there is one; ``cuda`` insists on it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: PyTorch sees no CUDA device; use auto or cpu.")
    if name not in ("cpu", "cuda"):
        raise ConfigError(f"--device {name}: choose auto, cpu or cuda.")
    return torch.device(name)
