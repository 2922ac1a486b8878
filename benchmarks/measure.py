r"""Measure time and memory of several candidates in one process, with interleaved repeats."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specformer.training.runs.progress import Progress, Update

#: Trains for the given number of epochs or steps, from the start.
Runner = Callable[[int], object]
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Candidate:
    """What is measured.

    Args:
        name: its name in results.
        build: moves its data to the device, and returns the runner.
        runs: number of models that the runner trains together; times are per model.
        longer: measure this many times the plan's epochs. If epochs are very short, the setup
            time, which varies, would disturb the result.
    """

    name: str
    build: Callable[[], Runner]
    runs: int = 1
    longer: int = 1


@dataclass(frozen=True)
class Measurement:
    """Milliseconds per epoch and model in every repeat, and the peak in megabytes if known."""

    times: tuple[float, ...]
    mb: float | None

    @property
    def ms(self) -> float:
        """The median."""
        return statistics.median(self.times)


@dataclass(frozen=True)
class Plan:
    """How often to measure.

    Args:
        epochs: epochs measured in each repeat.
        repeats: number of repeats; each measures all candidates, one after the other.
        warmup: epochs that do not count. A run of ``warmup`` epochs and one of
            ``warmup + epochs`` are timed, and the difference counts. So neither the setup nor
            the capture of a CUDA graph is included.
    """

    epochs: int
    repeats: int
    warmup: int

    @classmethod
    def on(
        cls, device: torch.device, epochs: int | None = None, repeats: int | None = None
    ) -> Plan:
        """By default enough for stable results on a GPU, and a few epochs on a CPU."""
        gpu = device.type == "cuda"
        return cls(
            epochs=epochs or (100 if gpu else 5),
            repeats=repeats or (5 if gpu else 3),
            warmup=10 if gpu else 1,
        )


@dataclass(frozen=True)
class Setting:
    """Where candidates run.

    Args:
        device: device of all candidates.
        progress: receives every round.
        data: folder with data files.
        cache: folder for spectra.
    """

    device: torch.device
    progress: Progress
    data: str | Path | None = None
    cache: Path | None = None

    def stage(self, case: str, plan: Plan) -> AbstractContextManager[Update]:
        """Show the progress of the rounds of one case."""
        return self.progress.stage(f"bench {case}", plan.repeats + 1, "round")


def measure(
    candidates: Sequence[Candidate],
    device: torch.device,
    plan: Plan,
    update: Update | None = None,
    *,
    memory: bool = True,
) -> dict[str, Measurement]:
    """Measure the memory of each candidate alone, then the times of all, interleaved.

    Args:
        candidates: candidates with different names.
        device: device of all candidates.
        plan: how often to measure.
        update: called with the number of finished rounds, of ``plan.repeats + 1``, and of repeats.
        memory: False to measure no memory, for work that is not on the device.

    Example:
        >>> idle = Candidate("idle", lambda: lambda epochs: None)
        >>> len(measure([idle], torch.device("cpu"), Plan(2, 3, 1))["idle"].times)
        3
    """
    warm = max(1, plan.warmup)
    peaks = {each.name: peak_mb(each, device, warm) if memory else None for each in candidates}
    if update:
        update(1, 0)
    runners = {each.name: each.build() for each in candidates}
    for runner in runners.values():  # set up first what is needed only once
        runner(warm)
    times: dict[str, list[float]] = {each.name: [] for each in candidates}
    for repeat in range(plan.repeats):
        gc.collect()  # here, so that it does not happen in a timed run
        for each in candidates:
            epochs = plan.epochs * each.longer
            short = seconds(runners[each.name], plan.warmup, device)
            long = seconds(runners[each.name], plan.warmup + epochs, device)
            times[each.name].append(1e3 * (long - short) / epochs / each.runs)
        if update:
            update(repeat + 2, repeat + 1)
    return {name: Measurement(tuple(found), peaks[name]) for name, found in times.items()}


def seconds(runner: Runner, epochs: int, device: torch.device) -> float:
    """The wall time of a run; on a GPU until the last kernel has finished."""
    synchronise(device)
    began = time.perf_counter()
    runner(epochs)
    synchronise(device)
    return time.perf_counter() - began


def synchronise(device: torch.device) -> None:
    """Wait for a GPU; a CPU has nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_mb(candidate: Candidate, device: torch.device, epochs: int) -> float | None:
    """The peak memory of one candidate in megabytes.

    On a GPU, the peak of PyTorch's allocator, with all data. On a CPU with Linux, the increase of
    the process's resident memory. This is a lower bound: memory that the host holds already, or
    that earlier work left to the allocator, does not count. Elsewhere None.
    """
    gc.collect()
    if device.type == "cuda":
        # Each candidate counts its own workspaces.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        before = float(torch.cuda.memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        candidate.build()(epochs)
        synchronise(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    candidate.build()(epochs)  # load its libraries, which do not count
    resident = _reset_peak()
    candidate.build()(epochs)
    if resident is None:
        return None
    return max(0.0, (process_memory("VmHWM") - resident) / 1e6)


def _reset_peak() -> float | None:
    """Return freed memory to the system and reset the peak; the resident bytes, None if unknown."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # a function of glibc
        _CLEAR.write_text("5", encoding="ascii")
        return process_memory("VmRSS")
    except (AttributeError, OSError, StopIteration):
        return None


def process_memory(field: str) -> float:
    """A memory size of this process in bytes, by its name in Linux's ``/proc/self/status``."""
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return 1024.0 * float(next(line for line in lines if line.startswith(field)).split()[1])


def ratio(reference: Measurement, ours: Measurement) -> float:
    """How many times as long the reference takes: the median over the repeats.

    Example:
        >>> ratio(Measurement((4.0, 9.0, 5.0), None), Measurement((1.0, 1.0, 1.0), None))
        5.0
    """
    return statistics.median(
        theirs / mine for theirs, mine in zip(reference.times, ours.times, strict=True)
    )


def bench_row(
    case: str, found: Mapping[str, Measurement], floor_ms: float | None, **more: Any
) -> dict[str, Any]:
    """One row of a result.

    Args:
        case: name of the row.
        found: measurements of ``"ours"``, optionally ``"reference"`` and ``"ours10"``; all others
            are peers.
        floor_ms: the least time of an epoch, if known.
        more: further entries.
    """
    ours, ten, reference = found["ours"], found.get("ours10"), found.get("reference")
    others = [name for name in found if name not in ("ours", "reference", "ours10")]
    return {
        "case": case,
        "ours_ms": ours.ms,
        "ours10_ms": ten and ten.ms,
        "reference_ms": reference and reference.ms,
        "ratio": reference and ratio(reference, ours),
        "ratio10": ratio(reference, ten) if reference and ten else None,
        "ours_mb": ours.mb,
        "ours10_mb": ten and ten.mb,
        "reference_mb": reference and reference.mb,
        "floor_ms": floor_ms,
        "peers": {name: found[name].ms for name in others},
        "peers_mb": {name: found[name].mb for name in others},
        **more,
    }
