r"""Finds the layer in which a training diverged, by repeating its last epochs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from specformer.training.engine.capture import uncaptured
from specformer.training.optim.schedule import settle_moments
from specformer.training.runs.checkpoint import random_state, set_random_state

#: In place of a layer's number: not looked for yet, and not found.
NOT_SOUGHT, UNKNOWN = -1, -2


class Rewind:
    """Goes back to a kept state of a training and watches every layer from there on.

    After a loss that is not finite, the next update leaves no finite weight, so that it is too late
    to see where it began. This costs no time in training: its state is copied to the host as it
    starts and when it is saved anyway. On a CPU the repeated epochs are the same to the bit.

    Args:
        models: what is trained and, if another, what is evaluated, of the same layers.
        state: everything that changes, by name.
        optimiser: that of the models.
        runs: the length of the run axis; 0 for models without.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        state: Mapping[str, Tensor],
        optimiser: torch.optim.Optimizer,
        runs: int = 0,
    ) -> None:
        self._models, self._state, self._optimiser = models, state, optimiser
        self._runs = runs
        self.keep()

    def keep(self) -> None:
        """Keep the present state, by name in :attr:`kept`, to go back to."""
        self.kept = self._copied()

    def layers(self, again: Iterable[Tensor]) -> Tensor:
        """The number of the first layer of each run ``[runs]`` that is not finite.

        ``again`` takes the steps since the kept state and says after each whose loss was not
        finite so far, ``[runs]``. Where all layers are finite, but not the loss, the number is one
        above the last layer's. The state is left as it was.
        """
        now, parts = self._copied(), list(self._models[0].modules())
        self._put(self.kept)
        with uncaptured(), _watched(self._models, self._runs) as first:
            for lost in again:
                first[(first == NOT_SOUGHT) & lost.cpu()] = len(parts)
                for number, part in enumerate(parts):
                    _note(first, number, self._runs, part.parameters(recurse=False))
        self._put(now)
        return torch.where(first == NOT_SOUGHT, UNKNOWN, first)

    def _copied(self) -> dict[str, Tensor]:
        state = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self._state.items()}
        return state | random_state(any(tensor.is_cuda for tensor in self._state.values()))

    @torch.no_grad()
    def _put(self, kept: Mapping[str, Tensor]) -> None:
        for name, tensor in self._state.items():
            tensor.copy_(kept[name])
        settle_moments(self._optimiser)
        set_random_state(kept)


def first_lost(losses: Tensor, epochs: Tensor) -> Tensor:
    """The first epoch of each run ``[runs]`` with a loss that is not finite, or -1, on the host.

    Losses ``[epochs, runs, …]`` count in as many epochs as each run took, ``[runs]``.
    """
    counted = torch.arange(len(losses), device=losses.device).unsqueeze(-1) < epochs
    lost = (counted & ~losses.isfinite().flatten(2).all(dim=-1)).cpu()
    return torch.where(lost.any(dim=0), lost.byte().argmax(dim=0), -1)


def layer_name(model: nn.Module, number: int) -> str:
    """The name of the layer of that number in errors; empty if none was found."""
    names = [name for name, _ in model.named_modules()]
    if number < 0:
        return ""
    if number == len(names):
        return "the loss"
    return f"layer {names[number]}" if names[number] else "the model's output"


@contextmanager
def _watched(models: Sequence[nn.Module], runs: int) -> Iterator[Tensor]:
    """The number of each run's first layer whose parameters or outputs are not finite."""
    first = torch.full((max(1, runs),), NOT_SOUGHT)

    def before(number: int, module: nn.Module, _: object) -> None:
        _note(first, number, runs, module.parameters(recurse=False))

    def after(number: int, _: nn.Module, __: object, output: object) -> None:
        _note(first, number, runs, output if isinstance(output, tuple | list) else [output])

    with ExitStack() as hooks:
        for model in dict.fromkeys(models):
            for number, module in enumerate(model.modules()):
                hooks.enter_context(module.register_forward_pre_hook(partial(before, number)))
                hooks.enter_context(module.register_forward_hook(partial(after, number)))
        yield first


@torch.no_grad()
def _note(first: Tensor, number: int, runs: int, values: Iterable[object]) -> None:
    """Note a layer for the runs of which some values are not finite, and none were before."""
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point():
            finite = value.isfinite()
            each = runs and finite.dim() and len(finite) == runs
            own = finite.reshape(runs, -1).all(dim=1) if each else finite.all()
            first[(first == NOT_SOUGHT) & ~own.cpu()] = number
