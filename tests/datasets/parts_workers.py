"""A program for ``torchrun``: each worker writes what it read of folders of parts, or the error."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import torch

from specformer.datasets.parts import read_parts
from specformer.errors import GraphError
from specformer.training.engine.distributed import Share, torchrun_workers


def main(out: Path) -> None:
    with torchrun_workers(torch.device("cpu")) as (workers, _):
        told = {}
        for folder in sorted(path for path in out.iterdir() if path.is_dir()):
            try:
                graph = read_parts(folder, partial(Share, workers))
                told[folder.name] = [str(graph.y.dtype), graph.y.tolist()]
            except GraphError as error:
                told[folder.name] = str(error)
        (out / f"{workers.rank}.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
