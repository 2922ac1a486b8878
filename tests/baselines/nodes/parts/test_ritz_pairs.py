from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from specformer.baselines.nodes.parts.ritz_pairs import ritz_pairs


@pytest.fixture
def matrix() -> sp.csr_array:
    rng = np.random.default_rng(0)
    a = rng.random((30, 30)) * (rng.random((30, 30)) < 0.3)
    a = a + a.T
    scale = np.sqrt(a.sum(axis=1))
    return sp.csr_array(a / np.outer(scale, scale))


def three_term(matrix: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """Eigenvalues of the tridiagonal matrix of the textbook's recurrence."""
    q = np.random.default_rng(seed).standard_normal(len(matrix))
    q, before, beta = q / np.linalg.norm(q), np.zeros(len(matrix)), 0.0
    alphas, betas = [], []
    for _ in range(steps):
        w = matrix @ q - beta * before
        alphas.append(q @ w)
        w = w - alphas[-1] * q
        beta = np.linalg.norm(w)
        betas.append(beta)
        before, q = q, w / beta
    return np.linalg.eigvalsh(np.diag(alphas) + np.diag(betas[:-1], 1) + np.diag(betas[:-1], -1))


@pytest.mark.parametrize("steps", [1, 6])
def test_values_are_those_of_the_three_term_recurrence(matrix, steps):
    values, _ = ritz_pairs(matrix, steps, seed=3)
    np.testing.assert_allclose(values, three_term(matrix.toarray(), steps, seed=3), atol=1e-10)


def test_vectors_are_ritz_vectors(matrix):
    values, vectors = ritz_pairs(matrix, 12, seed=0)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(12), atol=1e-12)
    np.testing.assert_allclose(vectors.T @ (matrix @ vectors), np.diag(values), atol=1e-12)
    largest = np.linalg.eigvalsh(matrix.toarray())[-1]
    assert values[-1] == pytest.approx(largest, abs=1e-6)


@pytest.mark.parametrize("steps", [30, 50])
def test_enough_steps_give_every_eigenpair(matrix, steps):
    values, vectors = ritz_pairs(matrix, steps, seed=0)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix.toarray()), atol=1e-10)
    np.testing.assert_allclose(vectors * values @ vectors.T, matrix.toarray(), atol=1e-10)


def test_repeated_eigenvalues_are_found_after_a_breakdown():
    complete = sp.csr_array((np.ones((6, 6)) - np.eye(6)) / 5)
    values, vectors = ritz_pairs(complete, 6, seed=0)
    np.testing.assert_allclose(values, [-0.2] * 5 + [1], atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-12)


def test_a_graph_without_edges():
    values, vectors = ritz_pairs(sp.csr_array((5, 5)), 3, seed=0)
    assert values.tolist() == [0, 0, 0]
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-12)
