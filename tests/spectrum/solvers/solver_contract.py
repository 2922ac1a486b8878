"""What every eigensolver must do; a new one subclasses :class:`SolverContract` and is tested."""

from __future__ import annotations

from abc import ABC, abstractmethod

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.known_graphs import (
    Array,
    adjacency,
    closed_form,
    hypercube,
    random_weighted,
    union,
)

from specformer.errors import SpectrumError
from specformer.graphs import normalised_laplacian
from specformer.spectrum.eigenpairs import EQUAL_TOLERANCE, max_orthogonality_error, max_residual
from specformer.spectrum.solvers.problem import Problem

#: Graphs of 100 to 400 nodes: large enough for Krylov methods, small enough for numpy's eigh.
#: With each, what to ask for: (lowest, highest).
GRAPHS = {
    "ring": (lambda: nx.cycle_graph(120), [(1, 0), (2, 0), (7, 0), (0, 2), (3, 3)]),
    "path": (lambda: nx.path_graph(100), [(5, 0), (4, 4)]),
    "star": (lambda: nx.star_graph(150), [(1, 0), (0, 1), (1, 1)]),
    "complete": (lambda: nx.complete_graph(100), [(1, 0)]),
    "grid": (lambda: nx.grid_2d_graph(12, 12), [(2, 0), (9, 0), (5, 6)]),
    "torus": (lambda: nx.grid_2d_graph(10, 10, periodic=True), [(2, 0), (6, 0), (3, 3)]),
    "hypercube": (lambda: nx.hypercube_graph(7), [(2, 0), (9, 0), (2, 1)]),
    "barbell": (lambda: nx.barbell_graph(50, 8), [(3, 0), (6, 2)]),
    "weighted": (lambda: random_weighted(200, seed=3), [(1, 0), (20, 0), (6, 6)]),
    "two rings": (lambda: union(nx.cycle_graph(60), nx.cycle_graph(61)), [(1, 0), (4, 0), (5, 1)]),
    "triangles": (lambda: union(*[nx.complete_graph(3)] * 40), [(1, 0), (13, 0), (40, 0)]),
    "equal components": (
        lambda: union(*[nx.lollipop_graph(5, 7)] * 25),
        [(1, 0), (24, 0), (26, 0), (0, 3), (2, 2)],
    ),
    "stars": (lambda: union(*[nx.star_graph(4)] * 30), [(1, 0), (0, 1), (4, 4)]),
    "isolated": (lambda: union(nx.cycle_graph(90), nx.empty_graph(30)), [(3, 0), (3, 3)]),
}
CASES = [
    pytest.param(graph, *ask, id=f"{name}-{ask[0]}-{ask[1]}")
    for name, (graph, asks) in GRAPHS.items()
    for ask in asks
]


class Single(Problem):
    """A problem that is solved in float32, whatever its size."""

    working_dtype = dense_dtype = torch.float32  # type: ignore[assignment]


class SolverContract(ABC):
    """The abstract test: set :attr:`size` and implement :meth:`solve`."""

    #: Nodes of the graphs with closed forms.
    size: int
    accuracy = 1e-9

    @abstractmethod
    def solve(
        self, laplacian: sp.csr_array, lowest: int, highest: int
    ) -> tuple[Array, torch.Tensor]:
        """Eigenvalues [q] ascending and eigenvectors [n, q], at least those asked for."""

    def check(
        self, graph: sp.csr_array, lowest: int, highest: int, exact: Array | None = None
    ) -> Array:
        """Solve and compare with numpy, or with ``exact``; returns what the solver found."""
        laplacian = normalised_laplacian(graph)
        if exact is None:
            exact = np.linalg.eigvalsh(laplacian.toarray())
        values, vectors = self.solve(laplacian, lowest, highest)
        assert vectors.dtype == torch.float64
        assert max_residual(laplacian, torch.as_tensor(values.copy()), vectors) < self.accuracy
        assert max_orthogonality_error(vectors) < self.accuracy
        assert np.all(np.diff(values) >= 0)
        np.testing.assert_allclose(values[:lowest], exact[:lowest], atol=self.accuracy)
        if highest:
            np.testing.assert_allclose(values[-highest:], exact[-highest:], atol=self.accuracy)
        for value in values:  # every eigenvalue that is here is here as often as it occurs
            here = np.sum(np.abs(values - value) < EQUAL_TOLERANCE)
            assert here == np.sum(np.abs(exact - value) < EQUAL_TOLERANCE), value
        return values

    @pytest.mark.parametrize(("graph", "lowest", "highest"), CASES)
    def test_agrees_with_numpy(self, graph, lowest, highest) -> None:
        self.check(adjacency(graph()), lowest, highest)

    @pytest.mark.parametrize("kind", ["ring", "path", "star", "complete", "bipartite"])
    def test_closed_forms(self, kind: str) -> None:
        graph, exact = closed_form(kind, self.size)
        self.check(graph, 1, 0, exact)
        if kind != "complete":  # whose largest eigenvalue fills the spectrum: tested below
            self.check(graph, 1, 1, exact)

    def test_hypercube(self) -> None:
        graph, exact = hypercube(7)
        self.check(graph, 9, 0, exact)

    @pytest.mark.parametrize("kind", ["complete", "star", "bipartite", "edgeless"])
    def test_refuses_or_solves_an_eigenvalue_that_fills_the_spectrum(self, kind: str) -> None:
        graph, exact = closed_form(kind, self.size)
        try:
            values = self.check(graph, 2, 0, exact)
        except SpectrumError:
            return
        assert len(values) >= len(graph.indptr) - 3

    def test_is_deterministic(self) -> None:
        laplacian = normalised_laplacian(adjacency(GRAPHS["torus"][0]()))
        one, other = (self.solve(laplacian, 6, 3) for _ in range(2))
        np.testing.assert_array_equal(one[0], other[0])
        torch.testing.assert_close(one[1], other[1], rtol=0, atol=0)
