r"""What training on many graphs makes small, with missing targets left out."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

#: Of numbers, of two classes a target, and of one target with several classes.
Loss = Literal["l1", "mse", "bce", "ce"]


def graph_errors(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The error of every output, zero where the target is missing, and which targets are known.

    Shapes: all ``[B, tasks]``; with ``"ce"`` the outputs are logits ``[B, classes]`` and the rest
    ``[B, 1]``. Outputs ``[B, 1]`` and targets ``[B]`` are refused: PyTorch would compare every
    output with every target.
    """
    expected = outputs.shape if loss != "ce" else (len(outputs), 1)
    if targets.shape != expected:
        raise ValueError(f"outputs {list(outputs.shape)} and targets {list(targets.shape)} differ.")
    known = ~targets.isnan()
    wanted = targets.nan_to_num().to(outputs.dtype if loss != "ce" else torch.long)
    if loss == "ce":
        errors = nn.functional.cross_entropy(outputs, wanted[:, 0], reduction="none").unsqueeze(1)
    elif loss == "l1":
        errors = (outputs - wanted).abs()
    elif loss == "mse":
        errors = (outputs - wanted).square()
    else:
        errors = nn.functional.binary_cross_entropy_with_logits(outputs, wanted, reduction="none")
    return errors * known, known


def mean_error(loss: Loss, outputs: Tensor, targets: Tensor) -> float:
    """The mean error over all known targets."""
    errors, known = graph_errors(loss, outputs.detach(), targets)
    return float(errors.sum() / known.sum().clamp_min(1))


class Scale(NamedTuple):
    """Mean and standard deviation ``[tasks]`` of targets, which are learned without either."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, targets: Tensor) -> Scale:
        """That of known targets ``[n, tasks]``; a target that never varies is only shifted."""
        known = ~targets.isnan()
        count = known.sum(dim=0).clamp_min(1)
        wide = targets.double()  # the squares of 1e20 do not fit float32, nor do those of 1e-25
        mean = wide.nan_to_num().sum(dim=0) / count
        var = ((wide - mean).nan_to_num().square() * known).sum(dim=0) / count
        std = var.sqrt().to(targets)
        # Of a constant, the deviation may be what rounding left of the mean.
        low, high = targets.nan_to_num(torch.inf).amin(0), targets.nan_to_num(-torch.inf).amax(0)
        varies = (low < high) & (std > 0)
        return cls(mean.to(targets), torch.where(varies, std, torch.ones_like(std)))

    @classmethod
    def none(cls, tasks: int, device: torch.device) -> Scale:
        """The one that changes nothing."""
        return cls(torch.zeros(tasks, device=device), torch.ones(tasks, device=device))

    def standardised(self, targets: Tensor) -> Tensor:
        return (targets - self.mean) / self.std

    def original(self, outputs: Tensor) -> Tensor:
        """Back in the targets' own units."""
        return outputs * self.std.to(outputs) + self.mean.to(outputs)

    @torch.no_grad()
    def fold_into(self, readout: nn.Linear) -> None:
        """Change a last layer so that it puts out the targets' own units."""
        readout.weight.mul_(self.std.to(readout.weight).unsqueeze(-1))
        readout.bias.copy_(self.original(readout.bias))
