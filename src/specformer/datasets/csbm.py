r"""Contextual stochastic block models: generated graphs from heterophilic to homophilic."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from specformer.errors import ConfigError
from specformer.graphs import Graph


def csbm(
    homophily: float,
    num_nodes: int = 1000,
    num_features: int = 200,
    degree: float = 8.0,
    signal: float = 4.25,
    seed: int = 0,
) -> Graph:
    r"""A graph of two classes of equal size, which edges and features each reveal in part.

    Edges inside a class appear with probability :math:`(d + \lambda\sqrt d)/n`, across classes
    with :math:`(d - \lambda\sqrt d)/n`; features are :math:`\sqrt{\mu/n}\,y_i u + z_i/\sqrt f`.
    ``homophily`` φ in [−1, 1] divides a fixed amount of information between both (Deshpande et al.,
    2018; Chien et al., 2021): :math:`\lambda = \sqrt{1+s}\,\sin(\phi\pi/2)`,
    :math:`\mu = \sqrt{(1+s)\,n/f}\,\cos(\phi\pi/2)`. With φ = 0 only features are
    informative, with φ = ±1 only edges.

    Args:
        homophily: φ; negative for heterophily.
        num_nodes: n, even.
        num_features: f.
        degree: mean degree d.
        signal: s, how far above the detection threshold.
        seed: of all random numbers.

    Example:
        >>> csbm(-0.5, num_nodes=100).y.tolist().count(0)
        50
    """
    if not -1.0 <= homophily <= 1.0:
        raise ConfigError(f"homophily={homophily} must lie in [-1, 1].")
    if num_nodes < 2 or num_nodes % 2:
        raise ConfigError(f"num_nodes={num_nodes} must be even, for two classes of equal size.")
    generator = np.random.default_rng(seed)
    angle = homophily * math.pi / 2
    strength = math.sqrt(1 + signal)
    limit = math.sqrt(degree)  # beyond it a probability would be negative
    graph_part = max(-limit, min(strength * math.sin(angle), limit))
    feature_part = strength * math.sqrt(num_nodes / num_features) * math.cos(angle)
    sides = np.repeat([1.0, -1.0], num_nodes // 2)
    inside = (degree + graph_part * math.sqrt(degree)) / num_nodes
    across = (degree - graph_part * math.sqrt(degree)) / num_nodes
    chance = np.where(np.equal.outer(sides, sides), inside, across)
    upper = np.triu(generator.random((num_nodes, num_nodes)) < chance, k=1)
    adjacency = sp.csr_array((upper | upper.T).astype(np.float64))
    direction = generator.standard_normal(num_features) / math.sqrt(num_features)
    noise = generator.standard_normal((num_nodes, num_features)) / math.sqrt(num_features)
    x = math.sqrt(feature_part / num_nodes) * np.outer(sides, direction) + noise
    kind = "homophilic" if homophily > 0 else "heterophilic"
    return Graph(
        adjacency=adjacency,
        x=x.astype(np.float32),
        y=(sides < 0).astype(np.int64),
        name=f"csbm-{kind}",
    )
