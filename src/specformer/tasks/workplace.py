r"""Where a job is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.runs.progress import Progress, Silent


@dataclass(frozen=True)
class Workplace:
    """What surrounds a job and does not change its outcome, beyond a device's rounding.

    Args:
        device: where to train.
        data: the folder with data files; None for the usual places.
        cache: the folder that keeps spectra; None for none.
        progress: who is told how far the work is.
        workers: the processes that share the work of every batch.
        lanes: how many runs on many graphs train at the same time.
    """

    device: torch.device
    data: Path | None = None
    cache: Path | None = None
    progress: Progress = field(default_factory=Silent)
    workers: Workers = ALONE
    lanes: int = 1
