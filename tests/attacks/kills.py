"""Commands killed at every file operation and at random moments, and what is left of them."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.attacks.altered_files import documents, whole_run
from tests.attacks.same import same
from tests.attacks.scene import COMPARE, IMAGE, LINKS, MOLECULES, TRAIN, TUNE, call, inside
from tests.attacks.tally import SENTENCES, Tally

from specformer.spectrum import Spectrum
from specformer.tasks.tune import read_trials
from specformer.training.loops.graphs import graph_steps
from specformer.training.loops.nodes import NodeRuns
from specformer.training.runs.folder import RunFolder

_CHANGING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate")
_CACHE = ["--cache", "own-cache"]
_RUN = ["--out", "run", *_CACHE]
_PAPER = [*TRAIN, "--set", "form=paper", *_RUN]


@dataclass(frozen=True)
class Command:
    """A command that is stopped.

    Args:
        words: what is typed; the same go on with it, or ``resume`` with a training.
        warm: whether its spectrum is in the cache before. What comes out must be the same.
    """

    words: list[str]
    warm: bool = False


COMMANDS = {
    "train": Command([*TRAIN, "--model", "gcn", "--runs", "2", *_RUN]),
    "tune": Command([*TUNE, "--out", "search", *_CACHE]),
    "compare": Command([*COMPARE, "--out", "both", *_CACHE]),
    "spectrum": Command(["spectrum", "own.npz", "--quiet", "--device", "cpu", *_CACHE, "--out",
                         "saved.safetensors", "--plot", "plot.png"]),
    "spectrum in shards": Command(["spectrum", "own.npz", "--quiet", "--device", "cpu", *_CACHE,
                                   "--out", "saved-rows/", "--plot", "plot.png"]),
    "predict": Command(["predict", "gcn", "--device", "cpu", "--out", "predictions.csv"]),
    "report": Command(["report", "gcn"]),
}  # fmt: skip
#: Trainings of other kinds, at random moments only: they write the files of the first.
TRAININGS = {
    "one run, fresh cache": Command([*_PAPER, "--runs", "1"]),
    "one run, warm cache": Command([*_PAPER, "--runs", "1"], warm=True),
    "three runs, fresh cache": Command([*_PAPER, "--runs", "3"]),
    "three runs, warm cache": Command([*_PAPER, "--runs", "3"], warm=True),
    "links": Command([*LINKS, *_RUN]),
    "molecules": Command([*MOLECULES, *_RUN]),
    "image": Command([*IMAGE, *_RUN]),
}


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


def at_operations(scene: Path, stride: int = 1) -> Iterator[Tally]:
    """Kill commands at every ``stride``-th file operation."""
    with _at_work(scene):
        for name, command in COMMANDS.items():
            yield _killed_at_operations(name, command, stride)


def at_moments(scene: Path, moments: int, seed: int = 3) -> Iterator[Tally]:
    """Kill commands, and trainings of every kind, at so many random moments each."""
    trainings = {f"train, {name}": command for name, command in TRAININGS.items()}
    with _at_work(scene):
        for name, command in (COMMANDS | trainings).items():
            yield _killed_at_moments(name, command, moments, random.Random(seed))


@contextmanager
def _at_work(scene: Path) -> Iterator[None]:
    """In the folder, with a checkpoint every epoch, and nothing left behind."""
    with inside(scene), pytest.MonkeyPatch.context() as patch:
        patch.setitem(NodeRuns.fit.__kwdefaults__, "save_every", 1)
        patch.setitem(graph_steps.__kwdefaults__, "save_every", 0.0)
        yield
        _clear()


def _killed_at_operations(name: str, command: Command, stride: int) -> Tally:
    truth, _ = _uninterrupted(name, command)
    tally = Tally("killed at a file operation", name)
    for operation in range(1, 10**6, stride):
        _clear()
        if killed_at(operation, command.words) == 0:  # it has no more of them
            break
        tally.attempt(lambda: _goes_on(name, command, truth), f"operation {operation}")
    return tally


def _killed_at_moments(name: str, command: Command, moments: int, draw: random.Random) -> Tally:
    truth, lasts = _uninterrupted(name, command)
    tally = Tally("killed at a random moment", name)
    for _ in range(moments):
        _clear(cache=not command.warm)
        after = draw.uniform(0, lasts)
        killed_after(after, command.words)
        tally.attempt(lambda: _goes_on(name, command, truth), f"after {after:.3f} s")
    return tally


def _uninterrupted(name: str, command: Command) -> tuple[object, float]:
    """What the command leaves, from an empty cache, and how long it takes."""
    _clear()
    began = time.perf_counter()
    assert forked(lambda: call(*command.words)) == 0
    return _left_by(name), time.perf_counter() - began


def _clear(*, cache: bool = True) -> None:
    for name in ("run", "search", "both", "saved-rows", *(["own-cache"] if cache else [])):
        shutil.rmtree(name, ignore_errors=True)
    for name in ("saved.safetensors", "plot.png", "predictions.csv"):
        Path(name).unlink(missing_ok=True)


def _left_by(name: str) -> object:
    """What a finished command leaves, without times."""
    if name.startswith("train"):
        return _left_by_run(Path("run"))
    if name == "compare":
        config, result, _, outputs = documents(Path("both"))
        rows = [{key: row[key] for key in ("name", "test", "val")} for row in result["rows"]]
        return config, rows, outputs, [_left_by_run(Path("both") / each["name"]) for each in rows]
    if name == "tune":
        found = read_trials(Path("search/trials.jsonl"))
        return [trial["score"] for trial in found.values()], Path("search/best.yaml").read_text()
    if name.startswith("spectrum"):
        shards = name.endswith("shards")
        found = Spectrum.load("saved-rows" if shards else "saved.safetensors")
        return found.eigenvalues.clone(), found.eigenvectors.clone()
    if name == "predict":
        return Path("predictions.csv").read_text()
    return Path("gcn/report.html").read_text()


def _left_by_run(path: Path) -> object:
    assert all(state == "intact" for state in RunFolder(path).verified().values())
    assert (path / "report.html").exists()
    left = [*path.glob("checkpoint*"), *path.rglob("*.part")]
    assert not left, left
    config, result, *others = whole_run(path)
    return config, result["test"], result["val"], *others


def _goes_on(name: str, command: Command, truth: object) -> bool:
    """Whether a killed command ends as one that was not killed, once it is asked to go on."""
    again = command.words
    if name.startswith("train") and Path("run/config.yaml").exists():
        again = ["resume", "run", "--quiet", *_CACHE]
    status = forked(lambda: call(*again))
    if status == 2 and again[0] == "resume" and Path("run/report.html").exists():
        status = 0  # it was finished
    if status not in (0, 2):
        raise AssertionError(f"going on ended with status {status}")
    try:
        return status == 0 and same(_left_by(name), truth)
    except SENTENCES:
        return False
