r"""How long and how fast to train: schedules, Adam, and its moments in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from specformer.nn.argument_checks import check_arguments


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
        filter_learning_rate, filter_weight_decay: for the parameters of a filter, where a model
            names them (:meth:`specformer.Specformer.filter_parameters`); None for the same as all
            others.
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
        check_arguments(Schedule, asdict(self), warmup=0)

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
    """Half a wave from ``high`` at step ``start`` down to 0, ``length`` steps later."""
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
    """Adam's moments by place and name, the same whether it works on pieces or not.

    After filling them, call :func:`settle_moments`.
    """
    every = optimiser.moments if isinstance(optimiser, Pieced) else optimiser.state.values()
    return {
        f"optimiser.{place}.{name}": tensor
        for place, moments in enumerate(every)
        for name, tensor in moments.items()
    }


def settle_moments(optimiser: torch.optim.Optimizer) -> None:
    """Let Adam go on from moments that a checkpoint filled."""
    if isinstance(optimiser, Pieced):
        optimiser.level()


_PIECE = 8192


class Pieced(torch.optim.Optimizer):
    """An optimiser whose parameters are pieces of those given.

    Adam works entry by entry, so the outcome is the same. The fused kernel gives a tensor of up to
    65,536 numbers to one block of threads, which takes 26 µs for Cora's first map on an H200 while
    the rest of the GPU waits. Parameters must be contiguous and keep their memory.
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
        """After :attr:`moments` were filled, give all pieces of a parameter its steps."""
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
    """Adam on pieces of its parameters."""


class PiecedAdamW(Pieced, torch.optim.AdamW):
    """AdamW on pieces of its parameters."""


@dataclass(frozen=True)
class GraphSchedule:
    r"""AdamW's settings over a run; the rate changes with every step.

    At step t of S an epoch, with :math:`e = t/S` epochs behind it, the rate is

    .. math::
        \eta(t) = \min\!\left(1, \frac{t+1}{wS}\right) \eta\,\tfrac12(1 + \cos \pi p),
        \qquad p = \max\!\left(0, \frac{e - w}{E - w}\right)

    Args:
        epochs: E; all are run unless patience ends, and the best is kept.
        batch_size: graphs of a batch, over all workers together.
        learning_rate: the highest rate, :math:`\eta`.
        warmup: epochs of linear increase, w.
        weight_decay: AdamW's, apart from the gradient.
        beta1, beta2: memory of the gradient's mean and square.
        clip: gradients of a larger norm are scaled down to this one; None leaves them.
        average: judge and keep the :class:`~specformer.training.engine.stacking.WeightAverage` of
            about this many epochs; None for the weights themselves.
        patience: stop after so many epochs without a better validation loss or metric; None to
            run all.
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
        check_arguments(GraphSchedule, asdict(self), warmup=0)

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
        """The learning rate of a step, computed where ``step`` lives."""
        done = step.to(torch.float32)
        start = self.warmup * steps_per_epoch
        length = max(1, self.epochs - self.warmup) * steps_per_epoch
        rate = cosine(done, start, length, self.learning_rate)
        return warmed_up(rate, done, start)
