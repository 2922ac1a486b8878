"""Which graphs go where: every graph once, few shapes, little padding, the same from a thread."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.spectrum.many_graphs import from_networkx, random_graphs

from specformer.datasets.batches import Batches, BatchShape, batch_stream, size_batches
from specformer.datasets.packed import GraphStore
from specformer.errors import ConfigError, GraphError
from specformer.graphs import GraphSet, read_graph_set
from specformer.spectrum import ManyReport, ManySpectra, PackedGraphs, decompose_many


def store_of(sizes: np.ndarray) -> GraphStore:
    """Graphs without bonds: their spectra are known, so nothing need be solved."""
    graphs = GraphSet(sizes, np.zeros_like(sizes), [], y=np.arange(len(sizes)))
    spectra = ManySpectra(
        torch.from_numpy(graphs.num_nodes),
        torch.ones(int(sizes.sum())),
        torch.cat([torch.eye(int(n)).ravel() for n in sizes]),
        ManyReport(0.0, 0.0, 0.0),
    )
    return GraphStore.build(graphs, spectra)


SIZES = np.random.default_rng(0).integers(1, 40, 500)
STORE = store_of(SIZES)
TRAIN = np.random.default_rng(1).permutation(500)[:430]


def test_an_epoch_has_every_graph_once() -> None:
    batches = Batches(STORE, TRAIN, 32, seed=3).epoch(0)
    assert [len(batch.index) for batch in batches] == [32] * 13 + [14]
    assert sorted(torch.cat([batch.index for batch in batches]).tolist()) == sorted(TRAIN)
    assert len(Batches(STORE, TRAIN, 32)) == 14


def test_graphs_are_given_by_number_or_by_a_mask() -> None:
    mask = np.isin(np.arange(500), TRAIN)
    for index in (mask, torch.from_numpy(mask), mask.tolist()):
        found = torch.cat([batch.index for batch in Batches(STORE, index, 32).epoch(0)])
        assert sorted(found.tolist()) == sorted(TRAIN)
    for index, message in (
        ([3, 500], r"index\[1\] is 500, but there are graphs 0..499"),
        ([-1], r"index\[0\] is -1, but there are graphs 0..499"),
        (mask[:400], "index must hold integers, not bool"),
    ):
        with pytest.raises(GraphError, match=message):
            Batches(STORE, index, 32)


def test_the_order_follows_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        batches = Batches(STORE, TRAIN, 50, seed=seed).epoch(epoch)
        return torch.cat([batch.index for batch in batches]).tolist()

    assert order(0, 4) == order(0, 4)
    assert order(0, 4) != order(0, 5)
    assert order(0, 4) != order(1, 4)


@pytest.mark.parametrize("batch_size", [1, 2, 32, 1000])
@pytest.mark.parametrize("growth", [1.02, 1.1, 1.5])
def test_every_batch_fits_its_shape(
    batch_size: int, growth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specformer.datasets.batches._GROWTH", growth)
    for batch in Batches(STORE, TRAIN, batch_size).epoch(1):
        assert batch.shape.holds(SIZES[batch.index.numpy()])
        assert batch.shape.max_nodes <= SIZES.max()


def test_graphs_of_one_size_have_one_shape() -> None:
    same = store_of(np.full(64, 9))
    shapes = {batch.shape for batch in Batches(same, np.arange(64), 16).epoch(0)}
    assert shapes == {BatchShape(16, 145, 16 * 81, 9, 1)}


def test_a_shape_that_is_too_small_holds_nothing() -> None:
    sizes = np.array([2, 3])
    assert BatchShape(2, 5, 13, 3).holds(sizes)
    assert BatchShape(2, 6, 20, 4).holds(sizes)
    for shape in [(2, 5, 14, 3), (2, 4, 13, 3), (2, 6, 12, 3), (2, 6, 14, 2), (3, 6, 14, 3)]:
        assert not BatchShape(*shape).holds(sizes)


def padding_of(store: GraphStore, index: np.ndarray, batch_size: int) -> tuple[float, int]:
    batches = Batches(store, index, batch_size)
    every = [batch for epoch in range(5) for batch in batches.epoch(epoch)]
    all_batches = [batch for batch in every if len(batch.index) == batch_size]
    true = sum(int((store.host_sizes[batch.index.numpy()] ** 2).sum()) for batch in all_batches)
    given = sum(batch.shape.num_pairs for batch in all_batches)
    return 1 - true / given, len({batch.shape for batch in all_batches})


@pytest.mark.parametrize(
    ("name", "batch_size", "most_shapes"), [("zinc", 32, 8), ("molhiv", 128, 24)]
)
def test_little_padding_in_few_shapes(
    name: str, batch_size: int, most_shapes: int, shared_data: Path
) -> None:
    graphs = read_graph_set(shared_data / f"{name}.npz")
    assert graphs.train_idx is not None
    share, shapes = padding_of(_sizes_only(graphs), graphs.train_idx, batch_size)
    assert share < 0.15
    assert shapes <= most_shapes


def _sizes_only(graphs: GraphSet) -> GraphStore:
    nothing = torch.empty(0)
    cells = np.stack([graphs.num_edges, np.zeros_like(graphs.num_edges)], axis=1)
    return GraphStore(*[nothing] * 8, graphs.num_nodes, cells)


def test_room_for_the_bonds_and_rings_of_every_batch() -> None:
    graphs = from_networkx(random_graphs(200))
    store = GraphStore.build(graphs, decompose_many(graphs), max_ring=6)
    counts = store.host_cells
    batches = Batches(store, np.arange(200), 8).epoch(0)
    in_order = size_batches(store, np.arange(200), 8)
    for batch in [*batches, *in_order]:
        held = store.batch(*batch)
        assert held.rings is not None
        assert (held.num_bonds, len(held.rings)) == (batch.shape.num_bonds, batch.shape.num_rings)
        bonds, rings = counts[batch.index.numpy()].sum(axis=0)
        assert int((held.rings[:, 0] >= 0).sum()) == rings
        assert int((held.bond > 0).sum()) <= 2 * held.num_bonds
        assert held.num_bonds >= bonds
    for column, name in enumerate(("num_bonds", "num_rings")):
        usual = math.ceil(1.5 * counts[:, column].mean() * 8)
        assert {getattr(batch.shape, name) for batch in batches} <= {usual * 2**k for k in range(6)}
        # In evaluation there is no more than needed, and one at least.
        exact = sum(getattr(batch.shape, name) for batch in in_order)
        assert exact <= counts[:, column].sum() + len(in_order)


def test_shapes_without_rings_have_no_room_for_any() -> None:
    shapes = {batch.shape for batch in Batches(STORE, TRAIN, 32).epoch(0)}
    assert {shape.num_rings for shape in shapes} == {0}


def test_evaluation_goes_by_size_without_padding() -> None:
    batches = size_batches(STORE, TRAIN, 64)
    assert sorted(torch.cat([batch.index for batch in batches]).tolist()) == sorted(TRAIN)
    sizes = [SIZES[batch.index.numpy()] for batch in batches]
    assert (np.diff(np.concatenate(sizes)) >= 0).all()
    for batch, each in zip(batches, sizes, strict=True):
        bonds, _ = STORE.cells(batch.index.numpy())
        shape = BatchShape(len(each), each.sum(), (each**2).sum(), each.max(), bonds)
        assert batch.shape == shape
        assert len(each) <= 64
    limit = np.ceil(2 * 64 * (SIZES[TRAIN] ** 2).mean())
    assert all(batch.shape.num_pairs <= limit or len(batch.index) == 1 for batch in batches)
    few = store_of(np.array([2] * 9 + [40]))
    assert [len(batch.index) for batch in size_batches(few, np.arange(10), 4)] == [4, 4, 1, 1]


def test_a_stream_where_the_store_is() -> None:
    batches = Batches(STORE, TRAIN, 100).epoch(0)
    for batch, (graphs, labels) in zip(batches, batch_stream(STORE, batches, "cpu"), strict=True):
        assert labels is not None
        assert labels.ravel().tolist() == batch.index.tolist()
        assert graphs.sizes.tolist() == SIZES[batch.index.numpy()].tolist()


def test_a_stream_to_another_device_sends_the_same_shapes_ahead() -> None:
    batches = Batches(STORE, TRAIN, 100).epoch(0)
    received = list(batch_stream(STORE, batches, "meta"))
    assert len(received) == len(batches)
    for batch, (graphs, labels) in zip(batches, received, strict=True):
        assert graphs.target.shape == (batch.shape.num_pairs,)
        assert labels is not None
        assert (graphs.target.device.type, labels.shape) == ("meta", (len(batch.index), 1))


def test_an_error_in_the_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Batches(STORE, TRAIN, 100).epoch(0)[:2]
    honest = GraphStore.batch

    def broken(store: GraphStore, index: torch.Tensor, shape: BatchShape) -> PackedGraphs:
        if index is second.index:
            raise ConfigError("stop here")
        return honest(store, index, shape)

    monkeypatch.setattr(GraphStore, "batch", broken)
    stream = batch_stream(STORE, [first, second], "meta")
    next(stream)
    with pytest.raises(ConfigError, match="stop here"):
        next(stream)


def test_a_stream_left_early_leaves_no_thread() -> None:
    stream = batch_stream(STORE, Batches(STORE, TRAIN, 10).epoch(0), "meta")
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not [each for each in threading.enumerate() if each.name.startswith("batch-stream")]


def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match="batch_size=0"):
        Batches(STORE, TRAIN, 0)
    with pytest.raises(ConfigError, match="the training part is empty"):
        Batches(STORE, [], 4)


def test_batches_of_real_spectra_are_filled() -> None:
    graphs = GraphSet([2, 3, 1], [1, 3, 0], [[0, 0, 1, 2], [1, 1, 2, 0]])
    store = GraphStore.build(graphs, decompose_many(graphs))
    for batch in Batches(store, [0, 1, 2], 2).epoch(0):
        packed = store.batch(*batch)
        assert packed.max_nodes == batch.shape.max_nodes
        assert int(packed.pair_mask.sum()) == int((packed.sizes**2).sum())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_stream_to_a_gpu_brings_what_a_store_there_makes() -> None:
    batches = Batches(STORE, TRAIN, 32).epoch(0)
    there = STORE.to("cuda")
    for batch, (graphs, labels) in zip(batches, batch_stream(STORE, batches, "cuda"), strict=True):
        expected = there.batch(batch.index.cuda(), batch.shape)
        assert labels is not None
        assert torch.equal(labels, there.labels(batch.index.cuda()))
        for name in ("nodes", "graph", "target", "source", "bond", "eigenvectors"):
            assert torch.equal(getattr(graphs, name), getattr(expected, name))
