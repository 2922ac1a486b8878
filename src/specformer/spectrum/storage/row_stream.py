r"""Rows of a matrix too large for a device, brought there a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

#: Bytes per chunk; two are on their way at once, each in the host's memory and on the device.
CHUNK = 2**27


def rows_at_once(matrix: Tensor) -> int:
    """How many rows make a chunk, at least one.

    Example:
        >>> rows_at_once(torch.zeros(10, 1024))
        32768
    """
    width = matrix[:1].numel() * matrix.element_size()
    return max(1, CHUNK // max(1, width))


class RowStream:
    """Chunks of a matrix's rows on a device, in the precision of the work there.

    The matrix stays where it is: in the host's memory, in a memory-mapped file or on the device.
    To a GPU, rows go through two pinned buffers and two on the device: while one chunk is worked
    on, the next is copied on a stream of its own.

    Args:
        matrix: ``[n, ...]``, in any precision.
        device: where chunks are wanted.
        dtype: their precision.
        most: rows a chunk has at most.

    Example:
        >>> stream = RowStream(torch.arange(6.0).view(3, 2), torch.device("cpu"), torch.float32, 2)
        >>> [chunk.tolist() for chunk in stream([slice(0, 2), torch.tensor([2, 0])])]
        [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [0.0, 1.0]]]
    """

    def __init__(self, matrix: Tensor, device: torch.device, dtype: torch.dtype, most: int) -> None:
        self.matrix, self.device, self.dtype, self.most = matrix, device, dtype, most
        self._lane: _Lane | None = None

    def __call__(self, places: Iterable[slice | Tensor]) -> Iterator[Tensor]:
        """The rows at each of these places in turn; a chunk is good until the next is asked for."""
        if self.device.type == "cuda" and self.matrix.device != self.device:
            if self._lane is None:
                self._lane = _Lane(self.matrix, self.device, self.most)
            chunks = self._lane.send(places)
        else:
            chunks = (_taken(self.matrix, place) for place in places)
        for chunk in chunks:
            yield chunk.to(self.device, self.dtype)

    def slices(self) -> list[slice]:
        """Consecutive places that cover all rows."""
        count = len(self.matrix)
        return [slice(first, min(first + self.most, count)) for first in range(0, count, self.most)]


class _Buffer:
    """One chunk's room on either side, and when each side may be written again."""

    def __init__(self, matrix: Tensor, device: torch.device, most: int) -> None:
        shape = (min(most, len(matrix)), *matrix.shape[1:])
        self.pinned = torch.empty(shape, dtype=matrix.dtype, pin_memory=True)
        self.there = torch.empty(shape, dtype=matrix.dtype, device=device)
        self.sent, self.used = torch.cuda.Event(), torch.cuda.Event()
        # Its memory may have been another tensor's, with work on it still queued.
        self.used.record(torch.cuda.current_stream(device))


class _Lane:
    """Two buffers by turns, filled on a stream of its own."""

    def __init__(self, matrix: Tensor, device: torch.device, most: int) -> None:
        self._matrix, self._device = matrix, device
        self._buffers = [_Buffer(matrix, device, most) for _ in range(2)]
        self._stream = torch.cuda.Stream(device)

    def send(self, places: Iterable[slice | Tensor]) -> Iterator[Tensor]:
        current = torch.cuda.current_stream(self._device)
        for number, place in enumerate(places):
            buffer = self._buffers[number % 2]
            buffer.sent.synchronize()  # the host waits: it is about to write over what was sent
            filled = _taken(self._matrix, place, buffer.pinned)
            chunk = buffer.there[: len(filled)]
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(buffer.used)
                chunk.copy_(filled, non_blocking=True)
                buffer.sent.record(self._stream)
            current.wait_event(buffer.sent)
            try:
                yield chunk
            finally:
                buffer.used.record(current)


def _taken(matrix: Tensor, place: slice | Tensor, out: Tensor | None = None) -> Tensor:
    """The rows at a place, written to the beginning of ``out`` where there is one."""
    if isinstance(place, slice):
        rows = matrix[place]
        return rows if out is None else out[: len(rows)].copy_(rows)
    place = place.to(matrix.device)
    if out is None:
        return matrix.index_select(0, place)
    room = out[: len(place)]
    torch.index_select(matrix, 0, place, out=room)
    return room
