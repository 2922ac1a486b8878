"""A small graph and its matrices, written out densely with NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.baselines import Propagation


@dataclass(frozen=True)
class Graph:
    """A weighted graph; its dense matrices are float64 tensors."""

    weights: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.weights)

    @property
    def adjacency(self) -> Tensor:
        return torch.as_tensor(_normalised(self.weights))

    @property
    def adjacency_with_loops(self) -> Tensor:
        return torch.as_tensor(_normalised(self.weights + np.eye(self.num_nodes)))

    @property
    def laplacian(self) -> Tensor:
        return torch.eye(self.num_nodes, dtype=torch.float64) - self.adjacency

    @property
    def distances(self) -> Tensor:
        """Edges on a shortest path, inf without one: Floyd and Warshall's three loops."""
        d = np.where(self.weights > 0, 1.0, np.inf)
        np.fill_diagonal(d, 0)
        for k in range(self.num_nodes):
            for i in range(self.num_nodes):
                for j in range(self.num_nodes):
                    d[i, j] = min(d[i, j], d[i, k] + d[k, j])
        return torch.as_tensor(d)

    @property
    def one_hop(self) -> Tensor:
        return torch.as_tensor(_normalised(self.weights * ~np.eye(self.num_nodes, dtype=bool)))

    @property
    def two_hop(self) -> Tensor:
        return torch.as_tensor(_normalised((self.distances == 2).double().numpy()))

    @property
    def edge_index(self) -> Tensor:
        return torch.as_tensor(np.stack(np.nonzero(self.weights)))

    @property
    def edge_weight(self) -> Tensor:
        return torch.as_tensor(self.weights[np.nonzero(self.weights)])

    def propagation(self, dtype: torch.dtype = torch.float64) -> Propagation:
        return Propagation(sp.csr_array(self.weights), dtype=dtype)

    def relabelled(self, order: np.ndarray) -> Graph:
        return Graph(self.weights[np.ix_(order, order)])


def _normalised(weights: np.ndarray) -> np.ndarray:
    degree = weights.sum(axis=1)
    degree[degree == 0] = 1
    return weights / np.sqrt(np.outer(degree, degree))


@pytest.fixture
def graph() -> Graph:
    """Nine nodes with random weights, the last of them isolated."""
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((9, 9)) * (rng.random((9, 9)) < 0.4), k=1)
    upper[:, -1] = 0
    return Graph(upper + upper.T)


@pytest.fixture
def product_widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of columns of every product with the plain adjacency, as they happen."""
    widths: list[int] = []
    product = Propagation.adjacency

    def recorded(self: Propagation, h: Tensor) -> Tensor:
        widths.append(h.size(-1))
        return product(self, h)

    monkeypatch.setattr(Propagation, "adjacency", recorded)
    return widths
