"""Commands for several machines, on two network namespaces of this one joined by a cable.

Each has an address and a name of its own, so that nothing reaches the other but through the cable.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.command_line import environment
from tests.cli.test_cli_workers import WORDS, tables_alike

from specformer.datasets import csbm, random_60_20_20
from specformer.errors import SpectrumError
from specformer.graphs import write_npz
from specformer.spectrum.solvers import slepc

TORCHRUN = ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-id", "job"]
SCRIPT = Path(__file__).parents[2] / "examples" / "torchrun_train.sh"
#: Runs a command on one of the machines, which are named after their namespaces.
ON = 'ip netns exec "$0" unshare --uts sh -c \'hostname "$0" && exec "$@"\' "$0" "$@"'

#: In place of ssh, which needs a server: HOST COMMAND…
AGENT = """#!/bin/sh
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
"""


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """The names of two machines."""
    if not hasattr(os, "geteuid") or os.geteuid() or not shutil.which("ip"):
        pytest.skip("namespaces need root and iproute2")
    names = [f"sf{os.getpid()}{letter}" for letter in "ab"]
    folders = [Path("/etc/netns") / name for name in names]
    lines = [f"10.77.0.{number} {name}\n" for number, name in enumerate(names, 1)]

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no namespaces here: ip {' '.join(words)}: {done.stderr.strip()}")

    try:
        for name, folder in zip(names, folders, strict=True):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        one, two = names
        ip("link", "add", "cable", "netns", one, "type", "veth", "peer", "cable", "netns", two)
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield names
    finally:
        for name, folder in zip(names, folders, strict=True):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


def start(machine: str, here: Path, words: Sequence[str], **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["sh", "-c", ON, machine, *words],
        cwd=here,
        env=environment(here, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def together(machines: list[str], here: Path, *words: str) -> list[subprocess.Popen[str]]:
    """One command by two processes on each of the machines."""
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *TORCHRUN,
        "--rdzv-endpoint",
        f"{machines[0]}:29500",
    ]
    return [start(machine, here, [*launcher, "-m", "specformer", *words]) for machine in machines]


def ended(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        told, _ = process.communicate(timeout=250)
        assert process.returncode == 0, told


def crossed(machine: str) -> int:
    """Bytes that a machine has sent through the cable."""
    path = "/sys/class/net/cable/statistics/tx_bytes"
    words = ["ip", "netns", "exec", machine, "cat", path]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
def test_from_a_graph_to_predictions_on_two_machines(machines: list[str], here: Path, call) -> None:
    try:
        slepc._command(1, None)
    except SpectrumError as reason:
        pytest.skip(str(reason))
    graph = csbm(0.6, num_nodes=300, num_features=5, seed=3)
    split = random_60_20_20(graph.y, 0)
    masks = {f"{part}_mask": getattr(split, part) for part in ("train", "val", "test")}
    write_npz(here / "own.npz", replace(graph, **masks))
    (here / "hosts.txt").write_text("".join(f"{name} slots=1\n" for name in machines))
    agent = here / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    words = f"{sys.executable} -m specformer spectrum own.npz --k 20 --solver slepc --ranks 2"
    words += " --hostfile hosts.txt --device cpu --cache cache --out rows/"
    by_ranks = start(machines[0], here, words.split(), OMPI_MCA_plm_rsh_agent=str(agent))
    ended([by_ranks])
    assert len(list((here / "rows").glob("rows-*.safetensors"))) == 2
    after_ranks = crossed(machines[1])
    assert after_ranks > 300 * 20  # what the second rank found did not come by itself
    few = [*WORDS[1:], "--set", "k=20"]
    asked = [word for word in few[1:] if word not in ("--device", "cpu", "--cache", "cache")]
    told = {"FIRST": machines[0], "MACHINES": "2", "PROCESSES": "2", "CACHE": "cache"}
    told["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    script = ["bash", str(SCRIPT), "own.npz", "run", *asked]
    ended([start(machine, here, script, **told) for machine in machines])
    assert crossed(machines[1]) > after_ranks
    call("train", *few, "--out", "alone")
    call("predict", "alone", "--device", "cpu", "--cache", "cache", "--out", "one.csv")
    tables_alike(here / "one.csv", here / "run" / "predictions.csv", 300)


@pytest.mark.slow
def test_a_machine_that_dies_ends_the_other(machines: list[str], here: Path) -> None:
    write_npz(here / "own.npz", csbm(0.6, num_nodes=60, num_features=5, seed=3))
    endless = [*WORDS[1:], "--set", "schedule.epochs=1000000", "--set", "schedule.patience=1000000"]
    both = together(machines, here, "train", *endless, "--out", "run")
    try:
        deadline = time.monotonic() + 200
        while not (here / "run" / "checkpoint.safetensors").exists():
            assert time.monotonic() < deadline
            assert both[0].poll() is None, both[0].communicate()[0]
            time.sleep(0.2)
        listed = subprocess.run(
            ["ip", "netns", "pids", machines[1]], capture_output=True, text=True, check=True
        )
        for process in map(int, listed.stdout.split()):
            os.kill(process, signal.SIGKILL)
        told, _ = both[0].communicate(timeout=100)
    finally:
        for process in both:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    assert both[0].returncode != 0
    assert "Error: another process of this run has ended" in told
    assert (here / "run" / "checkpoint.safetensors").exists()
