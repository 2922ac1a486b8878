"""Mirror symmetries: the same spectrum from smaller problems, and wrong mirrors refused."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from tests.spectrum.known_graphs import Array, adjacency, closed_form

from specformer import decompose
from specformer.errors import SpectrumError
from specformer.graphs import normalised_laplacian
from specformer.spectrum.symmetry import symmetric_bases
from specformer.testing import assert_eigenpairs


def grid(rows: int, columns: int) -> tuple[object, list[Array]]:
    """A grid with its two mirrors."""
    places = np.arange(rows * columns).reshape(rows, columns)
    mirrors = [places[::-1].ravel(), places[:, ::-1].ravel()]
    return adjacency(nx.grid_2d_graph(rows, columns)), mirrors


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (5, 4), (3, 7), (1, 5), (2, 2)])
def test_a_grid_splits_into_four(rows: int, columns: int) -> None:
    graph, mirrors = grid(rows, columns)
    n = rows * columns
    bases = symmetric_bases(normalised_laplacian(graph), mirrors)
    together = np.concatenate([basis.toarray() for basis in bases], axis=1)
    np.testing.assert_allclose(together.T @ together, np.eye(n), atol=1e-15)
    plain, split = (decompose(graph, mirrors=which, dtype=torch.float64) for which in ((), mirrors))
    torch.testing.assert_close(split.eigenvalues, plain.eigenvalues, rtol=0, atol=1e-13)
    torch.testing.assert_close(split.distinct.counts, plain.distinct.counts)
    assert_eigenpairs(graph, split, atol=1e-12)
    assert split.report.reason.endswith("2 mirror symmetries split the problem")


def test_blocks_of_a_grid_are_a_quarter_each() -> None:
    graph, mirrors = grid(4, 6)
    assert [b.shape[1] for b in symmetric_bases(normalised_laplacian(graph), mirrors)] == [6] * 4
    assert symmetric_bases(normalised_laplacian(graph), [])[0].shape == (24, 24)


@pytest.mark.parametrize("k", [1, 3, (2, 2)])
def test_the_cut_does_not_change(k) -> None:
    graph, mirrors = grid(4, 4)
    plain, split = (decompose(graph, k=k, mirrors=which) for which in ((), mirrors))
    torch.testing.assert_close(split.eigenvalues, plain.eigenvalues)


@pytest.mark.parametrize("form", [list, tuple, torch.tensor])
def test_mirrors_of_any_kind(form) -> None:
    path = torch.tensor([[0, 1, 2], [1, 2, 3]])
    mirrored = decompose(path, mirrors=[form([3, 2, 1, 0])])
    assert "1 mirror symmetries" in mirrored.report.reason
    torch.testing.assert_close(mirrored.eigenvalues, torch.tensor([0.0, 0.5, 1.5, 2.0]))
    with pytest.raises(SpectrumError, match="a mirror changes the graph"):
        decompose(path, mirrors=[form([1, 0, 2, 3])])


def test_wrong_mirrors_are_refused() -> None:
    ring = closed_form("ring", 8)[0]
    i = np.arange(8)
    for mirror in ((i + 1) % 8, i[:5], np.zeros(8, int), i + 8):
        with pytest.raises(SpectrumError, match="a permutation of the 8 nodes and its own inverse"):
            decompose(ring, mirrors=[mirror])
    with pytest.raises(SpectrumError, match="must hold node numbers as integers, not float64"):
        decompose(ring, mirrors=[-i % 8 * 1.0])
    swapped = i.copy()
    swapped[[0, 3]] = 3, 0
    with pytest.raises(SpectrumError, match="a mirror changes the graph"):
        decompose(ring, mirrors=[swapped])
    with pytest.raises(SpectrumError, match="mirrors must commute"):
        decompose(ring, mirrors=[-i % 8, (1 - i) % 8])
    assert decompose(ring, mirrors=[-i % 8, (4 - i) % 8]).is_complete
