r"""Steps after every solve: group equal eigenvalues, fix signs, check eigenpairs.

Vectors are ``[..., n, q]`` and values ``[..., q]``: one graph is a batch without leading axes.
All sums are in float64, whatever the vectors are stored in: over 170,000 nodes the squares of a
unit vector in float32, added one by one, miss 1 by 7e-4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum.sparse import to_torch

#: Sorted eigenvalues closer than this to their neighbour are taken as one repeated eigenvalue.
#: Solvers work in float64, where equal eigenvalues come out within about 1e-12 of each other, while
#: different ones are rarely nearer than 1e-7 even among ten thousand.
EQUAL_TOLERANCE = 1e-8
#: The same by the precision of a solve. A float32 solve ends with refined eigenvalues, see
#: :func:`refined`, of which equal ones lie within about 1e-9.
EQUAL = {torch.float32: 1e-7, torch.float64: EQUAL_TOLERANCE}


class Tokens(NamedTuple):
    """Points of the spectrum with weights, over which attention runs.

    Shapes: values ``[p]``, weights ``[p]`` (multiplicities, or quadrature weights).
    """

    values: Tensor
    weights: Tensor


class Distinct(NamedTuple):
    """The different eigenvalues and how often each occurs.

    Shapes: values and counts ``[p]``, index ``[q]``: the place of every eigenvalue's value.
    """

    values: Tensor
    counts: Tensor
    index: Tensor  # type: ignore[assignment]  # tuples have a method of this name

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.values, self.counts)


def distinct(eigenvalues: Tensor) -> Distinct:
    """Group eigenvalues that are equal to the bit, in any order. Groups carry no gradient."""
    fixed = eigenvalues.detach()
    values, index, counts = torch.unique(fixed, return_inverse=True, return_counts=True)
    return Distinct(values, counts.to(values.dtype), index)


def singly(eigenvalues: Tensor) -> Tokens:
    """Every eigenvalue as a separate token, equal or not."""
    return Tokens(eigenvalues, torch.ones_like(eigenvalues))


def group_starts(eigenvalues: np.ndarray, tolerance: float = EQUAL_TOLERANCE) -> np.ndarray:
    """First position of every group of equal eigenvalues, ascending along the last axis.

    Positions are those of the flat array; a group does not continue in the next row.
    """
    begins = np.ones(eigenvalues.shape, dtype=bool)
    begins[..., 1:] = np.diff(eigenvalues) > tolerance
    return np.flatnonzero(begins)


def snap(
    eigenvalues: np.ndarray, tolerance: float = EQUAL_TOLERANCE, lowest: float = 0.0
) -> np.ndarray:
    """Replace equal eigenvalues of a graph, a row of ``[..., q]``, by their mean.

    After this, a repeated eigenvalue is one that is equal to the bit. Eigenvalues ascend along the
    last axis and are clipped to ``lowest`` … ``lowest + 2``.
    """
    if eigenvalues.size == 0:
        return eigenvalues
    starts = group_starts(eigenvalues, tolerance)
    sizes = np.diff(np.append(starts, eigenvalues.size))
    means = whole_numbers(np.add.reduceat(eigenvalues.ravel(), starts) / sizes, tolerance)
    return np.repeat(means.clip(lowest, lowest + 2.0), sizes).reshape(eigenvalues.shape)


def whole_numbers(eigenvalues: np.ndarray, tolerance: float) -> np.ndarray:
    """Round eigenvalues that are whole numbers up to ``tolerance``, such as 3e-17."""
    whole = np.round(eigenvalues) + 0.0  # no -0.0
    return np.where(np.abs(eigenvalues - whole) <= tolerance, whole, eigenvalues)


#: How many float64 numbers a slab of rows may hold: 128 MiB.
SLAB = 2**24
#: Largest accepted residual norm and orthogonality error of a solve.
TOLERANCE = 1e-4
#: Entries this close to an eigenvector's largest count as equally large.
TIE = 1e-4
#: How many columns are processed at once.
_BLOCK = 2048


def slabs(num_rows: int, width: int) -> Iterator[slice]:
    """Ranges of rows of a block of this width, small enough to be held in float64."""
    height = max(1024, SLAB // max(width, 1))
    for start in range(0, num_rows, height):
        yield slice(start, start + height)


def gram(one: Tensor, other: Tensor | None = None) -> Tensor:
    r""":math:`X^\top Y` of ``[n, m]`` and ``[n, p]`` (Y = X if left out), in float64.

    A batch ``[..., n, m]`` takes one product, because its matrices are small.
    """
    right = one if other is None else other
    if one.dim() > 2:
        return one.double().mT @ right.double()
    shape = (one.shape[1], right.shape[1])
    total = torch.zeros(shape, dtype=torch.float64, device=one.device)
    for rows in slabs(one.shape[0], one.shape[1] + right.shape[1]):
        left = one[rows].double()
        total.addmm_(left.mT, left if other is None else right[rows].double())
    return total


def canonical_signs(vectors: Tensor) -> Tensor:
    """Turn each column, in place, so that the first of its largest entries is positive.

    Entries that differ by rounding are equally large, so that signs do not depend on the solver.
    Real columns are flipped, complex ones get another phase.
    """
    for block in _blocks(vectors):
        size = block.abs()
        large = size >= size.amax(dim=-2, keepdim=True) * (1.0 - TIE)
        first = large.to(torch.uint8).argmax(dim=-2, keepdim=True)
        block.mul_(block.gather(-2, first).sgn().conj())
    return vectors


def refined(operator: sp.csr_array | Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    r"""Rayleigh quotients :math:`u^\top M u / u^\top u` in float64, ascending, and their vectors.

    Their error is the square of the vectors' error. So the eigenvalues of a float32 solve, wrong by
    about 1e-6, become as good as those of a float64 solve.
    """
    matrix = _as_tensor(operator, vectors.device)
    quotients = []
    for part in _blocks(vectors):
        block = part.double().contiguous()
        quotients.append((block * (matrix @ block)).sum(dim=-2) / block.square().sum(dim=-2))
    values, order = torch.cat(quotients, dim=-1).sort(dim=-1)
    return values, torch.take_along_dim(vectors, order.unsqueeze(-2), dim=-1)


def max_residual(
    operator: sp.csr_array | Tensor, eigenvalues: Tensor, eigenvectors: Tensor
) -> float:
    r"""The largest :math:`\lVert M u_i - \lambda_i u_i \rVert_2` over all pairs."""
    values, vectors = eigenvalues.detach().double(), eigenvectors.detach()
    matrix = _as_tensor(operator, vectors.device)
    width = min(_BLOCK, max(16, SLAB // max(vectors.shape[-2], 1)))
    worst = 0.0
    for part, own in zip(_blocks(vectors, width), _blocks(values, width), strict=True):
        block = part.double().contiguous()
        difference = matrix @ block - block * own.unsqueeze(-2)
        worst = np.maximum(worst, float(difference.norm(dim=-2).max()))  # keeps a NaN
    return float(worst)


def max_orthogonality_error(eigenvectors: Tensor) -> float:
    r"""The largest entry of :math:`|U^\top U - I|`, computed in blocks."""
    vectors = eigenvectors.detach()
    worst = 0.0
    for number, block in enumerate(_blocks(vectors)):
        # The upper triangle suffices.
        products = gram(block, vectors[..., number * _BLOCK :])
        products.diagonal(dim1=-2, dim2=-1).sub_(1.0)
        worst = np.maximum(worst, float(products.abs().max()))
    return float(worst)


def check_eigenpairs(who: str, residual: float, orthogonality: float) -> None:
    """Refuse eigenpairs with an error above :data:`TOLERANCE`, or NaN."""
    if not (residual <= TOLERANCE and orthogonality <= TOLERANCE):
        raise SpectrumError(
            f"{who} failed its checks: residual {residual:.1e}, orthogonality error "
            f"{orthogonality:.1e}; both must be at most {TOLERANCE:.0e}."
        )


def check_finite(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a file with NaN or infinite numbers, even if its checksum is right."""
    for name, tensor in tensors.items():
        # A float64 sum is finite exactly if all terms are. The float32 sum is tried first: it may
        # overflow, but takes a fraction of the time. Some rows at a time: the file may be mapped.
        for part in tensor.split(max(1, SLAB // max(tensor[:1].numel(), 1))):
            if math.isfinite(part.sum()) or math.isfinite(part.sum(dtype=torch.float64)):
                continue
            raise SpectrumError(f"{path}: {name} are not all finite; compute the spectrum again.")


def _as_tensor(operator: sp.csr_array | Tensor, device: torch.device) -> Tensor:
    if isinstance(operator, Tensor):
        return operator
    return to_torch(operator, device, torch.float64)


def _blocks(columns: Tensor, width: int | None = None) -> Iterator[Tensor]:
    """Views of a few columns at a time, along the last axis; nothing for an empty matrix."""
    return iter(columns.split(width or _BLOCK, dim=-1) if columns.numel() else ())
