"""Train on a graph in several files with your own loop; `specformer train` reads such parts too.

python examples/train_parts.py                                        # a small graph, generated
torchrun --nproc-per-node 4 examples/train_parts.py FOLDER [EPOCHS]   # your files part-….npz
"""

import re
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

import specformer as sf
from specformer.datasets.parts import read_parts
from specformer.spectrum.implicit.polynomial import chebyshev_terms
from specformer.spectrum.sharded import approximate_rows
from specformer.training.engine.distributed import Share, torchrun_workers
from specformer.training.loops.node_batches import fit_node_batches
from specformer.training.loops.nodes import NodeTask
from specformer.training.optim.schedule import Schedule

DEGREE, BATCH, CLASSES, FEATURES = 16, 65_536, 4, 16
#: Without dropout, any number of processes gives the same losses.
NO_DROPOUT = {f"{name}_dropout": 0.0 for name in ("transformer", "feature", "propagation")}


def generate(folder: Path, nodes: int = 2_000, parts: int = 4, near: int = 50) -> None:
    """Nodes in a circle, most edges between near nodes; each quarter is a class; noisy features."""
    folder.mkdir(exist_ok=True)
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    for number in range(parts):
        draw = np.random.default_rng([1, number])
        first, last = nodes * number // parts, nodes * (number + 1) // parts
        one = np.repeat(np.arange(first, last), 5)
        far = draw.random(len(one)) < 0.1
        step = np.where(far, draw.integers(0, nodes, len(one)), draw.integers(1, near, len(one)))
        y = np.arange(first, last) * CLASSES // nodes
        x = centres[y] + 4 * draw.normal(size=(last - first, FEATURES))
        part = draw.random(last - first)
        masks = {"train_mask": part < 0.6, "val_mask": part >= 0.8}
        masks["test_mask"] = ~(masks["train_mask"] | masks["val_mask"])
        edges = np.stack([one, (one + step) % nodes])
        arrays = {"x": x.astype(np.float32), "y": y, "num_nodes": nodes, "first": first, **masks}
        np.savez(folder / f"part-{number:05d}.npz", edge_index=edges, **arrays)


def train(folder: Path, epochs: int) -> None:
    device = torch.device("cpu")
    with torchrun_workers(device) as (workers, _):
        started = time.perf_counter()
        own = read_parts(folder, partial(Share, workers))
        share = Share(workers, own.num_nodes)
        tell(workers.rank, "read", started)
        if workers.size > 1:
            spectrum = approximate_rows(own.adjacency, share, degree=DEGREE, steps=32)
            sent = len(spectrum.operator.sent)
        else:
            spectrum, sent = sf.approximate(own.adjacency, degree=DEGREE, steps=32), 0
        tell(workers.rank, f"density ({sent:,} rows sent per product)", started)
        x, y = torch.as_tensor(own.x), torch.as_tensor(own.y[share.rows])
        masks = (own.train_mask, own.val_mask, own.test_mask)
        task = NodeTask(x, y, *(torch.as_tensor(mask[share.rows].T) for mask in masks), share=share)
        terms = chebyshev_terms(spectrum, x, BATCH)
        tell(workers.rank, "terms", started)
        torch.manual_seed(0)
        model = sf.Specformer(FEATURES, 32, CLASSES, num_layers=1, space="input", **NO_DROPOUT)
        schedule = Schedule(epochs=epochs, learning_rate=0.005)
        begun = time.perf_counter()
        fit = fit_node_batches([model], task, terms, schedule, batch_size=BATCH)
        tell(workers.rank, f"{(time.perf_counter() - begun) / epochs:.2f} s per epoch", started)
        if workers.is_first:
            print("losses", [round(loss, 6) for loss in fit.curves[:, 0, 0].tolist()])
            print(f"test accuracy {fit.by_loss.test.item():.4f}")


def tell(rank: int, what: str, started: float) -> None:
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    peak = f", {int(found[1]) / 1e6:.2f} GB at most" if found else ""
    print(f"process {rank}: {what}, {time.perf_counter() - started:.1f} s{peak}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[2] == "generate":
        generate(Path(sys.argv[1]), int(sys.argv[3]), 16, 1_000)
    elif len(sys.argv) > 1:
        train(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10)
    else:
        generate(Path("parts"))
        train(Path("parts"), 10)
