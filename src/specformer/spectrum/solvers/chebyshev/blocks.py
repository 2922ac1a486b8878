r"""Blocks of vectors: their width and memory, random and orthonormal columns."""

from __future__ import annotations

import logging
import math

import numpy as np
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import gram, slabs
from specformer.spectrum.solvers.chebyshev.filtering import Operator

logger = logging.getLogger(__name__)

#: How many columns are multiplied at once if only sums of the product are used.
WIDE = 1024
#: By precision of the block: the largest accepted entry of |XᵀX − I|.
ORTHONORMAL = {torch.float32: 1e-6, torch.float64: 1e-13}
_PASSES = 6


def block_width(count: int) -> int:
    """Number of columns for ``count`` pairs; extra columns make the last pairs converge sooner."""
    return count + max(16, min(count // 4, 50 + count // 12))


def empty_block(operator: Operator, width: int) -> Tensor:
    """Allocate a block ``[n, width]``; refused if there is not enough memory."""
    num_nodes, dtype, device = operator.shape[0], operator.dtype, operator.device
    need = num_nodes * width * dtype.itemsize
    free = devices.available_bytes(device)
    if need > free:
        raise SpectrumError(
            f"the eigenvalue at the cut is repeated so often that {width:,} vectors, "
            f"{devices.gib(need)}, are needed on {device}; {devices.gib(free)} are free. "
            "Ask for fewer eigenpairs."
        )
    return torch.empty(num_nodes, width, dtype=dtype, device=device)


def fill_randomly(block: Tensor, generator: torch.Generator) -> None:
    """Fill all columns with random numbers, of unit norm on average."""
    for part in block.split(WIDE, dim=1):
        drawn = torch.randn(part.shape, generator=generator, dtype=part.dtype, device=part.device)
        part.copy_(drawn / math.sqrt(part.shape[0]))


def rotate(block: Tensor, matrix: Tensor) -> None:
    """Compute ``block @ matrix`` in place, ``[n, m]`` by ``[m, m]`` in float64."""
    for rows in slabs(block.shape[0], 2 * block.shape[1]):
        block[rows] = (block[rows].double() @ matrix).to(block.dtype)


def permute_columns(block: Tensor, order: np.ndarray) -> None:
    """Reorder columns in place."""
    places = torch.as_tensor(order, device=block.device)
    for rows in slabs(*block.shape):
        block[rows] = block[rows][:, places]


def project_out(block: Tensor, found: Tensor, passes: int = 2) -> None:
    r"""Project orthonormal columns out of a block, :math:`X - Q Q^\top X`, in place.

    The second pass removes the rounding errors of the first.
    """
    if found.shape[1] == 0:
        return
    for _ in range(passes):
        along = gram(found, block)
        for rows in slabs(block.shape[0], found.shape[1] + 2 * block.shape[1]):
            part = torch.addmm(block[rows].double(), found[rows].double(), along, alpha=-1.0)
            block[rows] = part.to(block.dtype)


def orthonormalise(block: Tensor, found: Tensor, generator: torch.Generator) -> Tensor:
    r"""Make columns orthonormal, and orthogonal to ``found``, in place; returns their Gram matrix.

    Uses Cholesky QR of scaled columns. If the factorisation breaks down, the Gram matrix is shifted
    and the pass repeated (Fukaya et al., 2020); the last resort is Householder QR.
    """
    limit = ORTHONORMAL[block.dtype]
    identity = torch.eye(block.shape[1], dtype=torch.float64, device=block.device)
    project_out(block, found)
    for passes in range(_PASSES):
        products = gram(block)
        if bool((products - identity).abs().max() <= limit):
            logger.debug("orthogonalisation: %d columns in %d passes", block.shape[1], passes)
            return products
        _cholesky_pass(block, products, generator)
        # R⁻¹ amplifies what was left along ``found``; the next, milder pass does not.
        project_out(block, found, passes=1)
    logger.info("orthogonalisation: %d Cholesky passes were not enough, using QR", _PASSES)
    block.copy_(torch.linalg.qr(block.double())[0])
    project_out(block, found)
    return gram(block)


def _cholesky_pass(block: Tensor, products: Tensor, generator: torch.Generator) -> None:
    """One pass of Cholesky QR; columns that have vanished are replaced by random ones."""
    norms = products.diagonal().sqrt()
    lost = ~(norms > norms.max() * 1e-30)
    if bool(lost.any()):
        drawn = block[:, lost]
        fill_randomly(drawn, generator)
        block[:, lost] = drawn
        return
    scaled = products / norms.unsqueeze(0) / norms.unsqueeze(1)
    factor, failed = torch.linalg.cholesky_ex(scaled)
    shift = 1e-14 * len(norms)
    # A tiny pivot means that a column is almost dependent, and R⁻¹ would be mostly noise.
    while bool(failed) or bool(factor.diagonal().min() < 1e-7):
        scaled.diagonal().add_(shift)
        factor, failed = torch.linalg.cholesky_ex(scaled)
        shift *= 10.0
    identity = torch.eye(len(norms), dtype=torch.float64, device=block.device)
    inverse = torch.linalg.solve_triangular(factor, identity, upper=False).mT
    rotate(block, inverse / norms.unsqueeze(1))
