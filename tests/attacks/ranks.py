"""One of several processes is killed: the others end with a sentence, and the work goes on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
from tests.attacks.altered_files import whole_run
from tests.attacks.same import same
from tests.attacks.scene import TRAIN, inside
from tests.attacks.tally import Tally

from specformer.errors import SpecformerError
from specformer.graphs import as_graph, write_npz
from specformer.spectrum import Spectrum

_ROOT = Path(__file__).parents[2]
#: Of a machine that has much else to do: seconds until processes are there, or gone.
_PATIENCE = 240.0
_SLEPC = ["-m", "specformer", "spectrum", "grid.npz", "--solver", "slepc", "--ranks", "2", "--k",
          "60", "--device", "cpu", "--quiet", "--cache", "ranked-cache", "--out",
          "ranked.safetensors", "--plot", "ranked.png"]  # fmt: skip
_TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
             "--redirects=3", "--log-dir=ranked-logs", "-m", "specformer"]  # fmt: skip
_TRAIN = [*TRAIN, "--set", "form=paper", "--set", "schedule.epochs=300", "--runs", "1", "--cache",
          "ranked-cache", "--out", "ranked"]  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Work of several processes: its words, those that go on, its ranks' mark, what it leaves."""

    begin: list[str]
    again: Callable[[], list[str]]
    mark: str
    left: Callable[[], object]


def attack(scene: Path, tries: int, seed: int = 4) -> Iterator[Tally]:
    with inside(scene):
        write_npz("grid.npz", as_graph(nx.grid_2d_graph(60, 60)))
        slepc = Work(_SLEPC, lambda: _SLEPC, "slepc_program.py", _spectrum)
        if shutil.which("mpirun") or shutil.which("mpiexec"):
            yield _killed("of SLEPc", slepc, tries, random.Random(seed))
        torchrun = Work([*_TORCHRUN, *_TRAIN], _resume, "--out\0ranked", _weights)
        yield _killed("of torchrun", torchrun, tries, random.Random(seed))


def _killed(name: str, work: Work, tries: int, draw: random.Random) -> Tally:
    tally = Tally("rank killed", name)
    _clear()
    with _started(work.begin) as process:
        began = time.monotonic()
        _ranks(process, work.mark)
        ready = time.monotonic() - began
        assert process.wait(_PATIENCE) == 0, "it fails by itself"
    lasts, truth = time.monotonic() - began - ready, work.left()
    for _ in range(tries):
        _clear()
        after = draw.uniform(0, lasts)
        with _started(work.begin) as process:
            ranks = _ranks(process, work.mark)
            time.sleep(after)
            _kill(draw.choice(ranks))
            tally.attempt(lambda p=process: _ends_well(p, work, truth), f"after {after:.2f} s")
            assert not _alive(ranks), "a rank is left"
    _clear()
    return tally


def _ends_well(process: subprocess.Popen[bytes], work: Work, truth: object) -> bool:
    """Whether all end, without a traceback of ours, and asked once more give the same."""
    process.wait(_PATIENCE)
    _refuse_tracebacks()
    if process.returncode:
        with _started(work.again()) as again:
            status = again.wait(_PATIENCE)
        _refuse_tracebacks()
        if status and not Path("ranked/report.html").exists():  # else it was finished
            raise SpecformerError
    return same(work.left(), truth)


def _refuse_tracebacks() -> None:
    for path in (*Path("ranked-logs").rglob("std*.log"), Path("ranked.txt")):
        told = path.read_text(errors="replace")
        # torchrun shows how it noticed, in words of its own.
        assert "Traceback" not in told or "torch.distributed.elastic" in told, told[-300:]


def _started(words: list[str]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with Path("ranked.txt").open("wb") as told:
        return subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=told,
            stderr=told,
        )


def _resume() -> list[str]:
    begun = Path("ranked/config.yaml").exists()
    words = ["resume", "ranked", "--quiet", "--cache", "ranked-cache"]
    return [*_TORCHRUN, *(words if begun else _TRAIN)]


def _ranks(process: subprocess.Popen[bytes], mark: str) -> list[int]:
    """The processes of both ranks, once they are there."""
    while process.poll() is None:
        found = [pid for pid in _below(process.pid) if mark in _words(pid)]
        found = [pid for pid in found if not set(_below(pid)) & set(found)]
        if len(found) == 2 and all("mpirun" not in _words(pid) for pid in found):
            return found
        time.sleep(0.01)
    raise AssertionError(Path("ranked.txt").read_text()[-300:])


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _below(pid: int) -> list[int]:
    try:
        text = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return []
    return [each for child in map(int, text.split()) for each in (child, *_below(child))]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it was done
        os.kill(pid, signal.SIGKILL)


def _alive(pids: list[int]) -> bool:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if not any(_words(pid) for pid in pids):
            return False
        time.sleep(0.05)
    return True


def _spectrum() -> object:
    found = Spectrum.load("ranked.safetensors")
    return found.eigenvalues.clone(), found.eigenvectors.clone()


def _weights() -> object:
    return whole_run(Path("ranked"))[4]


def _clear() -> None:
    for name in ("ranked", "ranked-cache", "ranked-logs"):
        shutil.rmtree(name, ignore_errors=True)
    Path("ranked.safetensors").unlink(missing_ok=True)
