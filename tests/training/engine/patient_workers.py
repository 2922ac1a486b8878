"""A program for ``torchrun``: the first worker takes longer than messages may."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from specformer.training.engine.distributed import torchrun_workers

if __name__ == "__main__":
    with torchrun_workers(torch.device("cpu")) as (workers, _):
        dist.barrier()
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
        with workers.first_before_others():
            if workers.is_first:
                time.sleep(5)
