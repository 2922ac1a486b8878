r"""Repeat work many times: captured once as a CUDA graph and replayed, or called on a CPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Shape = TypeVar("Shape", bound=Hashable)


class Repeated:
    """Calls ``epoch()`` again and again; on a GPU all but the first calls replay a CUDA graph.

    ``epoch`` must keep its state in tensors it updates in place and must not read them back.
    """

    _EAGER_CALLS = 3

    def __init__(
        self, epoch: Callable[[], None], device: torch.device, *, capture: bool = True
    ) -> None:
        self._epoch = epoch
        self._capture = capture and device.type == "cuda"
        self._calls = 0
        self._aside = _Aside(device) if self._capture else None
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self._aside is None or _uncaptured.get():
            self._epoch()
        elif self._graph is not None:
            self._graph.replay()
        elif self._calls < self._EAGER_CALLS:
            self._aside(self._epoch)  # warm-up epochs are real epochs
        else:
            self._graph = self._aside.captured(self._epoch)
            self._graph.replay()
        self._calls += 1


class RepeatedByShape(Generic[Shape]):
    """Calls ``step(index, shape)``; on a GPU all but the first two calls of a shape are replays.

    ``step`` takes numbers ``[B]`` and the shape of what they stand for, must keep its state in
    tensors it updates in place and must not read them back. A shape's first call is an ordinary
    one, so a shape that comes once is never captured. All graphs share one pool of memory: no
    tensor made inside a step may be needed after it.
    """

    def __init__(
        self, step: Callable[[Tensor, Shape], None], device: torch.device, *, capture: bool = True
    ) -> None:
        self._step = step
        self._aside = _Aside(device) if capture and device.type == "cuda" else None
        self._pool = torch.cuda.graph_pool_handle() if self._aside else None
        self._seen: set[Shape] = set()
        self._graphs: dict[Shape, tuple[Tensor, torch.cuda.CUDAGraph]] = {}

    def __call__(self, index: Tensor, shape: Shape) -> None:
        if self._aside is None or _uncaptured.get():
            self._step(index, shape)
        elif shape not in self._seen:
            self._seen.add(shape)
            self._aside(lambda: self._step(index, shape))
        else:
            if shape not in self._graphs:
                self._graphs[shape] = self._captured(index, shape)
            buffer, graph = self._graphs[shape]
            buffer.copy_(index)
            graph.replay()

    def _captured(self, index: Tensor, shape: Shape) -> tuple[Tensor, torch.cuda.CUDAGraph]:
        assert self._aside is not None
        buffer = index.clone()
        return buffer, self._aside.captured(lambda: self._step(buffer, shape), self._pool)


_uncaptured = ContextVar("uncaptured", default=False)


@contextmanager
def uncaptured() -> Iterator[None]:
    """Within the block, repeated work is called: nothing is captured or replayed."""
    token = _uncaptured.set(True)
    try:
        yield
    finally:
        _uncaptured.reset(token)


def differentiate(output: Tensor, gradient: Tensor | None = None) -> None:
    """``output.backward(gradient)`` on the thread that calls it.

    PyTorch would use another thread, and on a GPU each thread keeps its own memory for matrix
    products on every stream: 32 MB on an H200.
    """
    with torch.autograd.set_multithreading_enabled(False):
        output.backward(gradient)


@contextmanager
def beside(work: Callable[[], None], device: torch.device, *, apart: bool = True) -> Iterator[None]:
    """Do ``work`` at the same time as the block if a CUDA graph is captured; otherwise before it.

    Both are done at the end of the block. Ordinary calls come one after the other, because one may
    keep constants that the other reads. Without ``apart``, for ``work`` that changes what the block
    reads, ``work`` always comes first.
    """
    if not (apart and device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
        work()
        yield
        return
    current = torch.cuda.current_stream(device)
    # Streams of high priority are never among those that PyTorch captures on.
    side = _stream(current.device_index, priority=-1, beside=current.cuda_stream)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        work()
    yield
    current.wait_stream(side)


class _Aside:
    """Calls and captures work on one side stream, because the default stream cannot be captured.

    Calls before a capture must be there; on one stream both share the memory of matrix products.
    A training that has a stream of its own stays there: graphs that run at the same time must not
    share that memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def stream(self) -> torch.cuda.Stream:
        current = torch.cuda.current_stream(self._device)
        if current != torch.cuda.default_stream(self._device):
            return current
        return _stream(current.device_index, priority=0, beside=current.cuda_stream)

    def __call__(self, work: Callable[[], None]) -> None:
        current, side = torch.cuda.current_stream(self._device), self.stream
        side.wait_stream(current)
        with torch.cuda.stream(side):
            work()
        current.wait_stream(side)

    def captured(self, work: Callable[[], None], pool: Any = None) -> torch.cuda.CUDAGraph:
        """Record ``work`` as a graph.

        All graphs read the random generator's offset from one place. Capture sets it to 0 on its
        own stream, a replay sets it to the present one on another: the second must wait for
        the first, or an epoch draws what another has drawn.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=self.stream):
            work()
        torch.cuda.current_stream(self._device).wait_stream(self.stream)
        return graph


@cache
def _stream(device_index: int, priority: int, beside: int) -> torch.cuda.Stream:  # noqa: ARG001
    """Always the same stream beside a stream, as each stream keeps memory of its own."""
    return torch.cuda.Stream(device_index, priority=priority)


def release_memory() -> None:
    """Free the GPU memory of a training that is over.

    Captured steps refer to themselves, so that only the garbage collector frees them.
    """
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
