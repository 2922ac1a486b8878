"""Checkpoints: what is saved comes back, and anything else is refused before it is used."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from specformer.errors import RunError
from specformer.files.checked_tensors import write_tensors
from specformer.training.runs import checkpoint as module
from specformer.training.runs.checkpoint import Checkpoint, Interruption

HOW_TO_GO_ON = "; remove it to start over, or resume with --from-scratch."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """That of a checkpoint of three weights after two epochs."""
    path = tmp_path / "checkpoint.safetensors"
    torch.manual_seed(3)
    Checkpoint(path, "this").save({"weight": torch.arange(3.0), "epoch": torch.tensor(2)})
    return path


def fresh() -> dict[str, Tensor]:
    return {"weight": torch.full((3,), -1.0), "epoch": torch.tensor(0)}


def assert_refused(path: Path, why: str, state: dict[str, Tensor] | None = None) -> None:
    """In one sentence that says how to go on, and nothing is changed."""
    state = fresh() if state is None else state
    before = {name: tensor.clone() for name, tensor in state.items()}
    random = torch.get_rng_state()
    with pytest.raises(RunError, match=why) as refused:
        Checkpoint(path, "this").restore(state, epoch=9)
    assert str(refused.value).startswith(f"{path}: ")
    assert str(refused.value).endswith(HOW_TO_GO_ON)
    assert all(torch.equal(state[name], before[name]) for name in state)
    assert torch.equal(torch.get_rng_state(), random)


def test_state_and_random_numbers_come_back(path: Path) -> None:
    drawn, state = torch.rand(4), fresh()
    assert not Checkpoint(path.with_name("absent"), "this").restore(state)
    assert Checkpoint(path, "this").restore(state, epoch=9)
    assert state["weight"].tolist() == [0.0, 1.0, 2.0]
    assert int(state["epoch"]) == 2
    assert torch.equal(torch.rand(4), drawn)


def test_any_altered_byte_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        altered = bytearray(whole)
        altered[position] ^= 4
        path.write_bytes(bytes(altered))
        assert_refused(path, "checkpoint|checksum differs")
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert_refused(path, "checkpoint|checksum differs")


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"bias": torch.zeros(3), "epoch": torch.tensor(0)}, "another model's state"),
        ({"weight": torch.zeros(2, 3), "epoch": torch.tensor(0)}, "another model's state"),
        ({"weight": torch.zeros(3).double(), "epoch": torch.tensor(0)}, "another model's state"),
    ],
    ids=["name", "shape", "type"],
)
def test_the_state_of_another_model_is_refused(
    path: Path, state: dict[str, Tensor], why: str
) -> None:
    assert_refused(path, why, state)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"weight": torch.ones(1)}, "another model's state"),  # which would broadcast
        ({"epoch": torch.tensor(-5)}, r"epoch -5 is not in 0\.\.9"),
        ({"epoch": torch.tensor(10)}, r"epoch 10 is not in 0\.\.9"),
        ({"random.cpu": torch.zeros(7, dtype=torch.uint8)}, "another model's state"),
        ({"random.cpu": torch.get_rng_state() * 0}, "random generator's state is damaged"),
    ],
    ids=["one weight", "epoch -5", "epoch 10", "short random state", "zeroed random state"],
)
def test_what_no_run_saves_is_refused_even_with_its_checksum(
    path: Path, change: dict[str, Tensor], why: str
) -> None:
    forged = {**load_file(path), **change}
    write_tensors(path, forged, "specformer.checkpoint/2", {"purpose": "this"})
    assert_refused(path, why)


def test_those_of_other_runs_and_earlier_versions_are_refused(path: Path) -> None:
    saved = load_file(path)
    write_tensors(path, saved, "specformer.checkpoint/2", {"purpose": "that"})
    assert_refused(path, "belongs to another run, other data or other settings")
    write_tensors(path, saved, "specformer.checkpoint/1", {"purpose": "this"})
    assert_refused(path, "not a checkpoint saved by specformer")


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
