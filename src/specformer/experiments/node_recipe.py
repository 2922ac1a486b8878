r"""Settings of node classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from torch import nn

from specformer.baselines import BASELINES
from specformer.errors import ConfigError
from specformer.nn import Specformer
from specformer.training.node_loop import Monitor
from specformer.training.precision import Precision
from specformer.training.recipe import build, override
from specformer.training.schedule import Schedule

#: Models for node classification, ours first.
NODE_MODELS = ("specformer", *BASELINES)
#: Recipes by data set: the paper's settings, and those that did best on validation nodes.
NAMED = ("paper", "best")


@dataclass(frozen=True)
class NodeModel:
    """Specformer's settings, see :class:`specformer.Specformer`."""

    hidden_channels: int = 32
    num_layers: int = 2
    num_heads: int = 4
    sharing: Literal["small", "medium", "large"] = "medium"
    num_blocks: int = 1
    space: Literal["output", "hidden"] = "output"
    feature_layers: Literal[1, 2] = 2
    second_dropout: Literal["inside", "after"] = "inside"
    decoder: Literal["joint", "heads"] = "joint"
    filter_activation: Literal["relu", "gelu", "tanh"] | None = None
    epsilon: float = 100.0
    transform: bool = False
    norm: Literal["batch", "layer"] | None = None
    activation: Literal["relu", "gelu", "tanh"] | None = None
    residual: bool = False
    transformer_dropout: float = 0.0
    feature_dropout: float = 0.0
    propagation_dropout: float = 0.0
    init_std: float | None = None


@dataclass(frozen=True)
class NodeBaseline:
    """What baselines take; the paper gives Transformers half the width."""

    hidden_channels: int = 64
    transformer_channels: int = 32
    dropout: float = 0.5


@dataclass(frozen=True)
class NodeRecipe:
    """How to classify nodes.

    Args:
        description: one sentence for tables and reports.
        model: Specformer's settings.
        baseline: the others'.
        schedule: epochs, patience, rates.
        monitor: ``"loss"`` or ``"accuracy"``: what stops a run and picks its model.
        precision: of float32 products on a GPU, see :mod:`specformer.training.precision`.
        split: a protocol of :mod:`specformer.datasets.splits`.
        features: ``"rows"`` divides each node's features by their sum, ``"none"`` leaves them.
        k: how many eigenpairs, as in :func:`specformer.decompose`.
        landmarks: Specformer's attention keys while training; None for all distinct eigenvalues.
    """

    description: str = ""
    model: NodeModel = field(default_factory=NodeModel)
    baseline: NodeBaseline = field(default_factory=NodeBaseline)
    schedule: Schedule = field(default_factory=Schedule)
    monitor: Monitor = "loss"
    precision: Precision = "medium"
    split: str = "random-60-20-20"
    features: Literal["rows", "none"] = "rows"
    k: int | list[int] | None = None
    landmarks: int | None = None


def node_recipe(
    name: str | None, dataset: str, assignments: Sequence[str] = (), model: str = "specformer"
) -> tuple[str, NodeRecipe]:
    """The recipe's name and itself, with ``key=value`` changes.

    A name that ends in ``.yaml`` is a file, such as one that ``specformer tune`` wrote. Without a
    name, ``paper`` for Specformer on the data sets the paper has, else ``default``: the paper
    states no other model's settings beyond their widths.

    Example:
        >>> node_recipe(None, "cora")[1].schedule.learning_rate
        0.0002
    """
    written = _written()
    default = _merged(written["default"], written["sets"].get(dataset, {}))
    chosen = name or ("paper" if _has("paper", dataset, model) else "default")
    if chosen.endswith(".yaml"):
        settings = _merged(default, _read_file(Path(chosen)))
    elif chosen == "default":
        settings = default
    elif chosen not in NAMED:
        names = ", ".join([*NAMED, "default"])
        raise ConfigError(f"unknown recipe {chosen!r}; choose from {names}, or name a .yaml file.")
    elif not _has(chosen, dataset, model):
        raise ConfigError(
            f"there is no recipe {chosen} of {model} for {dataset}, only for "
            f"{', '.join(written[chosen].get(model, {})) or 'no set'}. Use --recipe default."
        )
    else:
        settings = _merged(default, written[chosen][model][dataset])
    return chosen, build(NodeRecipe, override(settings, assignments), f"recipe {chosen}")


def recipes_for(dataset: str, model: str) -> list[str]:
    """The named recipes of a model on a data set, or ``default`` where it has none.

    Example:
        >>> recipes_for("cora", "graphormer")
        ['default']
    """
    return [name for name in NAMED if _has(name, dataset, model)] or ["default"]


def _has(name: str, dataset: str, model: str) -> bool:
    return dataset in _written().get(name, {}).get(model, {})


@cache
def _written() -> dict[str, Any]:
    text = resources.files("specformer.experiments") / "recipes" / "nodes.yaml"
    content: dict[str, Any] = yaml.safe_load(text.read_text(encoding="utf-8"))
    return content


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a recipe should hold settings, not {content!r}.")
    return content


def node_model(name: str, recipe: NodeRecipe, in_channels: int, out_channels: int) -> nn.Module:
    """A fresh model of that name."""
    if name == "specformer":
        options = asdict(recipe.model)
        return Specformer(in_channels, options.pop("hidden_channels"), out_channels, **options)
    if name not in BASELINES:
        raise ConfigError(f"unknown model {name!r}; choose from {', '.join(NODE_MODELS)}.")
    settings = recipe.baseline
    wide = name not in ("transformer", "graphormer")
    return BASELINES[name](
        in_channels,
        settings.hidden_channels if wide else settings.transformer_channels,
        out_channels,
        dropout=settings.dropout,
    )


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        inner = merged.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            merged[key] = {**inner, **value}
        else:
            merged[key] = value
    return merged
