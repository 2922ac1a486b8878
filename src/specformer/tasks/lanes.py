r"""Several runs of one model at once, each lane a process of its own.

A small model leaves most of a GPU idle. What a lane has trained lies in the checkpoints of its
runs, so that who asked for them finds every run done, with the numbers it would have had alone on
as many threads.

A lane sends ``("epoch", run, done, figure)``, then ``("ended", seconds)``: those that were spent
before the run was taken up here. One that gives up sends ``("refused", sentence)`` or ``("failed",
traceback)``.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from torch import multiprocessing  # sends tensors in shared memory

from specformer.errors import ConfigError, RunError, SpecformerError, system_sentence
from specformer.tasks.graphs.graph_work import GraphWork
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.runs.progress import Update


def check_lanes(lanes: int, workers: Workers = ALONE) -> None:
    """Refuse what cannot be, before anything is computed."""
    if lanes < 1:
        raise ConfigError(f"--lanes {lanes}: at least one is needed.")
    if lanes > 1 and workers.size > 1:
        raise ConfigError("--lanes: torchrun's processes already train every run together.")


def train_in_lanes(
    work: GraphWork, checkpoints: Sequence[Path], lanes: int, update: Update
) -> float:
    """Train all runs, ``lanes`` of them at a time, until the checkpoint of each is that of its end.

    ``update`` is told the epochs of all runs together. Returns the seconds that went into epochs
    which checkpoints held already.
    """
    threads = max(1, torch.get_num_threads() // lanes)
    spawn = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
    running: dict[Connection, BaseProcess] = {}
    try:
        for lane in range(lanes):
            here, there = spawn.Pipe(duplex=False)
            process = spawn.Process(
                target=_lane,
                args=(work, checkpoints[lane::lanes], lane, lanes, threads, there),
                daemon=True,
            )
            process.start()
            there.close()  # so that the pipe ends when the lane does
            running[here] = process
        return _followed(running, update)
    finally:
        for started in running.values():
            started.terminate()
            started.join()


def _followed(running: dict[Connection, BaseProcess], update: Update) -> float:
    """Hear all lanes out."""
    before, epochs, open_pipes = 0.0, dict[int, int](), set(running)
    while open_pipes:
        for pipe in wait(list(open_pipes)):
            assert isinstance(pipe, Connection)
            try:
                what, *told = pipe.recv()
            except EOFError:
                open_pipes.remove(pipe)
                _check_end(running[pipe])
                continue
            if what == "epoch":
                run, done, figure = told
                epochs[run] = done
                update(sum(epochs.values()), figure)
            elif what == "ended":
                before += told[0]
            else:  # one sentence for a user, or a traceback for a developer
                raise RunError(*told) if what == "refused" else RuntimeError(*told)
    return before


def _check_end(process: BaseProcess) -> None:
    process.join()
    if process.exitcode != 0:
        raise RunError(
            f"a lane ended with status {process.exitcode}: perhaps memory ran out; take fewer "
            "--lanes. What was trained is kept."
        )


def _lane(
    work: GraphWork,
    checkpoints: Sequence[Path],
    lane: int,
    lanes: int,
    threads: int,
    pipe: Connection,
) -> None:
    """Every so many of the runs, one after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started the lanes ends them
    torch.set_num_threads(threads)
    try:
        store = work.store()
        for run, checkpoint in zip(range(lane, len(work.splits), lanes), checkpoints, strict=True):
            told = partial(_tell, pipe, run)
            fit = work.fit(store, run, checkpoint=checkpoint, on_epoch=told)
            pipe.send(("ended", fit.seconds_before))
    except BrokenPipeError:
        pass  # nobody hears: the process that asked is gone
    except SpecformerError as error:
        pipe.send(("refused", str(error)))
    except OSError as error:
        pipe.send(("refused", system_sentence(error)))
    except Exception:
        pipe.send(("failed", traceback.format_exc()))


def _tell(pipe: Connection, run: int, done: int, figure: float) -> None:
    pipe.send(("epoch", run, done, figure))
