"""Sets of graphs from PyG's objects and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.graphs.formats.pyg_data import graph_set_to_pyg
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.utils import is_undirected

from specformer.errors import GraphError
from specformer.graphs import GraphSet, Molecules, graph_set_from_pyg

GRAPHS = GraphSet(
    num_nodes=[3, 1, 2],
    num_edges=[3, 0, 1],
    edge_index=[[0, 1, 2, 1], [1, 2, 2, 0]],
    node_feat=[[6, 1], [6, 0], [8, 0], [7, 0], [6, 3], [6, 2]],
    edge_feat=[[1], [2], [3], [4]],
    y=[[1.5], [np.nan], [0.0]],
)


def assert_same(one: GraphSet, other: GraphSet) -> None:
    features = ("node_feat", "edge_feat", "x", "edge_x", "y")
    for field in ("num_nodes", "num_edges", "edge_index", *features):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)


def test_numbers_of_nodes_come_back_beside_their_categories() -> None:
    graphs = replace(GRAPHS, x=np.random.default_rng(0).standard_normal((6, 2)))
    data = graph_set_to_pyg(graphs)
    assert data[0].x.dtype == torch.float32
    assert data[2].z.tolist() == [[6, 3], [6, 2]]
    assert_same(graph_set_from_pyg(data), graphs)
    assert_same(graph_set_from_pyg(Batch.from_data_list(data)), graphs)
    for each in data:
        del each.z
    alone = graph_set_from_pyg(data)
    np.testing.assert_array_equal(alone.x, graphs.x)
    assert not alone.node_feat.any()


def test_numbers_of_bonds_come_back_beside_their_categories() -> None:
    graphs = replace(GRAPHS, edge_x=np.random.default_rng(0).standard_normal((4, 2)))
    data = graph_set_to_pyg(graphs)
    assert data[0].edge_attr.shape == (5, 2)
    assert data[2].edge_type.tolist() == [[4], [4]]
    # Without edges it has no number to be a float, nor a category to be an integer.
    data[1].edge_attr, data[1].edge_type = torch.zeros(0, 7).long(), None
    assert_same(graph_set_from_pyg(data), graphs)
    assert_same(graph_set_from_pyg(Batch.from_data_list(graph_set_to_pyg(graphs))), graphs)
    assert_same(graphs.subset([2, 0]).subset([1, 0]), graphs.subset([0, 2]))
    for each in data:
        del each.edge_type
    alone = graph_set_from_pyg(data)
    np.testing.assert_array_equal(alone.edge_x, graphs.edge_x)
    assert not alone.edge_feat.any()
    assert alone.fingerprint != replace(alone, edge_x=alone.edge_x + 1).fingerprint
    data[2].edge_attr = data[2].edge_attr.long()
    message = "edge_attr holds numbers in graph 0 and categories in graph 2; make all"
    with pytest.raises(GraphError, match=message):
        graph_set_from_pyg(data)


@pytest.mark.parametrize("kind", [torch.float32, torch.int64])
def test_a_graph_without_edges_may_have_no_columns_of_them(kind: torch.dtype) -> None:
    pair = torch.tensor([[0, 1], [1, 0]])
    one = Data(num_nodes=1, edge_index=pair[:, :0], edge_attr=torch.empty(0, 0, dtype=kind))
    other = Data(num_nodes=2, edge_index=pair, edge_attr=torch.tensor([[3, 4], [3, 4]]).to(kind))
    found = graph_set_from_pyg([one, other])
    features = found.edge_x if kind.is_floating_point else found.edge_feat
    np.testing.assert_array_equal(features, [[3, 4]])
    assert graph_set_from_pyg([one]).num_edges.tolist() == [0]


def test_data_have_both_directions() -> None:
    data = graph_set_to_pyg(GRAPHS)
    assert data[0].edge_index.tolist() == [[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]]
    assert data[0].edge_attr.ravel().tolist() == [1, 1, 2, 2, 3]
    assert data[1].edge_index.shape == (2, 0)
    assert data[2].x.tolist() == [[6, 3], [6, 2]]
    assert data[0].y.shape == (1, 1)
    assert all(is_undirected(each.edge_index, each.edge_attr) for each in data)
    assert all(each.validate() for each in data)


def test_a_list_and_a_batch_come_back() -> None:
    data = graph_set_to_pyg(GRAPHS)
    assert_same(graph_set_from_pyg(data), GRAPHS)
    assert_same(graph_set_from_pyg(iter(data)), GRAPHS)
    assert_same(graph_set_from_pyg(Batch.from_data_list(data)), GRAPHS)


@pytest.mark.parametrize("keep", [slice(None), [2, 0]])
def test_a_data_set_in_memory_is_its_graphs(keep: Any) -> None:
    data = graph_set_to_pyg(GRAPHS)
    whole = InMemoryDataset()
    whole.data, whole.slices = whole.collate(data)
    assert_same(graph_set_from_pyg(whole[keep]), graph_set_from_pyg([*whole[keep]]))
    assert graph_set_from_pyg(whole).num_nodes.tolist() == [3, 1, 2]


def test_a_shuffled_batch_keeps_each_graphs_bonds() -> None:
    batch = Batch.from_data_list(graph_set_to_pyg(GRAPHS))
    order = torch.tensor([6, 0, 5, 1, 2, 3, 4])
    batch.edge_index, batch.edge_attr = batch.edge_index[:, order], batch.edge_attr[order]
    back = graph_set_from_pyg(batch)
    assert back.num_edges.tolist() == [3, 0, 1]
    assert back.edge_feat.ravel().tolist() == [1, 2, 3, 4]


def test_bare_data_and_single_data() -> None:
    bare = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3)
    graphs = graph_set_from_pyg(bare)
    assert graphs.num_nodes.tolist() == [3]
    assert graphs.y is None
    assert graph_set_to_pyg(graphs)[0].y is None


def test_categories_may_be_in_z_alone() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), z=torch.tensor([6, 8]), num_nodes=2)
    for source in (data, Batch.from_data_list([data])):
        graphs = graph_set_from_pyg(source)
        assert graphs.x is None
        assert graphs.node_feat.tolist() == [[6], [8]]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "the set has no graphs"),
        (Molecules(GRAPHS, (0, 1, 2), ()), "cannot read graphs from Molecules; .* the graphs of"),
        ([3], "graph 0 is not a PyG Data"),
        *(
            (
                [
                    Data(edge_index=torch.zeros(2, 0, dtype=torch.long), x=x)
                    for x in (torch.zeros_like(odd), odd)
                ],
                message,
            )
            for odd, message in (
                (torch.tensor([[0], [-2]]), r"graph 1: x\[1, 0\] is -2, but categories are 0, 1"),
                (torch.tensor([[0.0, torch.inf]]), r"graph 1: x\[0, 1\] is inf, but features must"),
            )
        ),
        (
            [
                Data(edge_index=torch.zeros(2, 0, dtype=torch.long), x=x)
                for x in (torch.rand(1, 2), torch.ones(1, 2).long())
            ],
            "x holds numbers in graph 0 and categories in graph 1; make all",
        ),
        (
            [
                Data(edge_index=torch.zeros(2, 0, dtype=torch.long), x=torch.ones(1, 1).long()),
                Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=1),
            ],
            "only 1 of 2 graphs have 'x or z'",
        ),
        (
            [
                Data(edge_index=torch.zeros(2, 0, dtype=torch.long), x=torch.ones(1, width).long())
                for width in (1, 2)
            ],
            "x or z has a different number of columns",
        ),
    ],
)
def test_what_is_wrong_is_named(source: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graph_set_from_pyg(source)


RING = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": torch.eye(3) > 0}, r"x.* categories 0, 1, 2, … .*not bool; if it is one-hot"),
        ({"x": torch.rand(2, 4), "num_nodes": 3}, r"x.* shape \[3, columns\], not \[2, 4\]"),
        ({"x": torch.full((3, 1), torch.nan)}, r"x\[0, 0\] is nan"),
        ({"x": torch.eye(3), "z": torch.rand(3)}, r"z.* categories .*not float32"),
        ({"edge_attr": torch.arange(6.0)}, r"nodes 0 and 1 .* different features; make them the"),
        ({"edge_attr": torch.full((6,), torch.inf)}, r"edge_attr\[0\] is inf, but features must"),
        ({"edge_type": torch.ones(6)}, r"edge_type.* categories .*not float32"),
        ({"edge_attr": torch.ones(3, 1).long()}, r"edge_attr.* shape \[6, columns\], not \[3, 1\]"),
        ({"x": torch.ones(2, 1).long(), "num_nodes": 3}, r"x.* shape \[3, columns\], not \[2, 1\]"),
        ({"edge_index": torch.tensor([0, 1])}, r"edge_index.* shape \[2, edges\], not \[2\]"),
        ({"edge_index": RING.T}, r"edge_index.* shape \[2, edges\], not \[6, 2\]"),
        ({"edge_index": torch.tensor([[0], [-1]])}, r"edge_index\[1, 0\] is -1, but"),
        ({"edge_index": torch.tensor([[7], [0]])}, r"edge_index\[0, 0\] is 7, but"),
        ({"edge_index": None}, r"edge_index"),
    ],
)
def test_a_list_and_a_batch_refuse_the_same(fields: dict[str, Any], message: str) -> None:
    data = Data(**{"edge_index": RING, "num_nodes": 3, **fields})
    for source in ([data], Batch.from_data_list([data])):
        with pytest.raises(GraphError, match=message):
            graph_set_from_pyg(source)


def test_targets_of_nodes_are_not_those_of_graphs() -> None:
    sizes = (3, 2)
    data = [
        Data(edge_index=torch.tensor([[0], [1]]), num_nodes=size, y=torch.rand(size))
        for size in sizes
    ]
    with pytest.raises(GraphError, match=r"y has one entry per node, .* into one Data"):
        graph_set_from_pyg(data)
    with pytest.raises(GraphError, match="y has a different number of columns"):
        graph_set_from_pyg(
            [*data, Data(edge_index=data[0].edge_index, num_nodes=2, y=torch.ones(1))]
        )
    with pytest.raises(GraphError, match=r"y must have shape \[2, tasks\], not \[5\]"):
        graph_set_from_pyg(Batch.from_data_list(data))
