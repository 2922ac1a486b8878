r"""Saved models: a folder with ``config.json``, ``model.safetensors`` and ``README.md``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from specformer.errors import ConfigError, RunError
from specformer.files import write_json, write_text
from specformer.files.checked_tensors import read_tensors, write_tensors
from specformer.files.documents import read_json

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
_FORMAT = "pt"  # the usual name for PyTorch in the metadata of safetensors

#: Prefix of the last layer's weights.
LAST = "readout."
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


_Model = TypeVar("_Model", bound="Pretrained")


class Pretrained(nn.Module):
    """A module that stores its constructor arguments, so that it can be saved and loaded."""

    #: All constructor arguments, as values that JSON supports.
    config: dict[str, Any]
    #: Arguments of earlier versions, and the only value that a saved model may have for each.
    retired: ClassVar[Mapping[str, Any]] = {"filter_activation": None}

    def save_pretrained(self, folder: str | Path) -> None:
        """Write configuration, weights and a model card into ``folder``, each file atomically.

        The layout is that of the Hugging Face hub. An existing card is not overwritten.

        A subclass must add its own arguments to ``self.config``. Otherwise saving it is refused,
        because it could not be loaded again.
        """
        folder = Path(folder)
        _check_config(type(self), self.config)
        config = {"model": type(self).__name__, **self.config}
        # Copies, because safetensors refuses tensors that share memory, as shared bases do.
        state = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.state_dict().items()
        }
        write_tensors(folder / WEIGHTS, state, _FORMAT, beside=_canonical(config))
        write_json(folder / CONFIG, config)
        if not (folder / CARD).exists():
            write_text(folder / CARD, model_card(self, config))

    @classmethod
    def from_pretrained(cls, folder: str | Path, **changes: Any) -> Self:
        """Load the model saved in ``folder``, in evaluation mode and in its saved precision.

        Args:
            folder: where :meth:`save_pretrained` wrote the model.
            changes: constructor arguments to replace, such as dropout rates, or ``out_channels``
                for other targets. If the last layer (``readout``) changes its size, it is
                initialised anew. Changes of the size of other weights are refused.
        """
        folder = Path(folder)
        for name in (CONFIG, WEIGHTS):
            if not (folder / name).is_file():
                raise RunError(f"{folder}: no saved model ({name} is missing).")
        try:
            config = read_json(folder / CONFIG)
            saved = config.get("model")
        except (AttributeError, OSError, ValueError) as error:
            raise RunError(f"{folder / CONFIG}: damaged model ({error}).") from error
        if saved != cls.__name__:
            raise RunError(f"{folder}: holds a {saved}, not a {cls.__name__}.")
        state, _ = read_tensors(
            folder / WEIGHTS,
            "model",
            _FORMAT,
            refused=RunError,
            beside=_canonical(config),
            mapped=False,
        )
        try:
            taken = saved_arguments(config, cls.retired)
            _check_sizes(cls, taken, state)
            model = _filled(cls(**taken), state)
        except (ConfigError, TypeError, RuntimeError) as error:
            raise RunError(f"{folder}: weights and {CONFIG} do not match ({error}).") from error
        return (_changed(model, changes) if changes else model).eval()


def constructor_arguments(scope: Mapping[str, Any]) -> dict[str, Any]:
    """A constructor's arguments from its ``locals()``, as values that JSON supports.

    Sequences become lists. NumPy scalars and tensors of one number become Python numbers: a number
    of classes is often one of them.
    """
    return {
        name: _plain(value) for name, value in scope.items() if name not in ("self", "__class__")
    }


def saved_arguments(saved: Mapping[str, Any], retired: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments from a saved configuration, without the retired ones."""
    for name, value in retired.items():
        if saved.get(name, value) != value:
            raise ConfigError(
                f"{name}={saved[name]!r} is no longer supported; train again without it"
            )
    return {name: value for name, value in saved.items() if name not in ("model", *retired)}


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor | np.generic) and value.ndim == 0:
        return value.item()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


#: Sizes up to this one are accepted in a configuration, however few weights there are.
_FEW = 10_000


def _check_sizes(kind: type[nn.Module], taken: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Refuse a configuration that needs far more weights than there are, before it is built.

    A damaged configuration may ask for more memory than there is. Large models are therefore built
    on the meta device first, to compare the shapes of their weights.
    """
    numbers = sum(tensor.numel() for tensor in state.values())
    counts = {name: each for name, each in taken.items() if isinstance(each, int)}
    for name, count in counts.items():
        if count > max(numbers, _FEW):
            raise ConfigError(f"{name}={count} is too large for {numbers:,} weights")
    if max([0, *counts.values()]) ** 2 > max(4 * numbers, _FEW**2 // 100):
        with torch.device("meta"):
            wanted = kind(**taken).state_dict()
        for name, tensor in wanted.items():
            if name not in state or tensor.shape != state[name].shape:
                raise ConfigError(f"{name} should have the shape {list(tensor.shape)}")


def _filled(model: _Model, state: Mapping[str, Tensor]) -> _Model:
    """Load these weights into a model, and convert it to their precision."""
    for name, tensor in model.state_dict().items():
        if name in state and tensor.dtype != state[name].dtype:
            model.to(state[name].dtype)
            break
    model.load_state_dict(state)
    return model


def _changed(model: _Model, changes: Mapping[str, Any]) -> _Model:
    """The model rebuilt with changed arguments and its weights; a resized last layer is new."""
    kind, state = type(model), model.state_dict()
    asked = ", ".join(f"{name}={value!r}" for name, value in changes.items())
    try:
        other = kind(**{**model.config, **changes})
    except TypeError as error:  # no such argument
        raise ConfigError(f"{asked}: {error}.") from error
    fresh = {
        name: tensor
        for name, tensor in other.state_dict().items()
        if name.startswith(LAST) and (name not in state or tensor.shape != state[name].shape)
    }
    state = {**state, **fresh}
    try:
        loaded = _filled(other, state).state_dict()
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip()
        raise ConfigError(
            f"{asked}: only the last layer (readout) may change its size. {reason}"
        ) from error
    for name, tensor in state.items():
        if not torch.equal(loaded[name], tensor):  # several are one parameter now
            raise ConfigError(f"{asked}: the model has no place of its own for {name}.")
    return other


def _check_config(model: type[Pretrained], config: dict[str, Any]) -> None:
    """Refuse a configuration that does not match the constructor's arguments."""
    arguments = inspect.signature(model).parameters
    named = [name for name, each in arguments.items() if each.kind not in _ANY]
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in arguments.values())
    lost = [name for name in named if name not in config]
    if lost:
        raise ConfigError(
            f"{model.__name__} cannot be saved: self.config lacks the argument {lost[0]!r}; add it "
            "after super().__init__(…)."
        )
    foreign = [name for name in config if name not in named]
    if foreign and not takes_any:
        raise ConfigError(
            f"{model.__name__} cannot be saved: self.config has {foreign[0]!r}, which its "
            "constructor does not take; let it take **options and pass them on."
        )


def _canonical(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


_CARD = """\
---
library_name: specformer
tags:
- graph-neural-network
- specformer
---

# {kind}

A model with {count:,} parameters in {dtype}. `model.safetensors` holds its weights,
`config.json` its arguments:

```json
{config}
```

```python
from {module} import {kind}

model = {kind}.from_pretrained("path/to/this/folder")
```
"""
#: Modules that public classes are imported from.
_FRONT = {"Specformer": "specformer", "GraphSpecformer": "specformer"}


def model_card(model: nn.Module, config: Mapping[str, Any]) -> str:
    """A short model card: what the model is, its arguments, and how to load it."""
    kind = type(model)
    parameters = list(model.parameters())
    return _CARD.format(
        kind=kind.__name__,
        count=sum(parameter.numel() for parameter in parameters),
        dtype=str(parameters[0].dtype).removeprefix("torch."),
        config=json.dumps(config, indent=2),
        module=_FRONT.get(kind.__name__, kind.__module__),
    )
