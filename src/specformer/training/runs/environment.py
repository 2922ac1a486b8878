r"""What a run computes with: device, precision and threads, and what a result says of them."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits

import specformer
from specformer.errors import ConfigError

_PACKAGES = ("torch", "torch-geometric", "numpy", "scipy", "scikit-image")


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware and the source's commit, for a result file.

    ``threads`` is recorded because sums over another number of threads round in another way.
    """
    packages: dict[str, str | None] = dict.fromkeys(_PACKAGES)
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return {
        "specformer": specformer.__version__,
        "python": platform.python_version(),
        "packages": packages,
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
    if stated := os.environ.get("SPECFORMER_COMMIT"):
        return stated
    git = ["git", "-C", str(Path(specformer.__file__).resolve().parent)]
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 10}
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], **options).stdout
        status = [*git, "status", "--porcelain", "--untracked-files=no"]
        changed = subprocess.run(status, **options).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return head.strip() + ("+" if changed else "")


def choose_device(name: str) -> torch.device:
    """``auto`` takes a GPU if there is one; ``cuda`` insists on it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: PyTorch sees no CUDA device; use auto or cpu.")
    if name not in ("cpu", "cuda"):
        raise ConfigError(f"--device {name}: choose auto, cpu or cuda.")
    return torch.device(name)


#: PyTorch's own levels (``torch.set_float32_matmul_precision``): float32, TF32, and TF32 with
#: attention (:func:`specformer.kernels.weighted_attention.carried_attention`) and products with
#: large U (:meth:`specformer.Spectrum.gft`) in bfloat16.
Precision = Literal["highest", "high", "medium"]


@contextmanager
def matmul_precision(level: Precision, device: torch.device) -> Iterator[None]:
    """Set one of PyTorch's levels of float32 products within the block.

    On a CPU nothing changes: less than float32 gains nothing there, and some processors lack the
    instructions that PyTorch would then use.
    """
    if device.type == "cpu":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def one_thread(asked: bool = True) -> Iterator[None]:
    """Compute with one thread, and with deterministic algorithms, if ``asked``.

    Sums over several threads round in another order. This limits PyTorch's threads and those of
    the BLAS in NumPy and SciPy.
    """
    if not asked:
        yield
        return
    threads, repeats = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        with threadpool_limits(1):
            torch.set_num_threads(1)
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(repeats, warn_only=warns)
