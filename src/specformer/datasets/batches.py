r"""Batches of graphs, in so few shapes that a step can be captured for each."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from specformer.datasets.packed import BatchShape, GraphStore
from specformer.errors import ConfigError
from specformer.graphs.checks import graph_numbers
from specformer.graphs.graph_set import runs_within
from specformer.spectrum import PackedGraphs
from specformer.spectrum.many.packed_graphs import tensors_of

#: Shapes near the mean differ by this factor in pairs of nodes; about half of that is padding.
_GROWTH = 1.1
#: The size of the largest graph of a batch is rounded up to a power of two, at least this.
_SMALL_GRAPH = 64
#: Batches that a stream prepares ahead.
_AHEAD = 2
#: A batch and its targets ``[B, tasks]``.
Loaded: TypeAlias = tuple[PackedGraphs, Tensor | None]
#: A batch on its way to a device and, for a GPU, the event of its arrival.
_Sent: TypeAlias = tuple[Loaded, torch.cuda.Event | None]


class Batch(NamedTuple):
    """Numbers of graphs ``[B]`` and the shape of their batch."""

    index: Tensor  # type: ignore[assignment]  # tuples have a method of this name
    shape: BatchShape


class Batches:
    r"""Training batches in a new random order every epoch, in a ladder of few shapes.

    With :math:`\bar p` pairs of nodes in a batch on average, P is rounded up to the next of
    :math:`\bar p \cdot 1.1^{\pm k(k+1)/2}`: close together where most batches are, far apart where
    few are. By Cauchy and Schwarz :math:`\sum n \le \sqrt{B \sum n^2}`, so
    :math:`N = \sqrt{B P} + 1` rows hold any batch of P pairs: one shape per rung. The size of the
    largest graph is rounded up to 64, 128, 256, …, or to the largest of all. There is room for 1.5
    times as many bonds and rings as a batch has on average, and for twice, four times, … that in
    larger batches. ``index`` has the numbers of the graphs to train on, or a mask of them; ``seed``
    and the epoch's number decide the order.
    """

    def __init__(self, store: GraphStore, index: Any, batch_size: int, *, seed: int = 0) -> None:
        self.numbers = graph_numbers(index, "index", len(store))
        if len(self.numbers) == 0:
            raise ConfigError("the training part is empty; choose another split.")
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} must be at least 1.")
        self.batch_size = batch_size
        self.seed = seed
        self._store = store
        self._sizes = store.host_sizes
        chosen = self._sizes[self.numbers]
        self._mean_pairs = float((chosen**2).mean())
        self._largest = int(chosen.max())
        self._mean_cells = np.array(store.cells(self.numbers)) / len(self.numbers)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return math.ceil(len(self.numbers) / self.batch_size)

    def epoch(self, number: int) -> list[Batch]:
        """The batches of an epoch; the same for the same seed and number."""
        order = np.random.default_rng([self.seed, number]).permutation(self.numbers)
        parts = np.split(order, range(self.batch_size, len(order), self.batch_size))
        # One copy to the device per epoch.
        tensors = torch.from_numpy(order).to(self._store.device).split(self.batch_size)
        return [
            Batch(tensor, self.shape(part)) for tensor, part in zip(tensors, parts, strict=True)
        ]

    def shape(self, index: np.ndarray) -> BatchShape:
        """The rung of the ladder for these graphs."""
        sizes = self._sizes[index]
        pairs = int((sizes**2).sum())
        base = self._mean_pairs * len(sizes)
        # The last, incomplete batch of an epoch has fewer and larger shapes.
        growth = _GROWTH if len(sizes) == self.batch_size else _GROWTH**3
        num_pairs = max(math.ceil(base * growth ** _rung(math.log(pairs / base, growth))), pairs)
        rounded = max(_SMALL_GRAPH, 1 << (int(sizes.max()) - 1).bit_length())
        room = np.ceil(1.5 * (self._mean_cells * len(index))).astype(int).tolist()
        for place, count in enumerate(self._store.cells(index)):
            while room[place] < count:
                room[place] *= 2
        shape = BatchShape(
            num_graphs=len(sizes),
            num_nodes=math.isqrt(len(sizes) * num_pairs) + 1,
            num_pairs=num_pairs,
            max_nodes=min(rounded, self._largest),
            num_bonds=room[0],
            num_rings=room[1],
        )
        assert shape.holds(sizes), f"{shape} does not hold its graphs"
        return shape


def _rung(exponent: float) -> int:
    """The least of …, −3, −1, 0, 1, 3, 6, … (k(k + 1)/2) that is not below ``exponent``."""
    steps = (math.sqrt(1 + 8 * abs(exponent)) - 1) / 2
    k = math.ceil(steps) if exponent > 0 else -math.floor(steps)
    return k * (abs(k) + 1) // 2


def size_batches(store: GraphStore, index: Any, batch_size: int) -> list[Batch]:
    """Batches for evaluation: graphs in order of size, without padding, ``batch_size`` at most.

    Batches of more than one graph have at most twice the pairs of ``batch_size`` average graphs, so
    that batches of large graphs take no more memory.
    """
    numbers = np.asarray(index, dtype=np.int64)
    numbers = numbers[np.argsort(store.host_sizes[numbers], kind="stable")]
    sizes = store.host_sizes[numbers]
    max_pairs = math.ceil(2 * batch_size * float((sizes**2).mean()))
    on_device = torch.from_numpy(numbers).to(store.device)
    batches = []
    for first, last in runs_within(sizes**2, max_pairs, batch_size):
        shape = store.exact_shape(numbers[first:last])
        batches.append(Batch(on_device[first:last], shape))
    return batches


def batch_stream(
    store: GraphStore, batches: Iterable[Batch], device: torch.device | str
) -> Iterator[Loaded]:
    """Batches and their targets on ``device``, wherever the store is.

    If the store is on another device, a thread builds and sends up to two batches ahead.
    """
    target = torch.device(device)
    if store.device.type == target.type:
        yield from (_built(store, batch) for batch in batches)
        return
    side = torch.cuda.Stream(target) if target.type == "cuda" else None
    with ThreadPoolExecutor(1, "batch-stream") as worker:
        sent: deque[Future[_Sent]] = deque()
        for batch in batches:
            sent.append(worker.submit(_send, store, batch, target, side))
            if len(sent) > _AHEAD:
                yield _received(sent.popleft().result())
        while sent:
            yield _received(sent.popleft().result())


def _built(store: GraphStore, batch: Batch) -> Loaded:
    labels = None if store.y is None else store.labels(batch.index)
    return store.batch(batch.index, batch.shape), labels


def _send(
    store: GraphStore, batch: Batch, device: torch.device, side: torch.cuda.Stream | None
) -> _Sent:
    graphs, labels = _built(store, batch)
    if side is None:
        return (graphs.to(device), None if labels is None else labels.to(device)), None
    # Copies run beside computation only from pinned memory and on a stream of their own.
    pinned: dict[str, Any] = {name: each.pin_memory() for name, each in tensors_of(graphs).items()}
    graphs = replace(graphs, **pinned)
    with torch.cuda.stream(side):
        moved = graphs.to(device)
        targets = None
        if labels is not None:
            targets = labels.pin_memory().to(device, non_blocking=True)
        return (moved, targets), side.record_event()


def _received(sent: _Sent) -> Loaded:
    (graphs, labels), arrival = sent
    if arrival is not None:
        current = torch.cuda.current_stream()
        current.wait_event(arrival)
        # They were allocated on another stream and are freed on this one.
        for tensor in (*tensors_of(graphs).values(), *(() if labels is None else (labels,))):
            tensor.record_stream(current)
    return graphs, labels
