"""Batches cut from resident arrays, against the same graphs written out one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.datasets.coloured_graphs import GRAPHS, SPECTRA, STORE
from tests.graphs.formats.pyg_data import graph_set_to_pyg
from torch_geometric.data import Batch

from specformer.datasets.packed import BatchShape, GraphStore, bond_kinds, pack
from specformer.errors import ConfigError, GraphError
from specformer.graphs import GraphSet, find_rings
from specformer.spectrum import ManySpectra, PackedGraphs, decompose_many

CHOSEN = [3, 0, 7, 1, 7, 13]


def literal(graphs: GraphSet, spectra: ManySpectra, chosen: list[int]) -> dict[str, list[object]]:
    """The batch by loops over graphs, nodes and pairs; a bond by its features."""
    out: dict[str, list[object]] = {
        name: []
        for name in ("nodes", "graph", "position", "target", "source", "bond", "values", "vectors")
    }
    row = 0
    for place, number in enumerate(chosen):
        n = int(graphs.num_nodes[number])
        first = int(graphs.node_start[number])
        bonds = range(*graphs.edge_start[number : number + 2])
        kinds = {}
        for bond in bonds:
            i, j = graphs.edge_index[:, bond].tolist()
            kinds[i, j] = kinds[j, i] = (graphs.edge_feat[bond].astype(int) + 1).tolist()
        values, vectors = spectra[number]
        for i in range(n):
            out["nodes"].append(graphs.node_feat[first + i].tolist())
            out["graph"].append(place)
            out["position"].append(i)
            out["values"].append(values[i].item())
            for j in range(n):
                out["target"].append(row + i)
                out["source"].append(row + j)
                out["bond"].append(kinds.get((i, j), [0, 0]))
                out["vectors"].append(vectors[i, j].item())
        row += n
    return out


def fields_of(batch: PackedGraphs, nodes: int, pairs: int) -> dict[str, list[object]]:
    return {
        "nodes": batch.nodes[:nodes].tolist(),
        "graph": batch.graph[:nodes].tolist(),
        "position": batch.position[:nodes].tolist(),
        "target": batch.target[:pairs].tolist(),
        "source": batch.source[:pairs].tolist(),
        "bond": batch.bond_table[batch.bond[:pairs]].tolist(),
        "values": batch.eigenvalues[:nodes].tolist(),
        "vectors": batch.eigenvectors[:pairs].tolist(),
    }


def counts(chosen: list[int]) -> tuple[int, int]:
    sizes = GRAPHS.num_nodes[chosen]
    return int(sizes.sum()), int((sizes**2).sum())


def test_a_batch_without_padding() -> None:
    batch = STORE.exact(CHOSEN)
    nodes, pairs = counts(CHOSEN)
    assert (len(batch.graph), len(batch.target)) == (nodes, pairs)
    assert fields_of(batch, nodes, pairs) == literal(GRAPHS, SPECTRA, CHOSEN)
    assert batch.sizes.tolist() == GRAPHS.num_nodes[CHOSEN].tolist()
    assert batch.max_nodes == GRAPHS.num_nodes[CHOSEN].max()
    assert batch.num_graphs == len(CHOSEN)
    assert bool(batch.node_mask.all())
    assert bool(batch.pair_mask.all())


def test_a_batch_of_a_mask() -> None:
    mask = torch.arange(len(GRAPHS)) % 3 == 1
    batch, chosen = STORE.exact(mask), list(range(1, len(GRAPHS), 3))
    nodes, pairs = counts(chosen)
    assert fields_of(batch, nodes, pairs) == literal(GRAPHS, SPECTRA, chosen)
    with pytest.raises(GraphError, match=r"index\[0\] is -1, but there are graphs 0..13"):
        STORE.exact([-1])


@pytest.mark.parametrize("more_pairs", [0, 1, 50])
def test_a_batch_with_padding(more_pairs: int) -> None:
    nodes, pairs = counts(CHOSEN)
    shape = BatchShape(len(CHOSEN), nodes + 4, pairs + more_pairs, max_nodes=9)
    batch = STORE.batch(torch.tensor(CHOSEN), shape)
    assert fields_of(batch, nodes, pairs) == literal(GRAPHS, SPECTRA, CHOSEN)
    assert batch.graph[nodes:].tolist() == [len(CHOSEN)] * 4
    assert not batch.nodes[nodes:].any()
    assert not batch.position[nodes:].any()
    assert not batch.eigenvalues[nodes:].any()
    assert batch.target[pairs:].tolist() == [nodes + 3] * more_pairs
    assert batch.source[pairs:].tolist() == [nodes + 3] * more_pairs
    assert not batch.bond[pairs:].any()
    assert not batch.eigenvectors[pairs:].any()
    assert int(batch.pair_mask.sum()) == pairs


def test_numbers_of_nodes_come_with_them() -> None:
    x = np.random.default_rng(0).standard_normal((len(GRAPHS.node_feat), 2)).astype(np.float32)
    store = GraphStore.build(replace(GRAPHS, x=x), SPECTRA)
    nodes, pairs = counts(CHOSEN)
    padded = store.batch(torch.tensor(CHOSEN), BatchShape(len(CHOSEN), nodes + 4, pairs + 9, 9))
    rows = [x[GRAPHS.node_start[i] : GRAPHS.node_start[i + 1]] for i in CHOSEN]
    for batch in (padded, store.exact(CHOSEN), store.to("cpu").exact(CHOSEN).to("cpu")):
        np.testing.assert_array_equal(batch.x[:nodes], np.concatenate(rows))
    assert not padded.x[nodes:].any()
    assert store.nbytes == STORE.nbytes + x.nbytes
    assert STORE.exact(CHOSEN).x is None


def test_types_are_small_at_rest_and_fit_for_indexing_in_a_batch() -> None:
    assert STORE.nodes.dtype == torch.int16
    assert STORE.bond.dtype == torch.uint8
    batch = STORE.exact([2, 3])
    integers = (batch.nodes, batch.graph, batch.position, batch.target, batch.source, batch.bond)
    assert {tensor.dtype for tensor in integers} == {torch.int64}
    assert batch.eigenvectors.dtype == torch.float32


def test_assembly_depends_on_no_value() -> None:
    """Traced on tensors that have shapes but no values, it cannot wait for any."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        index = torch.zeros(4, dtype=torch.int64)
        batch = WITH_RINGS.batch(index, BatchShape(4, 40, 400, 9, num_rings=7))
    assert batch.rings is not None
    assert batch.rings.shape == (7, 5)
    assert batch.eigenvectors.shape == (400,)
    assert batch.nodes.shape == (40, 2)


RINGS = find_rings(GRAPHS, 5)
WITH_RINGS = GraphStore.build(GRAPHS, SPECTRA, max_ring=5)


def rings_of(chosen: list[int]) -> list[list[int]]:
    first = np.cumsum(RINGS.counts) - RINGS.counts
    return [
        RINGS.atoms[first[number] + one].tolist()
        for number in chosen
        for one in range(RINGS.counts[number])
    ]


@pytest.mark.parametrize("more_rings", [0, 3])
def test_rings_come_where_they_are_asked_for(more_rings: int) -> None:
    expected = rings_of(CHOSEN)
    assert len(expected) > 3
    nodes, pairs = counts(CHOSEN)
    bonds, rings = WITH_RINGS.cells(np.array(CHOSEN))
    assert bonds == GRAPHS.num_edges[CHOSEN].sum()
    shape = BatchShape(len(CHOSEN), nodes + 1, pairs, 9, bonds + 2, rings + more_rings)
    batch = WITH_RINGS.batch(torch.tensor(CHOSEN), shape)
    assert batch.num_bonds == bonds + 2
    assert batch.rings is not None
    assert batch.rings.tolist() == expected + [[-1] * 5] * more_rings
    assert batch.ring_counts is not None
    assert batch.ring_counts.tolist() == RINGS.counts[CHOSEN].tolist()
    exact = WITH_RINGS.to("cpu").exact(CHOSEN)
    assert exact.rings is not None
    assert exact.rings.tolist() == expected
    assert exact.num_bonds == bonds
    assert (STORE.exact(CHOSEN).rings, STORE.cells(np.array(CHOSEN))) == (None, (bonds, 0))


def test_graphs_without_rings_have_a_row_of_padding() -> None:
    batch = pack(GraphSet([1], [0], []), max_ring=4)
    assert batch.rings is not None
    assert batch.ring_counts is not None
    assert (batch.rings.tolist(), batch.ring_counts.tolist()) == ([[-1] * 4], [0])
    assert batch.num_bonds == 1


def test_labels() -> None:
    np.testing.assert_array_equal(STORE.labels(torch.tensor(CHOSEN)), GRAPHS.y[CHOSEN])
    bare = GraphSet([1], [0], [])
    with pytest.raises(GraphError, match="no targets"):
        GraphStore.build(bare, decompose_many(bare)).labels(torch.tensor([0]))


def test_moving_and_measuring() -> None:
    moved = STORE.to("cpu")
    assert len(moved) == len(GRAPHS)
    assert moved.nbytes == STORE.nbytes
    assert STORE.nbytes >= STORE.eigenvectors.nbytes + STORE.y.nbytes
    assert torch.equal(STORE.placed("cpu").bond, STORE.bond)


def test_spectra_of_other_graphs_are_refused() -> None:
    with pytest.raises(GraphError, match="the spectra belong to other graphs"):
        GraphStore.build(GRAPHS, decompose_many(GRAPHS.subset([0, 1])))


def test_kinds_of_bonds_are_the_different_rows() -> None:
    kind, table = bond_kinds(GRAPHS)
    assert table[0].tolist() == [0, 0]
    np.testing.assert_array_equal(table[kind], GRAPHS.edge_feat.astype(int) + 1)
    assert len(np.unique(table, axis=0)) == len(table)
    wide = GraphSet([2, 2], [1, 1], [[0, 0], [1, 1]], edge_feat=np.full((2, 3), 2**31 - 1))
    kind, table = bond_kinds(wide)  # too many digits for one number
    assert kind.tolist() == [1, 1]
    assert table[1].tolist() == [2**31] * 3
    kind, table = bond_kinds(GraphSet([1], [0], []))
    assert (kind.size, table.tolist()) == (0, [[0]])


def test_pyg_in() -> None:
    data = graph_set_to_pyg(GRAPHS)
    nodes, pairs = counts(list(range(len(GRAPHS))))
    expected = literal(GRAPHS, SPECTRA, list(range(len(GRAPHS))))
    for source in (data, Batch.from_data_list(data), GRAPHS):
        assert fields_of(pack(source), nodes, pairs) == expected
    loops = pack(data, matrix="adjacency-with-loops")
    assert loops.eigenvalues.max() == 1.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_captured_batch_follows_its_index() -> None:
    store = WITH_RINGS.to("cuda")
    index = torch.tensor([3, 0, 7], device="cuda")
    shape = BatchShape(3, 40, 300, 9, num_bonds=60, num_rings=60)
    worked_out = ("graph", "position", "target", "source")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # warm-up
        batch = store.batch(index, shape)
        [getattr(batch, name) for name in worked_out]
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch = store.batch(index, shape)
        # Asked for here: what is worked out later would not follow the index.
        [getattr(batch, name) for name in worked_out]
    for chosen in ([3, 0, 7], [13, 1, 5]):
        index.copy_(torch.tensor(chosen))
        graph.replay()
        nodes, pairs = counts(chosen)
        assert fields_of(batch, nodes, pairs) == literal(GRAPHS, SPECTRA, chosen)
        assert batch.rings is not None
        expected = rings_of(chosen)
        assert batch.rings.tolist() == expected + [[-1] * 5] * (60 - len(expected))


def test_a_batch_goes_to_a_device_and_keeps_its_types() -> None:
    batch = pack(GraphSet([2, 1], [1, 0], [[0], [1]]))
    assert batch.to("cpu").nodes.dtype == batch.nodes.dtype
    with pytest.raises(ConfigError, match=r"to a device, not to torch\.float64"):
        batch.to(torch.float64)
