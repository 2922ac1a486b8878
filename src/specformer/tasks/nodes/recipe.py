r"""Settings of node classification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn

from specformer.baselines import BASELINES, NodeBaseline, node_baseline
from specformer.datasets.feature_columns import How
from specformer.datasets.features import Features
from specformer.datasets.splits import settled_protocol
from specformer.errors import ConfigError, check_known
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.tasks.recipes.book import RecipeBook
from specformer.tasks.recipes.settings import build, merged, override, refuse_idle
from specformer.training.engine.precision import Precision
from specformer.training.loops.nodes import Monitor
from specformer.training.optim.schedule import Schedule

#: Models for node classification, ours first.
NODE_MODELS = ("specformer", *BASELINES)
_BOOK = RecipeBook("nodes.yaml")
#: Specformer's alone: itself, and what it needs of a spectrum, of eigenpairs and without them.
_PAIRS, _DENSITY = ("k", "vectors", "landmarks"), ("degree", "batch_size")
_OURS = ("model", "spectrum", "storage", *_PAIRS, *_DENSITY)
#: For models with a filter of their own.
_FILTERS = ("schedule.filter_learning_rate", "schedule.filter_weight_decay")


@dataclass(frozen=True)
class NodeModel:
    """Specformer's settings; the defaults are those of :class:`specformer.Specformer` itself."""

    hidden_channels: int = 32
    num_layers: int = 2
    num_heads: int = 4
    sharing: Literal["small", "medium", "large"] = "medium"
    num_blocks: int = 1
    space: Literal["output", "hidden", "input"] = "output"
    feature_layers: Literal[1, 2] = 2
    second_dropout: Literal["inside", "after"] = "inside"
    decoder: Literal["joint", "heads"] = "joint"
    epsilon: float = 100.0
    encoding: bool = True
    attention: bool = True
    transform: bool = False
    norm: Literal["batch", "layer"] | None = None
    activation: Literal["relu", "gelu", "tanh"] | None = None
    residual: bool = False
    transformer_dropout: float = 0.1
    feature_dropout: float = 0.5
    propagation_dropout: float = 0.2
    init_std: float | None = None


@dataclass(frozen=True)
class NodeRecipe:
    """How to classify nodes.

    Args:
        description: one sentence for tables and reports.
        model: Specformer's settings.
        baseline: the others'.
        schedule: epochs, patience, rates.
        monitor: ``"loss"`` or ``"accuracy"``: what stops a run and picks its model.
        precision: of float32 products on a GPU, see :mod:`specformer.training.engine.precision`.
        split: a protocol of :mod:`specformer.datasets.splits`; ``"auto"`` takes the one in a file
            of one's own, and else draws it.
        features: ``"rows"`` divides each node's features by their sum, ``"none"`` leaves them,
            ``"standard"`` and ``"auto"`` prepare each column
            (:class:`specformer.datasets.FeaturePreparation`).
        columns: what these do with some columns, by name.
        spectrum: ``"decomposed"`` into eigenpairs, or its ``"density"`` alone, with filters as
            interpolants (:func:`specformer.approximate`).
        k: how many eigenpairs, as in :func:`specformer.decompose`.
        vectors: ``"resident"`` on the device, ``"streamed"`` to it from a file or the host's memory
            (:meth:`specformer.Spectrum.streamed`), or ``"auto"``: streamed where they would take
            more than half of a GPU's free memory.
        degree: of the interpolants, where there are no eigenpairs.
        batch_size: nodes in a training step, where filters act on the input without a decomposition
            (:func:`specformer.training.loops.node_batches.fit_node_batches`); None for all nodes.
        storage: precision in which eigenvectors, or what batches are made of, are kept; ``"auto"``
            is bfloat16 for resident eigenvectors that ``precision`` reads so anyway, else float32.
        landmarks: how many points of the spectrum stand for it in Specformer's attention while
            training; None for all, ``"auto"`` for 512 where more than 2,048 eigenvalues differ.
            What that changed is recorded as ``landmark_error``.
    """

    description: str = ""
    model: NodeModel = field(default_factory=NodeModel)
    baseline: NodeBaseline = field(default_factory=NodeBaseline)
    schedule: Schedule = field(default_factory=Schedule)
    monitor: Monitor = "loss"
    precision: Precision = "medium"
    split: str = "random-60-20-20"
    features: Features = "rows"
    columns: dict[str, How] = field(default_factory=dict)
    spectrum: Literal["decomposed", "density"] = "decomposed"
    k: int | list[int] | None = None
    vectors: Literal["auto", "resident", "streamed"] = "auto"
    degree: int = 128
    batch_size: int | None = None
    storage: Literal["auto", "float32", "bfloat16"] = "auto"
    landmarks: int | Literal["auto"] | None = "auto"

    def __post_init__(self) -> None:
        if self.columns and self.features in ("rows", "none"):
            name = next(iter(self.columns))
            raise ConfigError(f"columns.{name} needs features=auto or features=standard.")
        if self.batch_size is None:
            return
        if self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size} must be at least 1, or empty.")
        if self.spectrum != "density":
            raise ConfigError(
                f"batch_size={self.batch_size} needs spectrum=density: with eigenpairs every step "
                "takes all nodes."
            )

    def settled(self, graph: Graph) -> NodeRecipe:
        """The recipe with what the graph decides."""
        return replace(self, split=settled_protocol(graph, self.split))

    @property
    def spectrum_key(self) -> str:
        """Recipes of one key ask for the same spectrum of a graph."""
        if self.spectrum == "density":
            return f"density {self.degree}"
        return f"pairs {self.k} {self.vectors} {self.storage} {self.precision}"

    @property
    def pairs(self) -> Any:
        """``k`` as :func:`specformer.decompose` takes it."""
        return tuple(self.k) if isinstance(self.k, list) else self.k

    @property
    def stored(self) -> torch.dtype:
        """``storage`` as PyTorch names it, where nothing about the spectrum is known."""
        return torch.bfloat16 if self.storage == "bfloat16" else torch.float32


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
    written = _BOOK.written
    default = merged(written["default"], written["sets"].get(dataset, {}))
    chosen, settings = _BOOK.settings(name, dataset, model, default)
    return chosen, build(NodeRecipe, override(settings, assignments), f"recipe {chosen}")


def refuse_idle_settings(model: str, recipe: NodeRecipe, assignments: Sequence[str]) -> None:
    """Refuse changes of a recipe that one model's training has no use for."""
    if model != "specformer":
        refuse_idle(assignments, _OURS, f"{model} has its own settings in baseline.…")
        if not hasattr(BASELINES[model], "filter_parameters"):
            refuse_idle(assignments, _FILTERS, f"{model} has no filter of its own to learn")
        return
    refuse_idle(assignments, ["baseline"], "specformer has its own settings in model.…")
    if recipe.spectrum == "density":
        refuse_idle(assignments, _PAIRS, "spectrum=density does without eigenpairs")
    else:
        refuse_idle(assignments, _DENSITY, "it needs spectrum=density")


def recipes_for(dataset: str, model: str) -> list[str]:
    """The named recipes of a model on a data set, or ``default`` where it has none.

    Example:
        >>> recipes_for("cora", "mlp")
        ['default']
    """
    return _BOOK.names(dataset, model)


def node_model(name: str, recipe: NodeRecipe, in_channels: int, out_channels: int) -> nn.Module:
    """A fresh model of that name."""
    if name == "specformer":
        options = asdict(recipe.model)
        return Specformer(in_channels, options.pop("hidden_channels"), out_channels, **options)
    check_known("model", NODE_MODELS, name)
    return node_baseline(name, recipe.baseline, in_channels, out_channels)
