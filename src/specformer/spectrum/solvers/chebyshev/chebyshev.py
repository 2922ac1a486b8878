r"""Thousands of eigenpairs at either end by Chebyshev-filtered subspace iteration, CPU or GPU.

A seeded block of vectors is filtered (:mod:`.filtering`), made orthonormal (:mod:`.blocks`) and
rotated to Ritz vectors, again and again. Pairs that have converged are locked: from then on they
are only projected out. Null spaces are known (:mod:`~specformer.spectrum.solvers.exact`). A block
finds every copy of a repeated eigenvalue; it grows if the group at the cut does not end within it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import EQUAL, SLAB
from specformer.spectrum.solvers import dense
from specformer.spectrum.solvers.chebyshev.blocks import WIDE, block_width, orthonormalise
from specformer.spectrum.solvers.chebyshev.filtering import Operator
from specformer.spectrum.solvers.chebyshev.subspace import SubspaceSearch
from specformer.spectrum.solvers.exact import known_vectors
from specformer.spectrum.solvers.problem import Problem, Progress

#: So many columns take no longer than a dense solve of any graph that has them.
_WIDEST = 1000


def required_bytes(problem: Problem) -> int:
    """Peak memory: blocks, the result copied from them, products, slabs and the matrix."""
    n, size = problem.num_nodes, problem.working_dtype.itemsize
    widths = [block_width(count) for count in (problem.lowest, problem.highest) if count]
    blocks = n * (sum(widths) + problem.num_pairs) * size
    products = 3 * n * min(WIDE, max(widths)) * size
    slabs = 4 * 8 * SLAB
    return blocks + products + 6 * 8 * max(widths) ** 2 + slabs + 32 * problem.laplacian.nnz


def refusal(problem: Problem) -> str | None:
    """Why there is not enough memory for this solve, or None if there is."""
    need, free = required_bytes(problem), devices.available_bytes(problem.device)
    if need <= free:
        return None
    return (
        f"{problem.num_pairs:,} eigenpairs of {problem.num_nodes:,} nodes need about "
        f"{devices.gib(need)} on {problem.device} with solver 'chebyshev', {devices.gib(free)} are "
        "free"
    )


def solve(problem: Problem) -> tuple[np.ndarray, Tensor]:
    """At least the pairs asked for, whole groups at both cuts.

    Blocks are stored and multiplied in the working precision, sums are always float64.

    Returns eigenvalues ``[q]`` ascending and eigenvectors ``[n, q]`` in the working precision on
    the device.
    """
    if refused := refusal(problem):
        raise SpectrumError(
            f"{refused}; ask for fewer eigenpairs, k=…, or solve on a larger device."
        )
    laplacian, dtype, state = problem.laplacian, problem.working_dtype, problem.state
    order = _neighbours_close(laplacian)
    normalised = sp.csr_array(sp.eye_array(len(order), format="csr") - laplacian)[order][:, order]
    degrees = None if problem.degrees is None else problem.degrees[order]
    files, ends = [], []
    for sign, count in ((1, problem.lowest), (-1, problem.highest)):
        if not count:
            continue
        end = "lowest" if sign > 0 else "highest"
        files.append(state and state.with_name(f"{state.name}.{end}.part.safetensors"))
        search = SubspaceSearch(
            Operator(sp.csr_array(sign * normalised), problem.device, dtype),
            known_vectors(normalised, sign, degrees),
            count,
            most=_widest(problem),
            state=files[-1],
            progress=_shifted(
                problem.progress,
                done=0 if sign > 0 else problem.lowest,
                wanted=problem.num_pairs - count,
            ),
        )
        start = None if problem.start is None else _nearest(problem.start, sign, order)
        theta, vectors = search.run(start)
        ends.append((1.0 - theta, vectors) if sign > 0 else (1.0 + theta[::-1], vectors.flip(1)))
    if len(ends) == 2:
        (lower, basis), (upper, other) = ends
        if lower[-1] >= upper[0] - EQUAL[dtype]:
            raise SpectrumError("the two ends of the spectrum overlap; use solver='dense'.")
        orthonormalise(other, basis, torch.Generator(basis.device).manual_seed(0))
    for file in filter(None, files):
        file.unlink(missing_ok=True)
    return np.concatenate([end[0] for end in ends]), _put_back([end[1] for end in ends], order)


def _widest(problem: Problem) -> int:
    """The width beyond which a solve that takes ever more copies of the cut is left to ``dense``.

    Many copies converge slowly: 4,000 of 6,000 pairs take many times as long as all pairs densely.
    """
    num_nodes = problem.num_nodes
    refused = dense.refusal(num_nodes, problem.device, problem.dense_dtype)
    return num_nodes if refused else max(_WIDEST, num_nodes // 4)


def _neighbours_close(laplacian: sp.csr_array) -> np.ndarray:
    """An order of the nodes that puts neighbours close together.

    Then more of the rows that a product reads are in the cache: 0.75 instead of 1.14 ms per column
    on one core for the graph of ogbn-arxiv.
    """
    order = reverse_cuthill_mckee(sp.csr_matrix(laplacian), symmetric_mode=True)
    return np.ascontiguousarray(order).astype(np.int64)


def _put_back(blocks: Sequence[Tensor], order: np.ndarray) -> Tensor:
    """Join blocks side by side, with rows in the order of the graph's nodes."""
    result = blocks[0].new_empty(len(order), sum(block.shape[1] for block in blocks))
    rows = torch.as_tensor(order, device=result.device)
    first = 0
    for block in blocks:
        result[rows, first : first + block.shape[1]] = block
        first += block.shape[1]
    return result


def _shifted(progress: Progress | None, done: int, wanted: int) -> Progress:
    """Report the progress of one end as progress of both ends."""
    if progress is None:
        return lambda _, __: None
    return lambda converged, asked: progress(done + converged, wanted + asked)


def _nearest(start: tuple[np.ndarray, Tensor], sign: int, order: np.ndarray) -> Tensor:
    """Vectors of one half of an older spectrum, outermost first, with rows in this order."""
    values, vectors = start
    chosen = np.argsort(sign * values, kind="stable")
    chosen = chosen[sign * (values[chosen] - 1.0) <= 0.0]
    rows, columns = (torch.as_tensor(part, device=vectors.device) for part in (order, chosen))
    return vectors[:, columns][rows]
