r"""Settings of learning on the nodes of one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from specformer.baselines import BASELINES, NodeBaseline, node_baseline
from specformer.datasets.feature_columns import How
from specformer.datasets.features import Features
from specformer.datasets.registry import NODE_SETS
from specformer.datasets.splits import settled_protocol
from specformer.errors import ConfigError, check_known
from specformer.graphs import Graph
from specformer.graphs.node_targets import TargetKind, are_labels
from specformer.nn import Specformer
from specformer.nn.argument_checks import idle_argument
from specformer.tasks.recipes.settings import (
    NAMED,
    RecipeBook,
    build,
    merged,
    override,
    read_settings,
    refuse_idle,
)
from specformer.training.evaluation.graph_metrics import Loss, Targets
from specformer.training.loops.nodes import Monitor
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.environment import Precision

#: Models for nodes, ours first.
NODE_MODELS = ("specformer", *BASELINES)
_BOOK = RecipeBook("nodes.yaml")
#: Settings of Specformer alone: of eigenpairs, of a density, and all of them.
_PAIRS, _DENSITY = ("k", "vectors", "landmarks"), ("degree", "batch_size")
OURS = ("model", "form", "forms", "spectrum", "loops", "storage", *_PAIRS, *_DENSITY)
#: For models with a filter of their own.
_FILTERS = ("schedule.filter_learning_rate", "schedule.filter_weight_decay")

#: Splits that forms are compared on.
_TRIED_SPLITS = 3
#: Products with entries of U in an epoch of a deep form: on a CPU, more than the first take a tenth
#: of a second, and one split has to do; more than the second take too long to be tried unasked.
_QUICK_ON_CPU, _MOST_ON_CPU = 2**27, 2**30


_NUMBERS = Targets("numbers", ("mse", "l1"), ("rmse", "mae", "r2"))
_TWO_CLASSES = Targets("two classes", ("ce",), ("accuracy", "f1", "rocauc", "ap"))
_CLASSES = Targets("more than two classes", ("ce",), ("accuracy", "f1"))
_LABELS = Targets("several labels of a node", ("bce",), ("rocauc", "ap", "accuracy"))


@dataclass(frozen=True)
class NodeModel:
    """Specformer's settings; the defaults are those of :class:`specformer.Specformer` itself."""

    hidden_channels: int = 32
    num_layers: int = 2
    num_heads: int = 4
    sharing: Literal["small", "medium", "large"] = "medium"
    form: Literal["paper", "deep"] = "paper"
    local: bool = True
    skip: bool = True
    linear_last: bool = False
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
class Form:
    """Settings of the model and of its training that a recipe offers under one name."""

    model: NodeModel
    schedule: Schedule
    monitor: Monitor
    features: Features = "auto"
    loops: bool = False


@dataclass(frozen=True)
class NodeRecipe:
    """How to learn classes, labels or numbers of nodes.

    Args:
        description: one sentence for tables and reports.
        model: Specformer's settings.
        form: the name of one of ``forms``, or ``"auto"`` for the one that validates best.
        forms: the forms to choose from; without any, ``model`` and ``schedule`` are taken.
        baseline: the other models' settings.
        schedule: epochs, patience, rates.
        task: None to decide by the labels (:mod:`specformer.graphs.node_targets`).
        loss: None for cross-entropy of classes, binary cross-entropy of several labels, and the
            squared error of numbers, or the absolute one where that is the metric.
        metric: None for accuracy of classes, ROC-AUC of several labels, and RMSE of numbers.
        monitor: ``"loss"`` or ``"metric"``: what stops a run and picks its model. ``"accuracy"`` is
            the older name of ``"metric"``.
        precision: of float32 products on a GPU, see :mod:`specformer.training.runs.environment`.
        split: a protocol of :mod:`specformer.datasets.splits`; ``"auto"`` takes the split in the
            file, or else draws one, class by class unless it is a named set.
        features: ``"rows"`` divides each node's features by their sum, ``"none"`` leaves them,
            ``"standard"``, ``"auto"`` and ``"counts"`` prepare each column
            (:class:`specformer.datasets.FeaturePreparation`).
        columns: what these do with some columns, by name.
        spectrum: ``"decomposed"`` into eigenpairs, or its ``"density"`` alone, with filters as
            interpolants (:func:`specformer.approximate`).
        loops: whether the spectrum is that of the graph with a loop at each node, as GCN's is.
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
            The difference it makes is recorded as ``landmark_error``.
    """

    description: str = ""
    model: NodeModel = field(default_factory=NodeModel)
    form: str = "auto"
    forms: dict[str, Form] = field(default_factory=dict)
    baseline: NodeBaseline = field(default_factory=NodeBaseline)
    schedule: Schedule = field(default_factory=Schedule)
    task: TargetKind | None = None
    loss: Loss | None = None
    metric: str | None = None
    monitor: Monitor = "loss"
    precision: Precision = "medium"
    split: str = "random-60-20-20"
    features: Features = "rows"
    columns: dict[str, How] = field(default_factory=dict)
    spectrum: Literal["decomposed", "density"] = "decomposed"
    loops: bool = False
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
        if isinstance(self.landmarks, int) and self.landmarks < 2:
            raise ConfigError(f"landmarks={self.landmarks} must be at least 2, auto, or empty.")
        if self.batch_size is None:
            return
        if self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size} must be at least 1, or empty.")
        if self.spectrum != "density":
            raise ConfigError(
                f"batch_size={self.batch_size} needs spectrum=density: with eigenpairs every step "
                "takes all nodes."
            )

    def taking(self, name: str) -> NodeRecipe:
        """The recipe with one of its forms, and no choice left."""
        check_known("form", self.forms, name)
        return replace(self, **vars(self.forms[name]), form=name, forms={})

    def tried(self, entries: int, device: torch.device) -> tuple[list[str], int]:
        """The forms to compare where U has so many entries, and on how many splits.

        On a CPU there are fewer of both where they take long.
        """
        products = dict.fromkeys(self.forms, 0)
        if device.type == "cpu":
            for name, form in self.forms.items():
                if form.model.form == "deep":
                    width = form.model.num_layers * form.model.hidden_channels
                    products[name] = entries * width
        names = [name for name, count in products.items() if count <= _MOST_ON_CPU]
        names = names or sorted(products, key=products.__getitem__)[:1]
        quick = all(products[name] <= _QUICK_ON_CPU for name in names)
        return names, _TRIED_SPLITS if quick else 1

    def settled(self, graph: Graph) -> NodeRecipe:
        """The recipe with task, loss, metric and split chosen for this graph, and checked."""
        kind = _TWO_CLASSES if graph.num_classes == 2 else _CLASSES
        if graph.num_targets:  # which `with_targets` has prepared
            assert graph.y is not None
            labels = self.task == "classification" or (self.task is None and are_labels(graph.y))
            kind = _LABELS if labels else _NUMBERS
        loss, metric = kind.judged(graph.name, self.loss, self.metric)
        task: TargetKind = "regression" if kind is _NUMBERS else "classification"
        split = settled_protocol(graph, self.split, named=graph.name in NODE_SETS)
        return replace(self, task=task, loss=loss, metric=metric, split=split)

    @property
    def spectrum_key(self) -> str:
        """Recipes with the same key take the same spectrum of a graph."""
        if self.spectrum == "density":
            return f"density {self.degree} {self.loops}"
        return f"pairs {self.k} {self.loops} {self.vectors} {self.storage} {self.precision}"

    @property
    def pairs(self) -> Any:
        """``k`` as :func:`specformer.decompose` takes it."""
        return tuple(self.k) if isinstance(self.k, list) else self.k

    @property
    def stored(self) -> torch.dtype:
        """``storage`` as PyTorch names it, where nothing about the spectrum is known."""
        return torch.bfloat16 if self.storage == "bfloat16" else torch.float32


def node_recipe(
    name: str | None,
    dataset: str,
    assignments: Sequence[str] = (),
    model: str = "specformer",
    given: Mapping[str, Any] | None = None,
) -> tuple[str, NodeRecipe]:
    """The recipe's name and itself, with what is given and then with ``key=value`` changes.

    A name that ends in ``.yaml`` is a file, such as one that ``specformer tune`` wrote. Without a
    name, ``paper`` for Specformer on the data sets the paper has, else ``default``: the paper
    states no other model's settings beyond their widths.
    """
    written = _BOOK.written
    default = merged(written["default"], written["sets"].get(dataset, {}))
    chosen, settings = _BOOK.settings(name, dataset, model, default)
    changes = settings.pop("forms", {})
    if chosen.endswith(".yaml"):  # a run's own forms, not those of `default` beneath it
        changes = read_settings(Path(chosen)).get("forms", {})
    settings = merged(settings, given or {})
    refuse_idle(assignments, ["forms"], "forms are written in a recipe's file; form=NAME takes one")
    recipe = build(NodeRecipe, override(settings, assignments), f"recipe {chosen}")
    if model != "specformer":
        return chosen, recipe
    if not changes or chosen in NAMED:
        refuse_idle(assignments, ["form"], f"recipe {chosen} has no forms to choose from")
        return chosen, recipe
    forms = _forms(settings, changes, assignments)
    if recipe.form in changes and recipe.form not in forms:
        others = ", ".join(each for each in assignments if each.startswith("model."))
        raise ConfigError(f"form={recipe.form} does not go with {others}.")
    recipe = replace(recipe, forms=forms)
    only = next(iter(forms)) if len(forms) == 1 else recipe.form
    return chosen, recipe if only == "auto" else recipe.taking(only)


def _forms(
    settings: Mapping[str, Any], changes: Mapping[str, Any], assignments: Sequence[str]
) -> dict[str, Form]:
    """The forms of a recipe that go with the assignments."""
    forms = {}
    for name, change in changes.items():
        before = build(NodeRecipe, merged(settings, change), f"form {name}").model.form
        own = override(merged(settings, change), assignments)
        made = build(NodeRecipe, own, f"form {name}")
        if made.model.form == before and idle_argument(asdict(made.model)) is None:
            forms[name] = Form(made.model, made.schedule, made.monitor, made.features, made.loops)
    return forms


def refuse_idle_settings(model: str, recipe: NodeRecipe, assignments: Sequence[str]) -> None:
    """Refuse changes of a recipe that do not apply to a model."""
    if model != "specformer":
        refuse_idle(assignments, OURS, f"{model} has its own settings, baseline.NAME")
        if not hasattr(BASELINES[model], "filter_parameters"):
            refuse_idle(assignments, _FILTERS, f"{model} has no filter of its own to learn")
        return
    refuse_idle(assignments, ["baseline"], "specformer has its own settings, model.NAME")
    if recipe.spectrum == "density":
        refuse_idle(assignments, _PAIRS, "spectrum=density does without eigenpairs")
        if recipe.batch_size is None:
            refuse_idle(assignments, ["storage"], "neither eigenpairs nor batches are kept")
    else:
        refuse_idle(assignments, _DENSITY, "it needs spectrum=density")


def recipes_for(dataset: str, model: str) -> list[str]:
    """The named recipes of a model on a data set, or ``default`` where it has none."""
    return _BOOK.names(dataset, model)


def node_model(name: str, recipe: NodeRecipe, in_channels: int, out_channels: int) -> nn.Module:
    """A fresh model of that name."""
    if name == "specformer":
        options = asdict(recipe.model)
        return Specformer(in_channels, options.pop("hidden_channels"), out_channels, **options)
    check_known("model", NODE_MODELS, name)
    return node_baseline(name, recipe.baseline, in_channels, out_channels)
