"""Measuring: who is called how often and in which order, differences, memory, rows."""

from __future__ import annotations

import sys

import pytest
import torch

from benchmarks import measure as module
from benchmarks.measure import (
    Candidate,
    Measurement,
    Plan,
    bench_row,
    measure,
    peak_mb,
)

CPU = torch.device("cpu")


def test_repeats_are_interleaved() -> None:
    calls: list[tuple[str, int]] = []

    def candidate(name: str) -> Candidate:
        return Candidate(name, lambda: lambda epochs: calls.append((name, epochs)))

    found = measure(
        [candidate("a"), candidate("b")], CPU, Plan(epochs=4, repeats=2, warmup=3), memory=False
    )
    turn = [("a", 3), ("a", 7), ("b", 3), ("b", 7)]
    assert calls == [("a", 3), ("b", 3), *turn, *turn]
    assert len(found["a"].times) == 2
    assert found["a"].mb is None


def test_the_difference_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock of our own: setting up takes 100 s, an epoch 2 s, and ten runs share it."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])

    def run(epochs: int) -> None:
        clock[0] += 100 + 2 * epochs

    found = measure(
        [
            Candidate("one", lambda: run),
            Candidate("ten", lambda: run, runs=10),
            Candidate("long", lambda: run, longer=4),
        ],
        CPU,
        Plan(epochs=5, repeats=3, warmup=2),
        memory=False,
    )
    assert found["one"].times == (2000.0,) * 3
    assert found["ten"].ms == 200.0
    assert found["long"].ms == 2000.0
    assert clock[0] == 3 * 104 + 3 * (2 * (104 + 114) + 104 + 144)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_peak_of_a_candidate_alone() -> None:
    kept = torch.ones(2**23)  # someone else's 34 MB

    def build() -> object:
        return lambda epochs: torch.ones(2**24).sum()  # 67 MB, freed at once

    mb = peak_mb(Candidate("c", build), CPU, 1)  # type: ignore[arg-type]
    assert mb is not None
    assert 60 < mb < 90
    assert kept.sum() == 2**23


def test_rows() -> None:
    found = {
        "ours": Measurement((1.0, 2.0, 4.0), 10.0),
        "ours10": Measurement((0.5, 0.5, 0.5), 30.0),
        "reference": Measurement((10.0, 10.0, 10.0), 50.0),
        "gprgnn": Measurement((3.0, 5.0, 4.0), None),
    }
    row = bench_row("case", found, 0.1, nodes=7)
    assert row["ratio"] == 5.0
    assert row["ratio10"] == 20.0
    assert row["peers"] == {"gprgnn": 4.0}
    assert row["peers_mb"] == {"gprgnn": None}
    assert (row["ours_ms"], row["ours10_ms"], row["reference_mb"]) == (2.0, 0.5, 50.0)
    assert (row["floor_ms"], row["nodes"]) == (0.1, 7)


def test_plans_fit_the_device() -> None:
    assert Plan.on(CPU).epochs < Plan.on(torch.device("cuda")).epochs
    assert Plan.on(CPU, epochs=7, repeats=2) == Plan(7, 2, 1)
