r"""How long and how fast to train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from specformer.nn.argument_checks import check_counts, check_not_negative, check_positive
from specformer.training.optim.adam import Pieced, PiecedAdam

_POSITIVE = ("learning_rate", "filter_learning_rate")
_NOT_NEGATIVE = ("warmup", "weight_decay", "filter_weight_decay")
_OPTIONAL = ("filter_learning_rate", "filter_weight_decay")


@dataclass(frozen=True)
class Schedule:
    """Adam's settings over a run.

    Args:
        epochs: at most this many.
        patience: stop after this many without improvement.
        learning_rate: the highest rate.
        decay: ``"constant"``, or ``"cosine"`` down to 0.
        warmup: epochs of linear increase at the start.
        weight_decay: L2 penalty.
        filter_learning_rate, filter_weight_decay: those of a filter's own parameters, where a
            model tells them apart (:meth:`specformer.Specformer.filter_parameters`); None for the
            same as all others.
    """

    epochs: int = 2000
    patience: int = 200
    learning_rate: float = 0.01
    decay: Literal["constant", "cosine"] = "constant"
    warmup: int = 0
    weight_decay: float = 0.0
    filter_learning_rate: float | None = None
    filter_weight_decay: float | None = None

    def __post_init__(self) -> None:
        left = [name for name in _OPTIONAL if getattr(self, name) is None]
        given = {name: value for name, value in asdict(self).items() if name not in left}
        check_counts(given, "epochs", "patience")
        check_positive(given, *(name for name in _POSITIVE if name in given))
        check_not_negative(given, *(name for name in _NOT_NEGATIVE if name in given))

    def optimiser(
        self,
        parameters: Iterable[nn.Parameter],
        device: torch.device,
        filters: Iterable[nn.Parameter] = (),
    ) -> torch.optim.Optimizer:
        """Adam with its rates in tensors, so that a captured epoch can change them.

        ``filters``: those of ``parameters`` that take the filter's rate and decay.
        """
        everything, special = list(parameters), set(filters)
        ordinary = [parameter for parameter in everything if parameter not in special]
        own = [parameter for parameter in everything if parameter in special]
        decay = self.filter_weight_decay
        scale = (self.filter_learning_rate or self.learning_rate) / self.learning_rate
        settings = (1.0, self.weight_decay), (scale, self.weight_decay if decay is None else decay)
        # Groups of equal settings are one, which an epoch steps with fewer kernels.
        parts = [ordinary + own, []] if settings[0] == settings[1] else [ordinary, own]
        adam = PiecedAdam if device.type == "cuda" else torch.optim.Adam
        optimiser = adam(
            [
                {
                    "params": part,
                    "scale": scale,
                    "weight_decay": decay,
                    "lr": torch.tensor(self.learning_rate * scale, device=device),
                }
                for part, (scale, decay) in zip(parts, settings, strict=True)
                if part
            ],
            capturable=device.type == "cuda",
            fused=True,
        )
        return prepare_moments(optimiser)

    def rate(self, epoch: Tensor) -> Tensor:
        """The learning rate of an epoch, computed where ``epoch`` lives."""
        step = epoch.to(torch.float32)
        if self.decay == "cosine":
            length = max(1, self.epochs - self.warmup)
            rate = cosine(step, self.warmup, length, self.learning_rate)
        else:
            rate = torch.full_like(step, self.learning_rate)
        return warmed_up(rate, step, self.warmup)

    def set_rate(self, optimiser: torch.optim.Optimizer, epoch: Tensor) -> None:
        """Write the rate of ``epoch`` into the optimiser without reading anything back."""
        if self.decay == "constant" and not self.warmup:
            return  # it is there from the start
        rate = self.rate(epoch)
        for group in optimiser.param_groups:
            torch.mul(rate, group["scale"], out=group["lr"])


def cosine(step: Tensor, start: int, length: int, high: float) -> Tensor:
    """Half a wave from ``high`` at step ``start`` down to 0, ``length`` steps later.

    Example:
        >>> cosine(torch.arange(4.0), start=1, length=2, high=1.0)
        tensor([1.0000, 1.0000, 0.5000, 0.0000])
    """
    progress = ((step - start) / length).clamp(0.0, 1.0)
    wave = 0.5 * (1.0 + torch.cos(torch.pi * progress))
    return high * wave


def warmed_up(rate: Tensor, step: Tensor, steps: int) -> Tensor:
    """Rates with a linear increase over the first ``steps``."""
    return rate * ((step + 1.0) / steps).clamp(max=1.0) if steps else rate


def prepare_moments(optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Give Adam the state it would make at its first step, so that a checkpoint can fill it."""
    if isinstance(optimiser, Pieced):
        return optimiser  # has it
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            optimiser.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return optimiser


def moments(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments by place and name: the same ones whether it works on pieces or not.

    After they were filled, call :func:`settle_moments`.
    """
    every = optimiser.moments if isinstance(optimiser, Pieced) else optimiser.state.values()
    return {
        f"optimiser.{place}.{name}": tensor
        for place, moments in enumerate(every)
        for name, tensor in moments.items()
    }


def settle_moments(optimiser: torch.optim.Optimizer) -> None:
    """Let Adam go on from moments that were filled."""
    if isinstance(optimiser, Pieced):
        optimiser.level()
