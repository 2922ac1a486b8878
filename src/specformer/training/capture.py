r"""Repeat one epoch many times: captured once as a CUDA graph and replayed, or called on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Repeated:
    """Calls ``epoch()`` again and again; on a GPU all but the first calls replay a CUDA graph.

    ``epoch`` must keep its state in tensors it updates in place and must not read them back.
    """

    _EAGER_CALLS = 3

    def __init__(
        self, epoch: Callable[[], None], device: torch.device, *, capture: bool = True
    ) -> None:
        self._epoch = epoch
        self._device = device
        self._capture = capture and device.type == "cuda"
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if not self._capture:
            self._epoch()
        elif self._graph is not None:
            self._graph.replay()
        elif self._calls < self._EAGER_CALLS:
            # Warm-up epochs are real epochs, run where capture wants them: on a side stream.
            stream = torch.cuda.Stream(self._device)
            stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(stream):
                self._epoch()
            torch.cuda.current_stream(self._device).wait_stream(stream)
        else:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._epoch()
            self._graph.replay()
        self._calls += 1
