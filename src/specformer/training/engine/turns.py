r"""Several trainings in one process: they take their steps in turn, each on its own CUDA stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Generic, ParamSpec, TypeVar

import torch

from specformer.errors import SpecformerError

P = ParamSpec("P")
T = TypeVar("T")
#: A training that stops after each step, and returns its outcome.
Steps = Generator[None, None, T]


def exhausting(steps: Callable[P, Steps[T]]) -> Callable[P, T]:
    """A function that takes all steps of a training at once and returns its outcome."""

    def fit(*arguments: P.args, **options: P.kwargs) -> T:
        training = steps(*arguments, **options)
        while True:
            try:
                next(training)
            except StopIteration as end:
                return end.value

    fit.__doc__ = steps.__doc__
    return fit


def in_turns(trainings: Iterable[Steps[T]], lanes: int, device: torch.device) -> list[T]:
    """Take the steps of several trainings in turn, ``lanes`` of them at a time.

    A small model's step is a chain of small kernels that leaves most of a GPU idle. On streams of
    their own, the chains of several trainings run at the same time. Each training has its own
    random generators, so that it gives the numbers it would give alone.

    If a training fails, the others still end. Then the first error is raised.
    """
    waiting, outcomes, failed = iter(trainings), list[T](), list[SpecformerError]()
    turns = deque(_Lane(training, device) for training in islice(waiting, lanes))
    while turns:
        lane = turns.popleft()
        try:
            lane.step()
        except StopIteration as end:
            outcomes.append(end.value)
        except SpecformerError as error:
            failed.append(error)
        else:
            turns.append(lane)
            continue
        turns.extend(_Lane(training, device) for training in islice(waiting, 1))
    if failed:
        raise failed[0]
    return outcomes


class _Lane(Generic[T]):
    """A training with what would otherwise be common to the process: stream, chance, precision."""

    def __init__(self, training: Steps[T], device: torch.device) -> None:
        self._training, self._device = training, device
        self._random = torch.get_rng_state()
        self._precision = torch.get_float32_matmul_precision()
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))
            self._generator = torch.Generator(device)

    def step(self) -> None:
        """Take one step; ends as a generator does."""
        stream = torch.cuda.stream(self._stream) if self._stream else nullcontext()
        with self._own_generators(), self._own_precision(), stream:
            next(self._training)

    @contextmanager
    def _own_generators(self) -> Iterator[None]:
        outer = torch.get_rng_state()
        torch.set_rng_state(self._random)
        try:
            with self._own_cuda_generator() if self._stream else nullcontext():
                yield
        finally:
            self._random = torch.get_rng_state()
            torch.set_rng_state(outer)

    @contextmanager
    def _own_cuda_generator(self) -> Iterator[None]:
        # A captured graph reads the offset of the generator that it was captured with. With one
        # generator for all, a lane would change it while another lane's graph still runs.
        assert self._stream is not None
        default = torch.cuda.default_generators[self._stream.device_index]
        outer = default.graphsafe_get_state()
        default.graphsafe_set_state(self._generator)
        try:
            yield
        finally:
            default.graphsafe_set_state(outer)

    @contextmanager
    def _own_precision(self) -> Iterator[None]:
        outer = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self._precision)
        try:
            yield
        finally:
            self._precision = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(outer)
