r"""How long and how fast to train on many small graphs: AdamW, warm-up, cosine decay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from specformer.nn.argument_checks import (
    check_counts,
    check_not_negative,
    check_numbers,
    check_positive,
)
from specformer.training.optim.schedule import PiecedAdamW, cosine, prepare_moments, warmed_up

#: Positive where they are given.
_OPTIONAL = ("clip", "average")


@dataclass(frozen=True)
class GraphSchedule:
    r"""AdamW's settings over a run; the rate changes with every step.

    At step t of S an epoch, with :math:`e = t/S` epochs behind it, the rate is

    .. math::
        \eta(t) = \min\!\left(1, \frac{t+1}{wS}\right) \eta\,\tfrac12(1 + \cos \pi p),
        \qquad p = \max\!\left(0, \frac{e - w}{E - w}\right)

    Args:
        epochs: E; all are run unless patience ends, the best of them is kept.
        batch_size: graphs of a batch, over all workers together.
        learning_rate: the highest rate, :math:`\eta`.
        warmup: epochs of linear increase, w.
        weight_decay: AdamW's, apart from the gradient.
        beta1, beta2: memory of the gradient's mean and square.
        clip: gradients of a larger norm are scaled down to this one; None leaves them.
        average: judge and keep the :class:`~specformer.training.engine.stacking.WeightAverage` of
            about this many epochs; None for the weights themselves.
        patience: stop after so many epochs in which neither validation loss nor metric was better
            than ever; None to run all.
    """

    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 0.001
    warmup: int = 5
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    clip: float | None = None
    average: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        given = asdict(self)
        counted = ("patience",) if self.patience is not None else ()
        check_counts(given, "epochs", "batch_size", *counted)
        check_positive(given, "learning_rate", *(n for n in _OPTIONAL if given[n] is not None))
        check_not_negative(given, "warmup", "weight_decay")
        below_one = "be at least 0 and below 1"
        check_numbers(given, "beta1", "beta2", lies=lambda beta: 0 <= beta < 1, where=below_one)

    def optimiser(
        self, parameters: Iterable[nn.Parameter], device: torch.device
    ) -> torch.optim.Optimizer:
        """AdamW with its rate in a tensor, so that a captured step can change it."""
        adam = PiecedAdamW if device.type == "cuda" else torch.optim.AdamW
        return prepare_moments(
            adam(
                [{"params": list(parameters)}],
                lr=torch.tensor(self.learning_rate, device=device),
                betas=(self.beta1, self.beta2),
                weight_decay=self.weight_decay,
                capturable=device.type == "cuda",
                fused=True,
            )
        )

    def rate(self, step: Tensor, steps_per_epoch: int) -> Tensor:
        """The learning rate of a step, computed where ``step`` lives.

        Example:
            >>> schedule = GraphSchedule(epochs=4, warmup=2, learning_rate=1.0)
            >>> schedule.rate(torch.arange(5), steps_per_epoch=1)
            tensor([0.5000, 1.0000, 1.0000, 0.5000, 0.0000])
        """
        done = step.to(torch.float32)
        start = self.warmup * steps_per_epoch
        length = max(1, self.epochs - self.warmup) * steps_per_epoch
        rate = cosine(done, start, length, self.learning_rate)
        return warmed_up(rate, done, start)
