r"""Adam on pieces of large parameters, for GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

_PIECE = 8192


class Pieced(torch.optim.Optimizer):
    """An optimiser whose parameters are pieces of those given.

    Adam works entry by entry, so the outcome is the same. The fused kernel gives a tensor of up to
    65,536 numbers to one block of threads, which takes 26 µs for Cora's first map on an H200 while
    the rest of the GPU waits.

    Args:
        groups: as Adam takes them; parameters must be contiguous and keep their memory.
        options: Adam's own.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], **options: Any) -> None:
        self._pieces: list[tuple[Tensor, tuple[Tensor, ...]]] = []
        super().__init__([self._cut(group) for group in groups], **options)
        #: The state of each parameter given, of which its pieces have their parts. Of its steps,
        #: which are counted for every piece, it is the first's.
        self.moments = [self._moments(*pair) for pair in self._pieces]

    def _cut(self, group: dict[str, Any]) -> dict[str, Any]:
        pairs = [(whole, whole.detach().view(-1).split(_PIECE)) for whole in group["params"]]
        self._pieces += pairs
        return {**group, "params": [piece for _, pieces in pairs for piece in pieces]}

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step with the gradients of the parameters given."""
        for whole, pieces in self._pieces:
            gradient = whole.grad
            cut = [None] * len(pieces) if gradient is None else gradient.reshape(-1).split(_PIECE)
            for piece, part in zip(pieces, cut, strict=True):
                piece.grad = part
        super().step(closure)

    def level(self) -> None:
        """Once :attr:`moments` were filled, give all pieces of a parameter its steps."""
        for own, (_, pieces) in zip(self.moments, self._pieces, strict=True):
            for piece in pieces[1:]:
                self.state[piece]["step"].copy_(own["step"])

    def _moments(self, whole: Tensor, pieces: Sequence[Tensor]) -> dict[str, Tensor]:
        steps = torch.zeros(len(pieces), device=whole.device).unbind()
        own = {name: torch.zeros_like(whole) for name in ("exp_avg", "exp_avg_sq")}
        parts = [moment.view(-1).split(_PIECE) for moment in own.values()]
        for piece, step, *both in zip(pieces, steps, *parts, strict=True):
            self.state[piece] = {"step": step, **dict(zip(own, both, strict=True))}
        return {"step": steps[0], **own}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Take the gradients of the parameters given away, or make them zero."""
        for whole, pieces in self._pieces:
            if set_to_none:
                for each in (whole, *pieces):
                    each.grad = None
            elif whole.grad is not None:
                whole.grad.zero_()


class PiecedAdam(Pieced, torch.optim.Adam):
    """Adam on pieces of its parameters.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(3, 5000))
        >>> len(PiecedAdam([{"params": [weight]}]).param_groups[0]["params"])
        2
    """


class PiecedAdamW(Pieced, torch.optim.AdamW):
    """AdamW on pieces of its parameters."""
