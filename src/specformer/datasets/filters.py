r"""The five filters of the paper's synthetic task (Table 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from specformer.errors import check_known


@dataclass(frozen=True)
class TargetFilter:
    """A response over [0, 2] with the formula to print beside it."""

    name: str
    formula: str
    response: Callable[[Tensor], Tensor]

    def __call__(self, eigenvalues: Tensor) -> Tensor:
        return self.response(eigenvalues)


FILTERS: dict[str, TargetFilter] = {
    target.name: target
    for target in (
        TargetFilter("low-pass", "exp(−10λ²)", lambda x: (-10 * x**2).exp()),
        TargetFilter("high-pass", "1 − exp(−10λ²)", lambda x: 1 - (-10 * x**2).exp()),
        TargetFilter("band-pass", "exp(−10(λ−1)²)", lambda x: (-10 * (x - 1) ** 2).exp()),
        TargetFilter(
            "band-rejection", "1 − exp(−10(λ−1)²)", lambda x: 1 - (-10 * (x - 1) ** 2).exp()
        ),
        TargetFilter("comb", "|sin(πλ)|", lambda x: (math.pi * x).sin().abs()),
    )
}


def target_filter(name: str) -> TargetFilter:
    """The filter of that name.

    Example:
        >>> import torch
        >>> target_filter("comb")(torch.tensor([0.5])).tolist()
        [1.0]
    """
    check_known("filter", FILTERS, name)
    return FILTERS[name]
