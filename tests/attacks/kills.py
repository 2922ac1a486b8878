"""Commands killed at every file operation and at random moments, and what is left of them."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.attacks.altered_files import whole_run
from tests.attacks.same import same
from tests.attacks.scene import TRAIN, call, inside
from tests.attacks.tally import SENTENCES, Tally

from specformer.baselines import BASELINES
from specformer.spectrum import Spectrum
from specformer.tasks.tune import read_trials
from specformer.training.loops.nodes import NodeRuns
from specformer.training.runs.folder import RunFolder

_CHANGING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate")
_RUN = [*TRAIN, "--model", "gcn", "--runs", "2", "--out", "run", "--cache", "own-cache"]
#: Commands, and how one goes on that was stopped: by the same words, or by others.
COMMANDS = {
    "train": _RUN,
    "tune": ["tune", "own.npz", "--trials", "2", "--splits", "1", "--runs", "1", "--finalists", "1",
             "--set", "schedule.epochs=2", "--out", "search", "--quiet", "--device", "cpu"],
    "spectrum": ["spectrum", "own.npz", "--quiet", "--cache", "own-cache", "--device", "cpu",
                 "--out", "saved.safetensors", "--plot", "plot.png"],
    "predict": ["predict", "gcn", "--device", "cpu", "--out", "predictions.csv"],
    "report": ["report", "gcn"],
}  # fmt: skip


def forked(work: Callable[[], int]) -> int:
    """The status of a copy of this process that does some work; -9 where it was killed."""
    child = os.fork()
    if not child:
        status = 70
        try:
            status = work()
        except BaseException as error:
            if not isinstance(error, SystemExit):
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(operation: int, words: list[str]) -> int:
    """A command in a process of its own that dies at one of its file operations."""

    def work() -> int:
        left = [operation]

        def watch(event: str, arguments: tuple) -> None:
            writes = (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
            )
            if writes or event in _CHANGING:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        return call(*words)

    return forked(work)


def killed_after(seconds: float, words: list[str]) -> int:
    """A command in a process of its own that is killed after a while."""
    child = os.fork()
    if not child:
        os._exit(call(*words))
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def attack(scene: Path, moments: int, stride: int = 1, seed: int = 3) -> Iterator[Tally]:
    """Kill commands at every ``stride``-th file operation, and at so many random moments."""
    with inside(scene):
        NodeRuns.fit.__kwdefaults__["save_every"] = 1  # a checkpoint every epoch
        for name, words in COMMANDS.items():
            yield from _killed(name, words, moments, stride, random.Random(seed))
        _clear()


def _killed(
    name: str, words: list[str], moments: int, stride: int, draw: random.Random
) -> Iterator[Tally]:
    _clear()
    began = time.perf_counter()
    assert forked(lambda: call(*words)) == 0
    lasts, truth = time.perf_counter() - began, _left_by(name)
    at_operation = Tally("killed at a file operation", name)
    for operation in range(1, 10**6, stride):
        _clear()
        if killed_at(operation, words) == 0:  # it has no more of them
            break
        at_operation.attempt(lambda: _goes_on(name, words, truth), f"operation {operation}")
    yield at_operation
    at_random = Tally("killed at a random moment", name)
    for _ in range(moments):
        _clear()
        after = draw.uniform(0, lasts)
        killed_after(after, words)
        at_random.attempt(lambda: _goes_on(name, words, truth), f"after {after:.3f} s")
    yield at_random


def _clear() -> None:
    for name in ("run", "search", "own-cache"):
        shutil.rmtree(name, ignore_errors=True)
    for name in ("saved.safetensors", "plot.png", "predictions.csv"):
        Path(name).unlink(missing_ok=True)


def _left_by(name: str) -> object:
    """What a finished command leaves, without times."""
    if name == "train":
        assert all(state == "intact" for state in RunFolder("run").verified().values())
        assert Path("run/report.html").exists()
        config, result, metrics, outputs, states, features = whole_run(
            Path("run"), BASELINES["gcn"]
        )
        return config, result["test"], metrics, outputs, states, features
    if name == "tune":
        found = read_trials(Path("search/trials.jsonl"))
        return [trial["score"] for trial in found.values()], Path("search/best.yaml").read_text()
    if name == "spectrum":
        found = Spectrum.load("saved.safetensors")
        return found.eigenvalues.clone(), found.eigenvectors.clone()
    if name == "predict":
        return Path("predictions.csv").read_text()
    return Path("gcn/report.html").read_text()


def _goes_on(name: str, words: list[str], truth: object) -> bool:
    """Whether a killed command ends as one that was not killed, once it is asked to go on."""
    again = words
    if name == "train" and Path("run/config.yaml").exists():
        again = ["resume", "run", "--quiet", "--cache", "own-cache"]
    status = forked(lambda: call(*again))
    if status == 2 and again[0] == "resume" and Path("run/report.html").exists():
        status = 0  # it was finished
    if status not in (0, 2):
        raise AssertionError(f"going on ended with status {status}")
    try:
        return status == 0 and same(_left_by(name), truth)
    except SENTENCES:
        return False
