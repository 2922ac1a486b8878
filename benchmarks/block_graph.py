r"""Stochastic block models of any size, drawn edge by edge instead of pair by pair."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from specformer.errors import ConfigError
from specformer.graphs import Graph


def block_graph(
    num_nodes: int,
    num_edges: int,
    *,
    num_classes: int = 8,
    homophily: float = 0.6,
    num_features: int = 32,
    separation: float = 1.0,
    seed: int = 0,
) -> Graph:
    r"""A graph with classes of equal size. Memory and time grow with the number of edges.

    An edge starts at a node drawn at random. Its other end is drawn from the same class with
    probability ``homophily``, else from the other classes. Loops and repeated edges are drawn
    again, so that exactly ``num_edges`` undirected edges remain. Features are
    :math:`x_i = s\,u_{y_i} + z_i`, with unit vectors u for the classes, standard normal noise z and
    the ``separation`` s. For small graphs, :func:`specformer.datasets.csbm` draws from the exact
    contextual model, which needs n × n numbers.

    Args:
        num_nodes: number of nodes n.
        num_edges: number of undirected edges.
        num_classes: nodes take classes in turn, 0, 1, 2, …
        homophily: expected share of edges inside a class.
        num_features: columns of x.
        separation: s; with 0 the features say nothing about the classes.
        seed: seed of all random numbers.

    Example:
        >>> graph = block_graph(1000, 5000, num_classes=4)
        >>> graph.num_edges, graph.num_classes
        (5000, 4)
    """
    _check(num_nodes, num_edges, num_classes, homophily)
    generator = np.random.default_rng(seed)
    y = np.arange(num_nodes) % num_classes
    codes = np.empty(0, dtype=np.int64)
    while len(codes) < num_edges:
        # Draw a few more than are missing, and remove the rest at random: no node is preferred.
        drawn = _pairs(generator, math.ceil(1.05 * (num_edges - len(codes))) + 8, y, homophily)
        codes = np.union1d(codes, drawn)
    surplus = generator.choice(len(codes), len(codes) - num_edges, replace=False)
    rows, columns = np.divmod(np.delete(codes, surplus), num_nodes)
    ends = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    adjacency = sp.csr_array(
        sp.coo_array((np.ones(2 * num_edges), ends), shape=(num_nodes, num_nodes))
    )
    directions = generator.standard_normal((num_classes, num_features))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    x = generator.standard_normal((num_nodes, num_features), dtype=np.float32)
    x += (separation * directions).astype(np.float32)[y]
    return Graph(adjacency=adjacency, x=x, y=y, name=f"block-graph-{num_nodes}")


def _pairs(
    generator: np.random.Generator, count: int, y: np.ndarray, homophily: float
) -> np.ndarray:
    """About ``count`` edges as ``smaller end · n + larger end``, without loops."""
    n, classes = len(y), int(y.max()) + 1
    one = generator.integers(0, n, count)
    inside = generator.random(count) < homophily
    away = generator.integers(1, classes, count) if classes > 1 else 0
    label = np.where(inside, y[one], (y[one] + away) % classes)
    # The nodes of class c are c, c + classes, c + 2 · classes, …
    members = (n - label + classes - 1) // classes
    other = label + classes * (generator.random(count) * members).astype(np.int64)
    apart = one != other
    low, high = np.minimum(one, other)[apart], np.maximum(one, other)[apart]
    codes: np.ndarray = low.astype(np.int64) * n + high
    return codes


def _check(num_nodes: int, num_edges: int, num_classes: int, homophily: float) -> None:
    if not 1 <= num_classes <= num_nodes:
        raise ConfigError(f"num_classes={num_classes} must lie between 1 and {num_nodes} nodes.")
    if not 0.0 <= homophily <= 1.0:
        raise ConfigError(f"homophily={homophily} must lie in [0, 1].")
    # With at most a quarter of the smallest number of pairs, few edges are drawn again.
    most = num_nodes * (num_nodes // num_classes - 1) // 8
    if not 0 <= num_edges <= most:
        raise ConfigError(
            f"num_edges={num_edges:,} must lie between 0 and {most:,} for {num_nodes:,} nodes in "
            f"{num_classes} classes."
        )
