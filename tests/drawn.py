"""Random tensors, the same each time."""

from __future__ import annotations

import torch
from torch import Tensor


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Drawn in float64, so that those of any precision are near each other."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
