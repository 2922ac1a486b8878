"""One thread while it is asked for, and what there was before afterwards."""

from __future__ import annotations

import torch
from threadpoolctl import threadpool_info

from specformer.training.runs.environment import one_thread


def state() -> tuple[int, bool, list[int]]:
    blas = [pool["num_threads"] for pool in threadpool_info()]
    return torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), blas


def test_all_pools_have_one_thread_and_then_as_many_as_before() -> None:
    before = state()
    with one_thread():
        threads, repeats, blas = state()
        assert (threads, repeats, set(blas)) == (1, True, {1})
    assert state() == before


def test_nothing_changes_unless_it_is_asked_for() -> None:
    before = state()
    with one_thread(False):
        assert state() == before
