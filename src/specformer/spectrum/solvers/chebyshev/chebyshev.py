r"""Thousands of eigenpairs at either end by Chebyshev-filtered subspace iteration, CPU or GPU.

A seeded block of vectors is filtered (:mod:`.filtering`), made orthonormal (:mod:`.orthogonal`) and
rotated to Ritz vectors, over and over; pairs that have converged are locked and only projected out
from then on. Null spaces are known beforehand (:mod:`~specformer.spectrum.solvers.exact`). A block
meets every copy of a repeated eigenvalue, and grows if the group at the cut does not end within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum.distinct import EQUAL
from specformer.spectrum.eigenpairs import SLAB
from specformer.spectrum.solvers import Progress
from specformer.spectrum.solvers.chebyshev.blocks import WIDE, block_width, orthonormalise
from specformer.spectrum.solvers.chebyshev.filtering import Operator
from specformer.spectrum.solvers.chebyshev.subspace import StateFile, SubspaceSearch
from specformer.spectrum.solvers.exact import known_vectors

#: Seconds between saved states.
SAVE_EVERY = 60.0


def required_bytes(
    num_nodes: int, lowest: int, highest: int, nonzeros: int, dtype: torch.dtype
) -> int:
    """Peak memory: the blocks and the result copied from them, products, slabs, the matrix."""
    widths = [block_width(count) for count in (lowest, highest) if count]
    blocks = num_nodes * (sum(widths) + lowest + highest) * dtype.itemsize
    products = 3 * num_nodes * min(WIDE, max(widths)) * dtype.itemsize
    return blocks + products + 6 * 8 * max(widths) ** 2 + 4 * 8 * SLAB + 32 * nonzeros


def refusal(
    num_nodes: int,
    lowest: int,
    highest: int,
    nonzeros: int,
    dtype: torch.dtype,
    device: torch.device,
) -> str | None:
    """Why there is no room for this solve, or None if there is."""
    need = required_bytes(num_nodes, lowest, highest, nonzeros, dtype)
    free = devices.available_bytes(device)
    if need <= free:
        return None
    return (
        f"{lowest + highest:,} eigenpairs of {num_nodes:,} nodes need about {devices.gib(need)} "
        f"on {device} with solver 'chebyshev', {devices.gib(free)} are free"
    )


def solve(
    laplacian: sp.csr_array,
    lowest: int,
    highest: int,
    device: torch.device | str = "cpu",
    *,
    dtype: torch.dtype = torch.float64,
    degrees: np.ndarray | None = None,
    start: tuple[np.ndarray, Tensor] | None = None,
    progress: Progress | None = None,
    state: Path | None = None,
) -> tuple[np.ndarray, Tensor]:
    """At least the ``lowest`` smallest and ``highest`` largest pairs, whole groups at both cuts.

    Args:
        laplacian: normalised Laplacian ``[n, n]``.
        lowest: how many pairs from the low end.
        highest: how many from the high end.
        device: where to work.
        dtype: what blocks are stored and multiplied in; sums are float64 always. It sets the
            residual reached, :data:`~specformer.spectrum.solvers.chebyshev.subspace.RESIDUAL`.
        degrees: the nodes' degrees; needed for exact null spaces of weighted graphs.
        start: eigenvalues and eigenvectors of a similar graph to begin with.
        progress: called with the pairs converged and wanted.
        state: path stem of files that keep an unfinished solve; removed when it is done.

    Returns:
        Eigenvalues ``[q]`` ascending and eigenvectors ``[n, q]`` in ``dtype`` on ``device``.
    """
    device = torch.device(device)
    refused = refusal(laplacian.shape[0], lowest, highest, laplacian.nnz, dtype, device)
    if refused:
        raise SpectrumError(
            f"{refused}; ask for fewer eigenpairs, k=…, or solve on a larger device."
        )
    order = _neighbours_close(laplacian)
    normalised = sp.csr_array(sp.eye_array(len(order), format="csr") - laplacian)[order][:, order]
    if degrees is not None:
        degrees = degrees[order]
    files, ends = [], []
    for sign, count in ((1, lowest), (-1, highest)):
        if not count:
            continue
        files.append(StateFile(_state_path(state, sign), SAVE_EVERY))
        search = SubspaceSearch(
            Operator(sp.csr_array(sign * normalised), device, dtype),
            known_vectors(normalised, sign, degrees),
            count,
            saves=files[-1],
            progress=_shifted(progress, 0 if sign > 0 else lowest, lowest + highest - count),
        )
        theta, vectors = search.run(None if start is None else _nearest(start, sign, order))
        ends.append((1.0 - theta, vectors) if sign > 0 else (1.0 + theta[::-1], vectors.flip(1)))
    if len(ends) == 2:
        _separate(ends[0], ends[1], EQUAL[dtype])
    for file in files:
        file.remove()
    return np.concatenate([end[0] for end in ends]), _put_back([end[1] for end in ends], order)


def _neighbours_close(laplacian: sp.csr_array) -> np.ndarray:
    """An order of the nodes that puts neighbours near each other (reverse Cuthill–McKee).

    Rows a product reads are then in the cache more often: 1.14 to 0.75 ms a column on one core for
    ogbn-arxiv's graph.
    """
    return np.ascontiguousarray(
        reverse_cuthill_mckee(sp.csr_matrix(laplacian), symmetric_mode=True)
    ).astype(np.int64)


def _put_back(blocks: Sequence[Tensor], order: np.ndarray) -> Tensor:
    """Blocks side by side, their rows in the order of the graph's nodes."""
    width = sum(block.shape[1] for block in blocks)
    result = blocks[0].new_empty(len(order), width)
    rows = torch.as_tensor(order, device=result.device)
    first = 0
    for block in blocks:
        result[rows, first : first + block.shape[1]] = block
        first += block.shape[1]
    return result


def _state_path(stem: Path | None, sign: int) -> Path | None:
    """A file beside ``stem`` for either end."""
    end = "lowest" if sign > 0 else "highest"
    return None if stem is None else stem.with_name(f"{stem.name}.{end}.part.safetensors")


def _shifted(progress: Progress | None, done: int, wanted: int) -> Progress:
    """Report the progress of one end as progress of both."""

    def tell(converged: int, asked: int) -> None:
        if progress is not None:
            progress(done + converged, wanted + asked)

    return tell


def _nearest(start: tuple[np.ndarray, Tensor], sign: int, order: np.ndarray) -> Tensor:
    """Vectors from one half of an older spectrum, outermost first, rows in this order."""
    values, vectors = start
    chosen = np.argsort(sign * values, kind="stable")
    chosen = chosen[sign * (values[chosen] - 1.0) <= 0.0]
    rows, columns = (torch.as_tensor(part, device=vectors.device) for part in (order, chosen))
    return vectors[:, columns][rows]


def _separate(
    low: tuple[np.ndarray, Tensor], high: tuple[np.ndarray, Tensor], equal: float
) -> None:
    """Make the upper end orthogonal to the lower one; ends that meet are refused."""
    if low[0][-1] >= high[0][0] - equal:
        raise SpectrumError("the two ends of the spectrum overlap; use solver='dense'.")
    orthonormalise(high[1], low[1], torch.Generator(low[1].device).manual_seed(0))
