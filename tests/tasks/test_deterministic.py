"""The flag that makes results the same with any number of threads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.tasks.jobs import train_source
from tests.training.small_graphs import small_set

from specformer.graphs import write_graph_set
from specformer.tasks.job import Request
from specformer.tasks.resolve import resolve

EPOCHS = ["schedule.epochs=3"]


@pytest.fixture(autouse=True)
def _threads() -> None:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("source", ["csbm", "small.npz"])
def test_one_and_two_threads_give_the_same_numbers(source: str, here: Path) -> None:
    write_graph_set(here / "small.npz", small_set(60))
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        # A fresh cache for each: what one left must not be what makes them equal.
        options = {"deterministic": True, "runs": 1, "cache": here / f"cache-{threads}"}
        found.append(train_source(source, EPOCHS, **options))
        assert torch.get_num_threads() == threads
    one, two = found
    assert one.result["test"] == two.result["test"]
    states = [each.outcome.models[0].state_dict() for each in found]
    assert all(states[0][name].equal(states[1][name]) for name in states[0])


def test_spectra_of_other_numbers_of_threads_are_left_alone(here: Path) -> None:
    train_source("csbm", EPOCHS, runs=1, cache=here / "cache")
    usual = {path.name for path in (here / "cache").iterdir()}
    train_source("csbm", EPOCHS, runs=1, cache=here / "cache", deterministic=True)
    assert {path.name for path in (here / "cache").iterdir()} - usual == {"one-thread"}


def test_a_run_that_goes_on_knows_of_it() -> None:
    assert resolve(Request("csbm"), deterministic=True).config["deterministic"] is True
    assert "deterministic" not in resolve(Request("csbm")).config
