r"""What all baselines share: how a model gets its arguments, checks them and remembers them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from specformer.errors import ConfigError
from specformer.nn.argument_checks import check_counts, check_flags, check_numbers, check_rates
from specformer.nn.pretrained import Pretrained, given

_COUNTS = (
    "in_channels",
    "hidden_channels",
    "out_channels",
    "num_layers",
    "num_rounds",
    "heads",
    "num_heads",
    "order",
    "steps",
    "hops",
    "max_degree",
    "max_distance",
    "max_hops",
    "max_ring",
    "walk_steps",
    "walk_channels",
    "frequencies",
    "spectrum_channels",
    "spectrum_layers",
)
_RATES = ("dropout", "propagation_dropout", "attention_dropout", "alpha")
_NUMBERS = ("theta", "a", "b", "gamma", "exponent", "average_log_degree")
#: What a number must be larger than.
_BOUNDS = {"theta": -1.0, "a": -1.0, "b": -1.0}


class Baseline(Pretrained):
    """A model whose arguments are those of ``frame``, shared by many, and of its own ``build``.

    ``build`` makes the layers. Where both have an argument, the default of ``build`` counts.
    """

    #: What a count must be at least, where that is not 1.
    least: ClassVar[Mapping[str, int]] = {}
    #: Arguments of the frame that a model does not take.
    without: ClassVar[tuple[str, ...]] = ()
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        known = {**_parameters(cls.frame), **_parameters(cls.build)}
        taken = [known[name] for name in known if name not in cls.without]
        cls.__signature__ = inspect.Signature(sorted(taken, key=lambda each: each.kind))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        bound = self.__signature__.bind(*args, **options)
        bound.apply_defaults()
        self.config = given(bound.arguments)
        self._check()
        for part in (self.frame, self.build):
            part(**{name: self.config[name] for name in _parameters(part) if name in self.config})

    def frame(self, *args: Any, **options: Any) -> None:
        """Make what models of one kind have in common, before their layers."""

    def build(self, *args: Any, **options: Any) -> None:
        """Make the layers from the settings that only this model has."""

    def _check(self) -> None:
        """Refuse arguments that make no model. What may be left out may be None."""
        known = self.__signature__.parameters
        there = {
            name: value
            for name, value in self.config.items()
            if value is not None or known[name].default is not None
        }
        for name in there:
            if name in _COUNTS:
                check_counts(there, name, least=self.least.get(name, 1))
            elif name in _RATES:
                check_rates(there, name)
            elif name in _NUMBERS:
                check_numbers(there, name)
            elif name == "self_loops":
                check_flags(there, name)
            if name in _BOUNDS and there[name] <= _BOUNDS[name]:
                raise ConfigError(f"{name}={there[name]} must be larger than {_BOUNDS[name]:g}.")


def _parameters(method: Callable[..., None]) -> dict[str, inspect.Parameter]:
    """A method's named arguments; those without a name stand for none."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    every = inspect.signature(method).parameters
    return {name: each for name, each in every.items() if name != "self" and each.kind in named}
