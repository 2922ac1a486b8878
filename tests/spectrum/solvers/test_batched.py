"""The parts of a batched solve."""

from __future__ import annotations

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch

from specformer.graphs import normalised_laplacian
from specformer.spectrum.eigenpairs import max_orthogonality_error, max_residual
from specformer.spectrum.solvers import batched

CPU = torch.device("cpu")


def test_blocks_of_one_size_are_cut_out_of_the_diagonal() -> None:
    generator = np.random.default_rng(0)
    parts = [generator.normal(size=(n, n)) for n in (2, 3, 3, 3, 1)]
    parts[2][1] = 0.0  # a row without entries
    joined = sp.block_diag(parts, format="csr")
    found = batched.dense_blocks(joined, 5, 2, 3, CPU)
    np.testing.assert_array_equal(found, parts[2:4])
    np.testing.assert_array_equal(batched.dense_blocks(joined, 11, 1, 1, CPU), [parts[4]])


def test_rayleigh_quotients_repair_a_float32_solve() -> None:
    graph = nx.random_regular_graph(3, 60, seed=0)
    laplacian = normalised_laplacian(nx.to_scipy_sparse_array(graph, dtype=float))
    operator = torch.as_tensor(laplacian.toarray())[None]
    exact = torch.linalg.eigvalsh(operator)
    plain = torch.linalg.eigvalsh(operator.float()).double()
    refined, vectors = batched.eigenpairs(operator, torch.float32)
    assert (refined - exact).abs().max() < 1e-9 < (plain - exact).abs().max()
    assert (refined.diff() >= 0).all()
    assert max_residual(operator, refined, vectors) < 1e-5
    assert max_orthogonality_error(vectors) < 1e-5
