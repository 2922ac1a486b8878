r"""Settings of node classification."""

from __future__ import annotations

from collections.abc import Sequence
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
from specformer.training.recipe import build, merged, override, read_settings
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
        spectrum: ``"decomposed"`` into eigenpairs, or its ``"density"`` alone, with filters as
            interpolants (:func:`specformer.approximate`).
        k: how many eigenpairs, as in :func:`specformer.decompose`.
        degree: of the interpolants, where there are no eigenpairs.
        landmarks: how many points of the spectrum stand for it in Specformer's attention while
            training; None for all. What that changed is recorded as ``landmark_error``.
    """

    description: str = ""
    model: NodeModel = field(default_factory=NodeModel)
    baseline: NodeBaseline = field(default_factory=NodeBaseline)
    schedule: Schedule = field(default_factory=Schedule)
    monitor: Monitor = "loss"
    precision: Precision = "medium"
    split: str = "random-60-20-20"
    features: Literal["rows", "none"] = "rows"
    spectrum: Literal["decomposed", "density"] = "decomposed"
    k: int | list[int] | None = None
    degree: int = 128
    landmarks: int | None = None

    @property
    def spectrum_key(self) -> str:
        """Recipes of one key ask for the same spectrum of a graph."""
        return f"density {self.degree}" if self.spectrum == "density" else f"pairs {self.k}"


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
    default = merged(written["default"], written["sets"].get(dataset, {}))
    chosen = name or ("paper" if _has("paper", dataset, model) else "default")
    if chosen.endswith(".yaml"):
        settings = merged(default, read_settings(Path(chosen)))
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
        settings = merged(default, written[chosen][model][dataset])
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
