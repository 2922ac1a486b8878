"""Two processes with half of every batch each, against one with the whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.engine import patient_workers, two_workers
from tests.training.small_graphs import small_task

from specformer.datasets.batches import Batches
from specformer.errors import ConfigError
from specformer.training.engine.distributed import ALONE, Workers, torchrun_workers

ROOT = Path(__file__).parents[3]


def run_two(program: str, *words: object) -> None:
    """Run a program in two workers."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, "--nproc-per-node=2", "-m", program, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_others_wait_for_the_first_as_long_as_it_takes() -> None:
    run_two(patient_workers.__name__)


def torchrun(out: Path, dropout: float = 0.0) -> list[dict[str, np.ndarray]]:
    """What each of two workers found."""
    run_two(two_workers.__name__, out, dropout)
    return [dict(np.load(out / f"{rank}-of-2.npz")) for rank in (0, 1)]


def test_two_workers_are_one(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    two_workers.main(tmp_path, 0.0)
    alone = np.load(tmp_path / "0-of-1.npz")
    for found in torchrun(tmp_path / "two"):
        for key in ("curves", "test", "state"):
            np.testing.assert_allclose(found[key], alone[key], rtol=0, atol=1e-7, err_msg=key)


@pytest.mark.slow
def test_workers_drop_differently_and_stay_together(tmp_path: Path) -> None:
    first, second = torchrun(tmp_path, dropout=0.3)
    np.testing.assert_array_equal(first["curves"], second["curves"])
    np.testing.assert_array_equal(first["state"], second["state"])


def test_shares_are_the_batch() -> None:
    task = small_task()
    whole = Batches(task.store, task.train, 6).epoch(0)  # three batches of 6, one of 2
    ladder = Batches(task.store, task.train, 3)
    shares = [Workers(rank, 4).shares(whole, ladder) for rank in range(4)]
    kept = [batch for batch in whole if len(batch.index) >= 4]
    assert len(kept) < len(whole)
    for number, batch in enumerate(kept):
        parts = [share[number] for share in shares]
        assert torch.equal(torch.cat([part.index for part in parts]), batch.index)
        for part in parts:
            assert part.shape.holds(task.store.host_sizes[part.index.numpy()])
    assert ALONE.shares(whole, ladder) == whole
    with pytest.raises(ConfigError, match="9 workers are more"):
        Workers(0, 9).shares(whole, ladder)


def test_without_torchrun_a_process_is_alone() -> None:
    with torchrun_workers(torch.device("cpu")) as (workers, device):
        assert workers == ALONE
        assert device.type == "cpu"
