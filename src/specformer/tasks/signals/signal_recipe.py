r"""Settings of the filter-learning task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from specformer.baselines import BASELINES, signal_baseline
from specformer.errors import ConfigError, check_known
from specformer.nn import Specformer
from specformer.tasks.recipes.book import shipped
from specformer.tasks.recipes.settings import build, override, read_settings, refuse_idle
from specformer.training.optim.schedule import Schedule

#: The models of Table 1, in the paper's order.
MODELS = ("gcn", "gat", "chebnet", "gprgnn", "bernnet", "jacobiconv", "specformer")

#: Specformer's alone, and what serves node classification alone.
_OURS = ("model", "landmarks", "solve_readout")
_FILTERS = ("schedule.filter_learning_rate", "schedule.filter_weight_decay")


@dataclass(frozen=True)
class FilterModel:
    """Specformer's own settings in this task; all else is linear and unregularised."""

    hidden_channels: int = 16
    num_blocks: int = 1
    epsilon: float = 100.0
    init_std: float | None = None

    def __post_init__(self) -> None:
        if self.num_blocks < 1:
            raise ConfigError(f"num_blocks={self.num_blocks} must be at least 1.")
        if self.init_std is not None and not self.init_std > 0:
            raise ConfigError(f"init_std={self.init_std} must be positive, or empty.")


@dataclass(frozen=True)
class SignalRecipe:
    """How to learn filters.

    Args:
        description: one sentence for tables and reports.
        model: Specformer's settings.
        schedule: epochs, patience, rates.
        landmarks: attention keys while training; None for exact attention.
        solve_readout: see :mod:`specformer.training.loops.signals`.
    """

    description: str = ""
    model: FilterModel = field(default_factory=FilterModel)
    schedule: Schedule = field(default_factory=Schedule)
    landmarks: int | None = None
    solve_readout: bool = False

    def __post_init__(self) -> None:
        if self.landmarks is not None and self.landmarks < 1:
            raise ConfigError(f"landmarks={self.landmarks} must be at least 1, or empty.")


def recipe_settings() -> dict[str, dict[str, Any]]:
    """The recipes as written in ``recipes/filters.yaml``."""
    return shipped("filters.yaml")


def signal_recipe(name: str, assignments: Sequence[str] = ()) -> SignalRecipe:
    """The recipe of that name, or in that ``.yaml`` file, with ``key=value`` changes.

    Example:
        >>> signal_recipe("paper", ["schedule.epochs=10"]).schedule.epochs
        10
    """
    known = recipe_settings()
    if name.endswith(".yaml"):
        known[name] = read_settings(Path(name))
    check_known("recipe", known, name)
    settings: Mapping[str, Any] = override(known[name], assignments)
    return build(SignalRecipe, settings, f"recipe {name}")


def refuse_idle_settings(model: str, assignments: Sequence[str]) -> None:
    """Refuse changes of a recipe that one model's training has no use for."""
    refuse_idle(assignments, _FILTERS, "all weights of a filter learn at one rate")
    if model != "specformer":
        refuse_idle(assignments, _OURS, f"it is specformer's, and {model} has a fixed size")


def signal_model(name: str, recipe: SignalRecipe) -> nn.Module:
    """A fresh model of that name for one-channel signals, about 2,000 parameters."""
    if name == "specformer":
        settings = recipe.model
        return Specformer(
            1,
            settings.hidden_channels,
            1,
            num_layers=1,
            num_heads=1,
            sharing="small",
            num_blocks=settings.num_blocks,
            space="hidden",
            bias=False,
            epsilon=settings.epsilon,
            transformer_dropout=0.0,
            feature_dropout=0.0,
            propagation_dropout=0.0,
            init_std=settings.init_std,
        )
    if name in BASELINES:
        return signal_baseline(name)
    raise ConfigError(f"unknown model {name!r}; choose from {', '.join(MODELS)}.")
