"""What is watched: every way in which a host may wait for a GPU, by its name."""

from __future__ import annotations

import pytest
import torch
from tests.operations import WAITS, Watch

NUMBERS = torch.tensor([1, 1, 2])
WAITING = {
    "a number": lambda: NUMBERS.sum().item(),
    "a choice": lambda: bool((NUMBERS > 0).any()),
    "places": lambda: NUMBERS.nonzero(),
    "a mask": lambda: NUMBERS[NUMBERS > 1],
    "a mask to write": lambda: NUMBERS.clone().index_put_((NUMBERS > 1,), torch.tensor(5)),
    "selected": lambda: NUMBERS.masked_select(NUMBERS > 1),
    "repeats": lambda: NUMBERS.repeat_interleave(NUMBERS),
    "distinct": lambda: NUMBERS.unique(),
    "distinct in a row": lambda: NUMBERS.unique_consecutive(),
    "distinct rows": lambda: NUMBERS.view(-1, 1).unique(dim=0),
}


@pytest.mark.parametrize("name", WAITING)
def test_waits_are_seen(name: str) -> None:
    with Watch() as watch:
        WAITING[name]()
    assert watch.names & WAITS


def test_others_are_none() -> None:
    with Watch() as watch:
        NUMBERS[NUMBERS]
        NUMBERS.index_select(0, NUMBERS).index_add(0, NUMBERS, NUMBERS).cumsum(0)
        torch.where(NUMBERS > 1, NUMBERS, 0)
    assert not watch.names & WAITS
