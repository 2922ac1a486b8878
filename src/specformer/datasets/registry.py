r"""Names of node-level data sets, and where their files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse as sp

from specformer.datasets.locate import find_file
from specformer.errors import DataNotFoundError, GraphError
from specformer.graphs import Graph, read_graph


@dataclass(frozen=True)
class NodeSet:
    """A data set people know by name, kept as ``NAME.npz``."""

    name: str
    about: str


NODE_SETS: dict[str, NodeSet] = {
    entry.name: entry
    for entry in (
        NodeSet("cora", "citations, homophilic"),
        NodeSet("citeseer", "citations, homophilic"),
        NodeSet("pubmed", "citations, homophilic"),
        NodeSet("photo", "bought together, homophilic"),
        NodeSet("computers", "bought together, homophilic"),
        NodeSet("chameleon", "web pages, heterophilic; duplicates leak from train to test"),
        NodeSet("squirrel", "web pages, heterophilic; duplicates leak from train to test"),
        NodeSet("chameleon-filtered", "chameleon without its duplicates"),
        NodeSet("squirrel-filtered", "squirrel without its duplicates"),
        NodeSet("actor", "acted together, heterophilic"),
        NodeSet("penn94", "friendships, heterophilic"),
        NodeSet("cornell5", "friendships, heterophilic"),
        NodeSet("wordnet", "synsets and their relations"),
        NodeSet("ogbn-arxiv", "citations, homophilic"),
    )
}


def node_graph(source: str, data: str | Path | None = None, *, labels: bool = True) -> Graph:
    """A labelled graph with features: a data set by name, an npz file, or a CSV folder.

    Args:
        source: a name of ``NODE_SETS``, or a path.
        data: folder searched first for named sets.
        labels: whether it must have labels.
    """
    if source in NODE_SETS:
        graph = read_graph(find_file(f"{source}.npz", data))
    elif Path(source).exists():
        graph = read_graph(source)
    else:
        known = ", ".join(NODE_SETS)
        raise DataNotFoundError(f"{source}: neither a file or folder nor a data set ({known}).")
    if graph.x is None:
        raise GraphError(f"{source}: the graph has no node features to learn from.")
    if labels and (graph.y is None or not (graph.y >= 0).any()):
        raise GraphError(f"{source}: the graph has no labels to learn.")
    return graph


def dense_features(graph: Graph, scaling: Literal["rows", "none"] = "rows") -> np.ndarray:
    """Features ``[n, features]``, each row divided by its sum where that exceeds 1, or as given.

    Example:
        >>> graph = Graph(sp.csr_array((2, 2)), x=np.array([[1.0, 3.0], [0.5, 0.0]]))
        >>> dense_features(graph).tolist()
        [[0.25, 0.75], [0.5, 0.0]]
    """
    assert graph.x is not None
    dense = graph.x.toarray() if sp.issparse(graph.x) else np.asarray(graph.x)
    if scaling == "none":
        return np.asarray(dense, dtype=np.float32)
    return np.asarray(dense / np.maximum(dense.sum(axis=1, keepdims=True), 1.0), dtype=np.float32)
