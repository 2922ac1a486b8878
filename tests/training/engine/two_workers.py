"""A program for ``torchrun``: trains, and the first worker writes what came out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from tests.training.small_graphs import small_model, small_task

from specformer.training.engine.distributed import torchrun_workers
from specformer.training.loops.graphs import fit_graphs
from specformer.training.optim.schedule import GraphSchedule
from specformer.training.runs.checkpoint import Checkpoint


def main(out: Path, dropout: float) -> None:
    schedule = GraphSchedule(
        epochs=4,
        batch_size=7,
        learning_rate=0.01,
        warmup=1,
        weight_decay=0.01,
        clip=0.5,
        average=1.0,
    )
    bases = {"bases_norm": "batch", "bases_activation": "gelu", "normalise_bases": "softmax"}
    options = {**bases, "feature_dropout": dropout, "propagation_dropout": dropout}
    with torchrun_workers(torch.device("cpu")) as (workers, device):
        fit = fit_graphs(
            small_model(**options).to(device),
            small_task(standardise=True),
            schedule,
            workers=workers,
            checkpoint=Checkpoint(out / "state", "test"),
            save_every=0.0,
        )
        state = torch.cat([tensor.flatten() for tensor in fit.model.state_dict().values()])
        found = {"curves": fit.curves, "test": fit.chosen["metric"].test, "state": state.numpy()}
        np.savez(out / f"{workers.rank}-of-{workers.size}.npz", **found)
    left = [name for name in threads() if "gloo" in name]
    assert not left, f"threads of a group that was left: {left}"


def threads() -> list[str]:
    """The names of this process's threads, where Linux tells."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
