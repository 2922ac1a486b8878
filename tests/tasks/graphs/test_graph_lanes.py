"""Runs in several processes at once: the same numbers, and every failure heard."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.jobs import learn

from specformer.errors import ConfigError, RunError
from specformer.graphs import GraphSet
from specformer.spectrum import decompose_many
from specformer.tasks.graphs.graph_recipe import graph_recipe
from specformer.tasks.graphs.graph_work import GraphWork, graph_splits
from specformer.tasks.job import Workplace
from specformer.tasks.task import Outcome
from specformer.training.engine.distributed import Workers
from specformer.training.runs.progress import Silent, Update

FAST = ["model.hidden_channels=8", "model.num_heads=2", "model.num_layers=1", "schedule.epochs=3"]


def rings() -> GraphSet:
    random = np.random.default_rng(0)
    sizes = random.integers(3, 7, 40)
    ends = [np.stack([np.arange(n), (np.arange(n) + 1) % n]) for n in sizes]
    return GraphSet(
        sizes,
        sizes,
        np.concatenate(ends, axis=1),
        node_feat=random.integers(0, 5, (sizes.sum(), 1)),
        edge_feat=random.integers(0, 2, (sizes.sum(), 1)),
        y=random.standard_normal((40, 1)),
        name="rings",
    )


def learned(settings=(), *, lanes: int, runs: int = 3, progress=None, **options) -> Outcome:
    graphs = rings()
    recipe = graph_recipe("default", "rings.npz", [*FAST, *settings])[1].settled(graphs)
    splits = graph_splits(graphs, recipe, runs, seed=4)
    device = torch.device("cpu")
    job = GraphWork(graphs, splits, "specformer", recipe, 4, device, decompose_many(graphs))
    return learn(job, progress=progress or Silent(), lanes=lanes, **options)


class Heard(Silent):
    """Keeps what it is told, and may act on it."""

    def __init__(self, act=lambda: None) -> None:
        self.stages: dict[str, list[int]] = {}
        self.act = act

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:
        told = self.stages.setdefault(f"{label} of {total}", [])

        def update(done: int, figure: float, **others: float) -> None:
            told.append(done)
            self.act()

        yield update


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums over several threads are in another order than those of a lane with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_lanes_change_no_number(tmp_path: Path) -> None:
    progress = Heard()
    alone = learned(lanes=1)
    kept = learned(lanes=2, progress=progress, checkpoint=tmp_path / "run")
    for key in ("test", "val", "test_by_loss", "test_by_metric", "test_at_end", "splits"):
        assert kept.row[key] == alone.row[key], key
    for name, array in alone.arrays.items():
        np.testing.assert_array_equal(kept.arrays[name], array)
    assert len(list(tmp_path.iterdir())) == 3
    told = progress.stages["rings: specformer, 3 runs in 2 lanes of 9"]
    assert told == sorted(told)
    assert told[-1] == 9
    assert kept.seconds_before == 0.0
    finished = Heard()
    again = learned(lanes=3, progress=finished, checkpoint=tmp_path / "run")
    assert finished.stages["rings: specformer, 3 runs in 3 lanes of 9"][-1] == 9
    assert again.row["test"] == alone.row["test"]
    assert again.seconds_before > 0.0  # all of it, read from the checkpoints


def test_a_run_that_diverges_late_is_ended_with_a_word(caplog) -> None:
    # Decay by more than twice their size makes the weights grow with every step.
    settings = ["schedule.epochs=9", "schedule.warmup=1", "schedule.weight_decay=1e4"]
    outcome = learned(settings, lanes=1, runs=2)
    ended = re.search(
        r"run 1 of 2 diverged in epoch (\d), first in [\w. ]+; the best model", caplog.text
    )
    assert ended
    losses = outcome.arrays["molecules/rings/specformer/curve"][:, 0, 0]
    assert np.isfinite(losses).sum() == int(ended[1]) - 1 < 8
    assert np.isfinite(outcome.row["test"]["mean"])
    assert outcome.row["test_at_end"] is None


@pytest.mark.slow
def test_a_lane_that_cannot_go_on_says_why() -> None:
    with pytest.raises(
        RunError, match=r"training diverged: run \d of 2 has .* from epoch 1 on, first in "
    ):
        learned(["schedule.learning_rate=1e30"], lanes=2, runs=2)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_lane_that_is_killed_is_noticed() -> None:
    def kill() -> None:
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    with pytest.raises(RunError, match="a lane ended with status -9"):
        learned(["schedule.epochs=2000"], lanes=2, runs=2, progress=Heard(kill))
    assert not multiprocessing.active_children()


def test_more_lanes_than_runs_are_left_out() -> None:
    assert learned(lanes=5, runs=1).row["runs"] == 1  # in this process


def test_what_cannot_be_is_refused() -> None:
    assert Workplace(torch.device("cpu"), lanes=3).lanes == 3
    with pytest.raises(ConfigError, match="--lanes 0"):
        Workplace(torch.device("cpu"), lanes=0)
    with pytest.raises(ConfigError, match="torchrun"):
        Workplace(torch.device("cpu"), workers=Workers(0, 2), lanes=2)
