"""Graphs as PyG's ``Data``, for tests of the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from specformer.graphs import GraphSet


def graph_set_to_pyg(graphs: GraphSet) -> list[Any]:
    """Return a list of PyG ``Data`` with ``x``, ``edge_index``, ``edge_attr`` and ``y`` [1, tasks].

    Nodes that have numbers have them in ``x``, and their categories in ``z``; bonds, in
    ``edge_attr`` and ``edge_type``. Each bond is there in both directions, one after the other; a
    self-loop once.
    """
    sizes = graphs.num_nodes.tolist()
    x = torch.as_tensor(graphs.node_feat.astype(np.int64)).split(sizes)
    edge_index, bond, counts = _both_ways(graphs)
    ends = torch.as_tensor(edge_index).split(counts.tolist(), dim=1)
    kinds = torch.as_tensor(graphs.edge_feat[bond].astype(np.int64)).split(counts.tolist())
    parts = zip(x, ends, kinds, strict=True)
    data = [Data(x=a.clone(), edge_index=b.clone(), edge_attr=c.clone()) for a, b, c in parts]
    if graphs.x is not None:
        for each, numbers in zip(data, torch.as_tensor(graphs.x).split(sizes), strict=True):
            each.x, each.z = numbers.clone(), each.x
    if graphs.edge_x is not None:
        measured = torch.as_tensor(graphs.edge_x[bond]).split(counts.tolist())
        for each, numbers in zip(data, measured, strict=True):
            each.edge_attr, each.edge_type = numbers.clone(), each.edge_attr
    if graphs.y is not None:
        for each, row in zip(data, torch.as_tensor(graphs.y).split(1), strict=True):
            each.y = row.clone()
    return data


def _both_ways(graphs: GraphSet) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the ends of all edges, the bond that each is of, and the edges of each graph."""
    source, target = graphs.edge_index.astype(np.int64)
    copies = np.where(source == target, 1, 2)
    edges = np.repeat(np.stack([source, target]), copies, axis=1)
    second = np.zeros(edges.shape[1], dtype=bool)
    second[np.cumsum(copies)[copies == 2] - 1] = True
    edges[:, second] = edges[::-1, second]
    loops = np.repeat(np.arange(len(graphs)), graphs.num_edges)[copies == 1]
    counts = 2 * graphs.num_edges - np.bincount(loops, minlength=len(graphs))
    return edges, np.repeat(np.arange(len(copies)), copies), counts
