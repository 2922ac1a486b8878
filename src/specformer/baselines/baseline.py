r"""What all baselines share: how a model gets its arguments, checks them and remembers them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from specformer.errors import ConfigError
from specformer.nn.argument_checks import check_counts, check_flags, check_numbers, check_rates
from specformer.nn.pretrained import Pretrained, constructor_arguments

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
        known = {**_parameters(cls, "frame"), **_parameters(cls, "build")}
        taken = [known[name] for name in known if name not in cls.without]
        cls.__signature__ = inspect.Signature(sorted(taken, key=lambda each: each.kind))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        bound = self.__signature__.bind(*args, **options)
        bound.apply_defaults()
        self.config = constructor_arguments(bound.arguments)
        self._check()
        for method in ("frame", "build"):
            taken = [name for name in _parameters(type(self), method) if name in self.config]
            getattr(self, method)(**{name: self.config[name] for name in taken})

    def frame(self, *args: Any, **options: Any) -> None:
        """Make what models of one kind have in common, before their layers."""

    def build(self, *args: Any, **options: Any) -> None:
        """Make the layers from the settings that only this model has."""

    def _check(self) -> None:
        """Refuse arguments that make no model, by their types. What may be left out may be None."""
        known = self.__signature__.parameters
        there = {
            name: value
            for name, value in self.config.items()
            if value is not None or known[name].default is not None
        }
        for name in there:
            kind = str(known[name].annotation).removesuffix(" | None")
            if kind == "int":
                check_counts(there, name, least=self.least.get(name, 1))
            elif kind == "bool":
                check_flags(there, name)
            elif kind == "float":
                is_rate = name.endswith("dropout") or name == "alpha"
                (check_rates if is_rate else check_numbers)(there, name)
            if name in _BOUNDS and there[name] <= _BOUNDS[name]:
                raise ConfigError(f"{name}={there[name]} must be larger than {_BOUNDS[name]:g}.")


def _parameters(kind: type, method: str) -> dict[str, inspect.Parameter]:
    """The named arguments of a method, and of those that it passes on to with ``**``."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    methods = [vars(each)[method] for each in reversed(kind.__mro__) if method in vars(each)]
    return {
        name: each
        for function in methods
        for name, each in inspect.signature(function).parameters.items()
        if name != "self" and each.kind in named
    }
