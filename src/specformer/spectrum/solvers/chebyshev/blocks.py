r"""Blocks of vectors for a solve: how wide, whether there is room for them, random columns."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import memory
from specformer.spectrum.solvers.chebyshev.filtering import Operator

#: Columns handled at once where the product is used for sums only, or thrown away.
WIDE = 1024


def block_width(count: int) -> int:
    """Columns for ``count`` pairs: some beyond the cut make the last of them converge sooner.

    Example:
        >>> block_width(10), block_width(200), block_width(5000)
        (26, 250, 5466)
    """
    return count + max(16, min(count // 4, 50 + count // 12))


def empty_block(operator: Operator, width: int) -> Tensor:
    """A block ``[n, width]`` to be filled, if there is memory for one this wide."""
    num_nodes, dtype, device = operator.shape[0], operator.dtype, operator.device
    need = num_nodes * width * dtype.itemsize
    free = memory.available_bytes(device)
    if need > free:
        raise SpectrumError(
            f"the eigenvalue at the cut is repeated so often that {width:,} vectors, "
            f"{memory.gib(need)}, are needed on {device}; {memory.gib(free)} are free. "
            "Ask for fewer eigenpairs."
        )
    return torch.empty(num_nodes, width, dtype=dtype, device=device)


def fill_randomly(block: Tensor, generator: torch.Generator) -> None:
    """Random numbers for all columns, of unit norm in expectation.

    Example:
        >>> block = torch.empty(1000, 3)
        >>> fill_randomly(block, torch.Generator().manual_seed(0))
        >>> block.norm(dim=0).round().tolist()
        [1.0, 1.0, 1.0]
    """
    for part in block.split(WIDE, dim=1):
        drawn = torch.randn(part.shape, generator=generator, dtype=part.dtype, device=part.device)
        part.copy_(drawn / math.sqrt(part.shape[0]))
