"""What checksums cost: their share of the time to train, and of the time to load a spectrum.

``python -m benchmarks.checksum_costs`` prints both shares in processor time, which depends little
on other work of the machine. It also prints the wall-clock time to load from the disk. Eigenvectors
are mapped into memory: without a checksum, loading reads nothing, and the first use reads them.
So three things are measured: loading alone, loading from the cache as ``train`` does, and loading
followed by a first use, which filters the graph's features once.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from specformer import decompose
from specformer.datasets import csbm
from specformer.files import checked_tensors, documents
from specformer.graphs import write_npz
from specformer.spectrum import Spectrum
from specformer.tasks.job import Request, Workplace
from specformer.tasks.resolve import resolve
from specformer.tasks.train import train
from specformer.training.runs.folder import RunFolder


class Stopwatch:
    """Sums the time that some functions take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, place: Any, name: str) -> None:
        """Replace a function by one that measures its time."""
        function = getattr(place, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.process_time() - began

        setattr(place, name, timed)


def measured(work: Callable[[], object], repeats: int = 15) -> float:
    """The smallest processor time of a few repeats."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def from_disk(path: Path, work: Callable[[], object], repeats: int = 5) -> float:
    """The smallest wall-clock time of a few repeats, without the file in the system's cache."""
    seconds = []
    for _ in range(repeats):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    """Train and load, and print the share of checksums in the time."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        graph = csbm(0.6, num_nodes=2708, num_features=100, seed=0)
        cache = folder / "cache"
        spectrum = decompose(graph, cache=cache)
        file = folder / "spectrum.safetensors"
        spectrum.save(file)
        x, response = torch.as_tensor(graph.x, dtype=torch.float32), spectrum.eigenvalues.cos()
        cold = from_disk(file, lambda: Spectrum.load(file))  # before anything maps the file
        loaded = Spectrum.load(file)
        tensors = {"eigenvalues": loaded.eigenvalues, "eigenvectors": loaded.eigenvectors}
        checking = measured(lambda: checked_tensors.checksum(tensors))
        ways: dict[str, Callable[[], object]] = {
            "load": lambda: Spectrum.load(file),
            "load from the cache": lambda: decompose(graph, cache=cache),
            "load, filter one column": lambda: Spectrum.load(file).filter(x[:, 0], response),
            f"load, filter {x.shape[1]} columns": lambda: Spectrum.load(file).filter(x, response),
        }
        sys.stdout.write(
            f"spectrum of {graph.num_nodes:,} nodes, {file.stat().st_size / 1e6:.0f} MB: its "
            f"checksum takes {1e3 * checking:.2f} ms\n"
        )
        seconds = {name: measured(work) for name, work in ways.items()}
        for name, whole in {**seconds, "load from the disk": cold}.items():
            share = f"the checksum {100 * checking / whole:.1f} %"
            sys.stdout.write(f"  {name}: {1e3 * whole:.1f} ms, {share}\n")
        write_npz(folder / "graph.npz", graph)
        watch = Stopwatch()
        watch.watch(checked_tensors, "checksum")
        for digest in ("_digest", "_file_digest"):
            watch.watch(documents, digest)
        changes = ("schedule.epochs=200",)
        job = resolve(Request(str(folder / "graph.npz"), changes=changes), 2, device="cpu")
        place = Workplace(torch.device("cpu"), cache=cache)
        began = time.process_time()
        trained = train(job, place, lambda: RunFolder.create(folder / "run", job.config))
        run = RunFolder(folder / "run")
        run.write_models(trained.outcome.models, trained.outcome.beside)
        run.finish("nodes", trained.result, trained.outcome.arrays, command="", seed=0,
                   device=torch.device("cpu"))  # fmt: skip
        whole = time.process_time() - began
        sys.stdout.write(
            f"training of 2 runs, 200 epochs: {whole:.1f} s, "
            f"checksums {1e3 * watch.seconds:.0f} ms, {100 * watch.seconds / whole:.2f} %\n"
        )


if __name__ == "__main__":
    main()
