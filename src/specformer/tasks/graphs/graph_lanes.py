r"""Several runs on many graphs at once: on a GPU on streams, on a CPU in processes."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import multiprocessing  # sends tensors in shared memory

from specformer.datasets import GraphStore
from specformer.errors import RunError, SpecformerError, system_sentence
from specformer.training.engine.capture import release_memory
from specformer.training.engine.turns import Steps, in_turns
from specformer.training.runs.progress import Update

if TYPE_CHECKING:
    from specformer.tasks.graphs.graph_work import GraphWork, StoreKey


@dataclass(frozen=True)
class LaneRun:
    """One run of some work, and the checkpoint that holds its outcome."""

    work: GraphWork
    run: int
    checkpoint: Path


def train_in_lanes(runs: Sequence[LaneRun], lanes: int, update: Update) -> float:
    """Train all runs to their end, ``lanes`` of them at a time; checkpoints hold the outcome.

    A small model leaves most of a GPU idle. There, all lanes are in this process, each on its own
    stream. On a CPU, each lane is a process. A run gives the numbers that it would have had alone,
    on a CPU on as many threads.

    ``update`` is told the epochs of all runs together. Returns the seconds that went into epochs
    which checkpoints held already; those of lanes passed at the same time.
    """
    device = runs[0].work.device
    if device.type != "cuda":
        return _in_processes(runs, lanes, update) / lanes
    try:
        return sum(in_turns(_trainings(runs, update), lanes, device)) / lanes
    finally:
        release_memory()


def _trainings(runs: Iterable[LaneRun], update: Update) -> Iterator[Steps[float]]:
    """The runs to train in turn; each returns the seconds that its checkpoint held already."""
    epochs = dict[int, int]()
    for number, (each, store) in enumerate(_with_stores(runs)):

        def tell(done: int, figure: float, number: int = number) -> None:
            epochs[number] = done
            update(sum(epochs.values()), figure)

        yield _training(each, store, tell)


def _training(each: LaneRun, store: GraphStore, tell: Callable[[int, float], None]) -> Steps[float]:
    fit = yield from each.work.steps(
        store, each.run, checkpoint=each.checkpoint, on_epoch=tell, in_turn=True
    )
    tell(fit.epochs, float(fit.curves[-1, 2]))  # a finished run has told nothing
    return fit.seconds_before


def _with_stores(runs: Iterable[LaneRun]) -> Iterator[tuple[LaneRun, GraphStore]]:
    """Runs with their packed graphs, which runs that need the same ones share."""
    stores: dict[StoreKey, GraphStore] = {}
    for each in runs:
        if each.work.store_key not in stores:
            stores[each.work.store_key] = each.work.store()
        yield each, stores[each.work.store_key]


def _in_processes(runs: Sequence[LaneRun], lanes: int, update: Update) -> float:
    threads = max(1, torch.get_num_threads() // lanes)
    spawn = multiprocessing.get_context("spawn")  # a forked process may wait for a thread for ever
    running: dict[Connection, BaseProcess] = {}
    try:
        for lane in range(lanes):
            here, there = spawn.Pipe(duplex=False)
            own = list(enumerate(runs))[lane::lanes]
            process = spawn.Process(target=_lane, args=(own, threads, there), daemon=True)
            process.start()
            there.close()  # so that the pipe ends when the lane does
            running[here] = process
        return _followed(running, update)
    finally:
        for started in running.values():
            started.terminate()
            started.join()


def _followed(running: dict[Connection, BaseProcess], update: Update) -> float:
    """Collect messages until all lanes have finished; returns the sum of their seconds."""
    before, epochs, open_pipes = 0.0, dict[int, int](), set(running)
    while open_pipes:
        for pipe in wait(list(open_pipes)):
            assert isinstance(pipe, Connection)
            try:
                what, *told = pipe.recv()
            except EOFError:
                open_pipes.remove(pipe)
                running[pipe].join()
                if status := running[pipe].exitcode:
                    raise RunError(
                        f"a lane ended with status {status}: perhaps memory ran out; take fewer "
                        "--lanes. What was trained is kept."
                    ) from None
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


def _lane(runs: Sequence[tuple[int, LaneRun]], threads: int, pipe: Connection) -> None:
    """Train numbered runs one after the other.

    Sends ``("epoch", number, done, figure)`` after every epoch and ``("ended", seconds)`` after
    every run: the seconds of epochs that its checkpoint held already. After an error it sends
    ``("refused", sentence)`` or ``("failed", traceback)``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends the lanes
    torch.set_num_threads(threads)
    numbers = [number for number, _ in runs]
    try:
        stored = _with_stores(each for _, each in runs)
        for number, (each, store) in zip(numbers, stored, strict=True):

            def tell(done: int, figure: float, number: int = number) -> None:
                pipe.send(("epoch", number, done, figure))

            fit = each.work.fit(store, each.run, checkpoint=each.checkpoint, on_epoch=tell)
            tell(fit.epochs, float(fit.curves[-1, 2]))  # a finished run has told nothing
            pipe.send(("ended", fit.seconds_before))
    except BrokenPipeError:
        pass  # the parent process is gone
    except SpecformerError as error:
        pipe.send(("refused", str(error)))
    except OSError as error:
        pipe.send(("refused", system_sentence(error)))
    except Exception:
        pipe.send(("failed", traceback.format_exc()))
