r"""Base class of all baselines: it collects, checks and stores constructor arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from specformer.nn.argument_checks import check_arguments
from specformer.nn.pretrained import Pretrained, constructor_arguments


class Baseline(Pretrained):
    """A model whose constructor takes the arguments of ``build_shared`` and of ``build``.

    ``build_shared`` belongs to a family of models, ``build`` to one model. If both have an
    argument, the default of ``build`` is used.
    """

    #: Smallest value of a count, if it is not 1.
    lowest: ClassVar[Mapping[str, int]] = {}
    #: Arguments of ``build_shared`` that a model does not take.
    excluded: ClassVar[tuple[str, ...]] = ()
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        known = {**_parameters(cls, "build_shared"), **_parameters(cls, "build")}
        taken = [known[name] for name in known if name not in cls.excluded]
        cls.__signature__ = inspect.Signature(sorted(taken, key=lambda each: each.kind))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        bound = self.__signature__.bind(*args, **options)
        bound.apply_defaults()
        self.config = constructor_arguments(bound.arguments)
        check_arguments(type(self), self.config, **self.lowest)
        for method in ("build_shared", "build"):
            taken = [name for name in _parameters(type(self), method) if name in self.config]
            getattr(self, method)(**{name: self.config[name] for name in taken})

    def build_shared(self, *args: Any, **options: Any) -> None:
        """Build what all models of a family have, before :meth:`build`."""

    def build(self, *args: Any, **options: Any) -> None:
        """Build the layers of this model from its own arguments."""


def _parameters(kind: type, method: str) -> dict[str, inspect.Parameter]:
    """The named arguments of a method of a class and of its base classes."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    methods = [vars(each)[method] for each in reversed(kind.__mro__) if method in vars(each)]
    return {
        name: each
        for function in methods
        for name, each in inspect.signature(function, eval_str=True).parameters.items()
        if name != "self" and each.kind in named
    }
