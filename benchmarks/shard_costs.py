"""What it costs to train one graph with several processes: memory, bytes per epoch, seconds.

``python -m benchmarks.shard_costs`` runs 1, 2 and 4 processes of ``torchrun`` (gloo, one thread
each) and prints a table. Eigenvectors are random, because their values do not matter here.

``python -m benchmarks.shard_costs alone cuda`` measures how much slower one process is if it works
as several do: with rows from shards, and with all messages, although there is no other process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import typer
from torch import Tensor

from benchmarks.measure import process_memory, synchronise
from specformer import Specformer, Spectrum
from specformer.spectrum.sharded import ShardedSpectrum
from specformer.spectrum.shards import write_shards
from specformer.training.engine.distributed import WHOLE, Share, Workers, torchrun_workers
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops.nodes import fit_nodes
from specformer.training.optim.schedule import Schedule

NODES, PAIRS, FEATURES, HIDDEN, CLASSES = 200_000, 400, 32, 32, 8
EPOCHS = 4
#: For one process: nodes and pairs, as in cora and arXiv; epochs of warm-up; epochs that count;
#: repeats.
ALONE = ((2_708, 2_708), (169_343, 1_000))
WARM, COUNTED, TURNS = 10, 60, 5


def main() -> None:
    """Measure 1, 2 and 4 processes, and print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vectors = torch.randn(NODES, PAIRS) / NODES**0.5
        write_shards(folder / "spectrum", torch.linspace(0, 2, PAIRS), vectors, None)
        del vectors
        typer.echo("processes  rows of U, MB  growth of each, MB  bytes/epoch  by formula  s/epoch")
        for size in (1, 2, 4):
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            program = [f"--nproc-per-node={size}", "-m", "benchmarks.shard_costs", name]
            subprocess.run([*launcher, *program], check=True, stderr=subprocess.DEVNULL)
            found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
            grown = ", ".join(f"{each['grown'] / 1e6:.0f}" for each in found)
            own, first = NODES * PAIRS * 4 / size / 1e6, found[0]
            seconds = max(each["seconds"] for each in found)
            sent = f"{first['sent']:>11,.0f}  {first['formula']:>10,}"
            typer.echo(f"{size:>9}  {own:>13.0f}  {grown:>18}  {sent}  {seconds:>7.2f}")


def work(folder: Path) -> None:
    """The work of one process: load its rows and train four epochs."""
    torch.set_num_threads(1)
    before = process_memory("VmRSS")
    sent: list[int] = []
    with torchrun_workers(torch.device("cpu")) as (workers, _):
        share = Share(workers, NODES)
        part = Spectrum.load(folder / "spectrum", share.rows)
        spectrum = ShardedSpectrum(
            part.eigenvalues, part.eigenvectors, across=share.sum, all_nodes=NODES
        )
        torch.manual_seed(0)
        names = ("transformer_dropout", "feature_dropout", "propagation_dropout")
        rates: dict[str, Any] = dict.fromkeys(names, 0.0)
        model = Specformer(FEATURES, HIDDEN, CLASSES, **rates)
        numbers = sum(parameter.numel() for parameter in model.parameters())
        with counting(sent):
            schedule = Schedule(epochs=EPOCHS)
            task, started = own_task(spectrum.num_nodes, share), time.perf_counter()
            fit_nodes([model], task, spectrum, schedule)
            seconds = (time.perf_counter() - started) / EPOCHS
    # The setup sends the numbers of training nodes (8 bytes), validation and test nodes.
    set_up = 8 + 2 * 4
    # Forward, backward and evaluation; gradients; training loss; two losses and two scores.
    formula = 4 * (3 * PAIRS * CLASSES + numbers + 1 + 4) if workers.size > 1 else 0
    total = {
        "grown": process_memory("VmHWM") - before,
        "sent": max(0, sum(sent) - set_up) / EPOCHS,
        "formula": formula,
        "seconds": seconds,
    }
    (folder / f"{workers.rank}.json").write_text(json.dumps(total))


def own_task(nodes: int, share: Share, device: torch.device | None = None) -> NodeTask:
    """Random features and classes of this process's nodes, a third each for train, val and test."""
    part = torch.arange(nodes, device=device) % 3
    train, val, test = ((part == number).unsqueeze(0) for number in range(3))
    x = torch.randn(nodes, FEATURES, device=device)
    y = torch.randint(CLASSES, (nodes,), device=device)
    return NodeTask(x, y, train, val, test, share=share)


def alone(device: torch.device) -> None:
    """Milliseconds per epoch of one process: as usual, and as with several processes."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    typer.echo(f"{torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}, ms/epoch")
    typer.echo("nodes x pairs       usual  from shards    loss  with messages    loss")
    for nodes, pairs in ALONE:
        vectors = torch.randn(nodes, pairs, device=device) / nodes**0.5
        usual = Spectrum(torch.linspace(0, 2, pairs, device=device), vectors)
        ways: list[tuple[Spectrum, Share]] = [(usual, WHOLE)]
        # A process that takes itself for one of two workers sends all messages.
        for share in (Share(count=nodes), Share(Workers(0, 2), nodes)):
            parts = usual.eigenvalues, vectors
            ways.append((ShardedSpectrum(*parts, across=share.sum, all_nodes=nodes), share))
        turns = [[epoch_seconds(*way, device) for way in ways] for _ in range(TURNS)]
        usually, sharded, sent = (
            1e3 * statistics.median(each) for each in zip(*turns, strict=True)
        )
        losses = (statistics.median(turn[way] / turn[0] for turn in turns) - 1 for way in (1, 2))
        first, second = (f"{loss:>6.1%}" for loss in losses)
        size = f"{nodes:,} x {pairs:,}"
        typer.echo(f"{size:<17} {usually:>7.3f} {sharded:>12.3f}  {first} {sent:>14.3f}  {second}")
    dist.destroy_process_group()


def epoch_seconds(spectrum: Spectrum, share: Share, device: torch.device) -> float:
    """Seconds per epoch, without the first epochs, in which steps may be captured."""
    task, taken = own_task(spectrum.num_nodes, share, device), []
    for epochs in (WARM, WARM + COUNTED):
        torch.manual_seed(0)
        model = Specformer(FEATURES, HIDDEN, CLASSES)
        started = time.perf_counter()
        fit_nodes([model], task, spectrum, Schedule(epochs=epochs))
        synchronise(device)
        taken.append(time.perf_counter() - started)
    return (taken[1] - taken[0]) / COUNTED


def counting(sent: list[int]) -> Any:
    """Inside, append the bytes of every sum over processes to a list."""
    usual = dist.all_reduce

    def counted(tensor: Tensor) -> Any:
        sent.append(tensor.numel() * tensor.element_size())
        return usual(tensor)

    return mock.patch.object(dist, "all_reduce", counted)


if __name__ == "__main__":
    if "LOCAL_RANK" in os.environ:
        work(Path(sys.argv[1]))
    elif sys.argv[1:2] == ["alone"]:
        alone(torch.device(sys.argv[2]))
    else:
        main()
