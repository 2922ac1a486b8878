"""A signal waits for the epoch to end, so that it can be saved."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from specformer.training import interruption as module
from specformer.training.interruption import Interruption


class EndedError(Exception):
    """What the usual handler raises."""


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise EndedError(number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def epochs(asking: int, times: int = 1) -> list[str]:
    """What happens in three epochs, in one of which a signal comes."""
    seen = []
    with Interruption() as interruption:
        for epoch in range(3):
            interruption.begin_epoch()
            try:
                for _ in range(times if epoch == asking else 0):
                    signal.raise_signal(signal.SIGTERM)
            except EndedError:
                seen.append(f"cut {epoch}")
                break
            seen.append(f"done {epoch}")
            if interruption.asked:
                seen.append("saved")
            try:
                interruption.let_through()
            except EndedError:
                seen.append("ended")
                break
    return seen


def test_the_epoch_is_done_and_saved_first() -> None:
    assert epochs(asking=1) == ["done 0", "done 1", "saved", "ended"]
    assert epochs(asking=2) == ["done 0", "done 1", "done 2", "saved", "ended"]


def test_the_first_epoch_may_be_long_and_a_second_signal_means_it() -> None:
    assert epochs(asking=0) == ["cut 0"]
    assert epochs(asking=1, times=2) == ["done 0", "cut 1"]


def test_nobody_waits_for_long_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    assert epochs(asking=1) == ["done 0", "cut 1"]


def test_what_comes_too_late_is_not_lost_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def late() -> None:
        with Interruption() as interruption:
            interruption.begin_epoch()
            time.sleep(0.001)
            interruption.begin_epoch()
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(EndedError):
        late()
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_inactive_one_and_ignored_signals_change_nothing() -> None:
    with Interruption(active=False), pytest.raises(EndedError):
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Interruption():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
