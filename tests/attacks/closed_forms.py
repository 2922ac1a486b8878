"""Spectra that a formula gives: 12 families, each with weights from 1e-12 to 1e12."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from typing import Any

import networkx as nx
import numpy as np
import torch
from tests.attacks.tally import Tally

from specformer import decompose
from specformer.graphs import as_graph
from specformer.spectrum.eigenpairs import EQUAL_TOLERANCE

#: Of eigenvalues in [0, 2]: a few hundred roundings.
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
WEIGHTS = [10.0**power for power in range(-12, 13, 2)]

Family = tuple[nx.Graph, np.ndarray]


def regular(graph: nx.Graph, adjacency: list[tuple[float, int]]) -> Family:
    """Of a regular graph, 1 - μ/d of its adjacency's eigenvalues μ and how often each occurs."""
    degree = next(iter(dict(graph.degree).values()))
    return graph, np.concatenate([np.full(times, 1 - value / degree) for value, times in adjacency])


def families(size: int) -> dict[str, Family]:
    """Graphs of about that many nodes, and their eigenvalues by the books."""
    k, even = np.arange(size), 2 * (size // 2)
    side, cube = math.isqrt(size), max(2, int(math.log2(size)))
    turns = np.cos(2 * np.pi * np.arange(side) / side)
    grid, third = np.add.outer(turns, turns), max(2, size // 3)
    paley = next(q for q in (13, 17, 29, 37, 53, 61, 73, 89, 97) if q >= min(size, 97))
    squares = {x * x % paley for x in range(1, paley)}
    steps = [1, 2, 5]
    return {
        "path": (nx.path_graph(size), 1 - np.cos(np.pi * k / (size - 1))),
        "cycle": (nx.cycle_graph(size), 1 - np.cos(2 * np.pi * k / size)),
        "complete": (nx.complete_graph(size), np.r_[0, np.full(size - 1, size / (size - 1))]),
        "star": (nx.star_graph(size - 1), np.r_[0, np.ones(size - 2), 2]),
        "complete bipartite": (
            nx.complete_bipartite_graph(third, size - third), np.r_[0, np.ones(size - 2), 2]),
        "hypercube": (nx.hypercube_graph(cube), np.concatenate(
            [np.full(math.comb(cube, i), 2 * i / cube) for i in range(cube + 1)])),
        "torus": (nx.grid_2d_graph(side, side, periodic=True), (1 - grid / 2).ravel()),
        "circulant": (nx.circulant_graph(size, steps), 1 - np.cos(
            2 * np.pi * np.outer(k, steps) / size).mean(axis=1)),
        "cocktail party": regular(nx.complete_multipartite_graph(*[2] * (even // 2)), [
            (even - 2, 1), (0, even // 2), (-2, even // 2 - 1)]),
        "triangular": regular(_johnson(side + 4), [
            (2 * (side + 2), 1), (side, side + 3), (-2, (side + 4) * (side + 1) // 2)]),
        "Paley": regular(nx.Graph([(i, j) for i, j in combinations(range(paley), 2)
                                   if (i - j) % paley in squares]), [
            ((paley - 1) / 2, 1), ((-1 + math.sqrt(paley)) / 2, (paley - 1) // 2),
            ((-1 - math.sqrt(paley)) / 2, (paley - 1) // 2)]),
    }  # fmt: skip


def _johnson(count: int) -> nx.Graph:
    """Pairs out of so many things, joined where they share one."""
    pairs = list(combinations(range(count), 2))
    return nx.Graph([(a, b) for a, b in combinations(pairs, 2) if set(a) & set(b)])


def near_parts(size: int, weight: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two complete graphs, all of one joined to all of the other by edges of another weight."""
    half = size // 2
    ends, weights = [], []
    for i, j in combinations(range(2 * half), 2):
        ends.append((i, j))
        weights.append(1.0 if (i < half) == (j < half) else weight)
    degree = half - 1 + half * weight
    values = np.r_[0.0, 2 * half * weight / degree, np.full(2 * half - 2, 1 + 1 / degree)]
    return np.array(ends).T, np.array(weights), values


class _Worst:
    """The largest errors, by what they are of."""

    def __init__(self) -> None:
        self.errors: dict[str, float] = {}

    def within(self, what: str, found: np.ndarray, values: np.ndarray, most: float) -> bool:
        error = float(np.abs(found - np.sort(values)).max())
        self.errors[what] = max(error, self.errors.get(what, 0.0))
        return error <= most


def attack(sizes: list[int]) -> Iterator[Tally]:
    """All families of these sizes, by every weight, in both precisions."""
    worst, tally = _Worst(), Tally("closed form", "12 families, weights 1e-12 to 1e12")
    for size, dtype in product(sizes, _TOLERANCE):
        cases = [
            (name, values, as_graph(nx.convert_node_labels_to_integers(graph)).adjacency * weight)
            for name, (graph, values) in families(size).items()
            for weight in WEIGHTS
        ]
        precision = str(dtype).removeprefix("torch.")
        for name, values, matrix in cases:
            tally.attempt(
                partial(_agrees, worst, precision, matrix, None, values, dtype, _TOLERANCE[dtype]),
                f"{name}, {size} nodes, weight {matrix.data[0]:g}, {precision}",
            )
        for weight in WEIGHTS:
            ends, weights, values = near_parts(size, weight)
            # Eigenvalues nearer than that are one: what is nearly two parts may count as two.
            most = max(EQUAL_TOLERANCE, _TOLERANCE[dtype])
            tally.attempt(
                partial(_agrees, worst, "nearly two parts", ends, weights, values, dtype, most),
                f"nearly two parts, {size} nodes, weight {weight:g}, {precision}",
            )
    told = ", ".join(f"{what} {error:.0e}" for what, error in worst.errors.items())
    tally.on += f" (worst errors: {told})"
    yield tally


def _agrees(
    worst: _Worst,
    what: str,
    source: Any,
    weights: np.ndarray | None,
    values: np.ndarray,
    dtype: torch.dtype,
    most: float,
) -> bool:
    found = decompose(source, edge_weight=weights, dtype=dtype).eigenvalues.double().numpy()
    return worst.within(what, found, values, most)
