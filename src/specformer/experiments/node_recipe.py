r"""Settings of node classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any, Literal

import yaml
from torch import nn

from specformer.baselines import BASELINES
from specformer.errors import ConfigError
from specformer.nn import Specformer
from specformer.training.recipe import build, override
from specformer.training.schedule import Schedule

#: Models for node classification, ours first.
NODE_MODELS = ("specformer", *BASELINES)


@dataclass(frozen=True)
class NodeModel:
    """Specformer's settings, see :class:`specformer.Specformer`."""

    hidden_channels: int = 32
    num_layers: int = 2
    num_heads: int = 4
    sharing: Literal["small", "medium", "large"] = "medium"
    num_blocks: int = 1
    space: Literal["output", "hidden"] = "output"
    decoder: Literal["joint", "heads"] = "joint"
    filter_activation: Literal["relu", "gelu", "tanh"] | None = None
    epsilon: float = 100.0
    transform: bool = False
    norm: Literal["layer"] | None = None
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
        split: a protocol of :mod:`specformer.datasets.splits`.
        features: ``"rows"`` divides each node's features by their sum, ``"none"`` leaves them.
        k: how many eigenpairs, as in :func:`specformer.decompose`.
    """

    description: str = ""
    model: NodeModel = field(default_factory=NodeModel)
    baseline: NodeBaseline = field(default_factory=NodeBaseline)
    schedule: Schedule = field(default_factory=Schedule)
    split: str = "random-60-20-20"
    features: Literal["rows", "none"] = "rows"
    k: int | list[int] | None = None


def node_recipe(
    name: str | None, dataset: str, assignments: Sequence[str] = (), model: str = "specformer"
) -> tuple[str, NodeRecipe]:
    """The recipe's name and itself, with ``key=value`` changes.

    Without a name, ``paper`` for Specformer on the data sets the paper has, else ``default``: the
    paper states no other model's settings beyond their widths.

    Example:
        >>> node_recipe(None, "cora")[1].schedule.learning_rate
        0.0002
    """
    text = resources.files("specformer.experiments") / "recipes" / "nodes.yaml"
    written = yaml.safe_load(text.read_text(encoding="utf-8"))
    default, special = written["default"], written["paper"]
    chosen = name or ("paper" if dataset in special and model == "specformer" else "default")
    if chosen == "paper" and dataset not in special:
        raise ConfigError(
            f"the paper has no recipe for {dataset}; its sets are {', '.join(special)}. "
            "Use --recipe default."
        )
    if chosen not in ("paper", "default"):
        raise ConfigError(f"unknown recipe {chosen!r}; choose paper or default.")
    settings = _merged(default, special[dataset]) if chosen == "paper" else default
    return chosen, build(NodeRecipe, override(settings, assignments), f"recipe {chosen}")


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
