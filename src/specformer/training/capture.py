r"""Repeat work many times: captured once as a CUDA graph and replayed, or called on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

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
        if self._aside is None:
            self._epoch()
        elif self._graph is not None:
            self._graph.replay()
        elif self._calls < self._EAGER_CALLS:
            self._aside(self._epoch)  # warm-up epochs are real epochs
        else:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._epoch()
            self._graph.replay()
        self._calls += 1


class RepeatedByShape(Generic[Shape]):
    """Calls ``step(index, shape)``; on a GPU all but the first two calls of a shape are replays.

    ``step`` must keep its state in tensors it updates in place and must not read them back. A
    shape's first call is an ordinary one, so a shape that comes once is never captured. All graphs
    share one pool of memory: no tensor made inside a step may be needed after it.

    Args:
        step: takes numbers ``[B]`` and the shape of what they stand for; B follows from the shape.
        device: where it works.
        capture: False for ordinary calls only.
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
        if self._aside is None:
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
        buffer, graph = index.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(buffer, shape)
        return buffer, graph


class _Aside:
    """Ordinary calls where capture wants those before it: on one side stream.

    One for all calls, as memory freed on a stream is used again on that stream alone.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def __call__(self, work: Callable[[], None]) -> None:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            work()
        current.wait_stream(self._stream)
