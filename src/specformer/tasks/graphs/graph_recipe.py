r"""Settings of learning from many small graphs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from specformer.baselines.graphs import GRAPH_BASELINES
from specformer.datasets import GRAPH_SETS
from specformer.datasets.molecule_splits import settled_graph_protocol
from specformer.errors import ConfigError, check_known
from specformer.graphs import GraphSet
from specformer.graphs.node_targets import TargetKind
from specformer.nn.argument_checks import check_arguments
from specformer.tasks.recipes.settings import START, RecipeBook, build, merged, override
from specformer.training.evaluation.graph_metrics import Loss, Targets
from specformer.training.evaluation.graphs import GraphMonitor, GraphPrecision
from specformer.training.optim.schedule import GraphSchedule

logger = logging.getLogger(__name__)

_BOOK = RecipeBook("molecules.yaml")
#: The name of :class:`~specformer.baselines.graphs.FragmentForest`, no model of the paper's.
FOREST = "forest"
#: Targets that a notice names.
_NAMED = 8


_NUMBERS = Targets("numbers", ("l1", "mse"), ("rmse", "mae", "r2"))
_TWO_CLASSES = Targets("two classes", ("bce",), ("rocauc", "ap", "accuracy", "f1"))
_CLASSES = Targets("more than two classes", ("ce",), ("accuracy", "f1"))


@dataclass(frozen=True)
class GraphModel:
    """Specformer's settings, see :class:`specformer.GraphSpecformer`."""

    hidden_channels: int = 64
    num_layers: int = 4
    num_heads: int = 4
    sharing: Literal["small", "medium", "large"] = "small"
    form: Literal["paper", "pairs"] = "paper"
    max_ring: int = 0
    pooling: Literal["mean", "sum", "max"] = "mean"
    num_blocks: int = 1
    decoder: Literal["joint", "heads"] = "joint"
    epsilon: float = 100.0
    encoding: bool = True
    attention: bool = True
    bases_norm: Literal["batch"] | None = None
    bases_activation: Literal["relu", "gelu", "tanh"] | None = None
    normalise_bases: Literal["softmax"] | None = None
    transformer_dropout: float = 0.0
    feature_dropout: float = 0.0
    propagation_dropout: float = 0.0
    fingerprint: int = 0
    fingerprint_dropout: float = 0.0
    init_std: float | None = None


@dataclass(frozen=True)
class BaselineModel:
    """A baseline's settings, see :mod:`specformer.baselines.graphs`; None for its own."""

    hidden_channels: int = 64
    num_layers: int = 4
    dropout: float = 0.0
    pooling: Literal["mean", "sum", "max"] | None = None
    num_heads: int | None = None
    attention_dropout: float | None = None
    towers: int | None = None
    average_log_degree: float | None = None
    walk_steps: int | None = None
    walk_channels: int | None = None
    gamma: float | None = None
    max_ring: int | None = None
    order: int | None = None
    exponent: float | None = None
    bases_norm: Literal["batch"] | None = None
    normalise_bases: Literal["softmax"] | None = None


@dataclass(frozen=True)
class ForestModel:
    """A forest's settings, see :meth:`specformer.baselines.graphs.FragmentForest.grown`."""

    num_trees: int = 200
    max_features: float | None = None
    min_samples_leaf: int = 1
    fingerprint: int = 2048

    def __post_init__(self) -> None:
        check_arguments(ForestModel, asdict(self))
        share = self.max_features
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"max_features={share} must be above 0 and at most 1.")


@dataclass(frozen=True)
class GraphRecipe:
    """How to learn from many graphs.

    Args:
        description: one sentence for tables and reports.
        model: Specformer's settings.
        schedule: epochs, batches, rates.
        task: None for a named set's own, else classification where all targets are 0 or 1, or
            words.
        loss: None for L1 in regression, binary cross-entropy for targets of 0 and 1, and
            cross-entropy for a target of more classes.
        metric: None for a named set's own, else RMSE, ROC-AUC or, of more classes, accuracy.
        standardise: learn targets of mean 0 and variance 1; regression only.
        monitor: ``"metric"`` or ``"loss"``: which validation figure picks the epoch that is kept;
            ``"last"`` keeps the last.
        precision: of products on a GPU: ``"highest"``, ``"high"`` (TF32) or ``"bf16"``.
        matrix: whose eigenpairs, see :func:`specformer.spectrum.decompose_many`.
        split: a protocol of :mod:`specformer.datasets.molecule_splits`; ``"auto"`` takes the one in
            a file of one's own, and else draws it.
        targets: names of the columns to learn, where a file has more; None for all.
        atoms: how many values each column of the atoms may take; None for what the data need.
        start: a named set on which models are trained first, by its recipe ``start``; None for
            fresh models.
    """

    description: str = ""
    model: GraphModel = field(default_factory=GraphModel)
    schedule: GraphSchedule = field(default_factory=GraphSchedule)
    task: TargetKind | None = None
    loss: Loss | None = None
    metric: str | None = None
    standardise: bool = False
    monitor: GraphMonitor = "metric"
    precision: GraphPrecision = "highest"
    matrix: Literal["laplacian", "adjacency-with-loops"] = "laplacian"
    split: str = "random-80-10-10"
    targets: list[str] | None = None
    atoms: list[int] | None = None
    start: str | None = None

    def settled(self, graphs: GraphSet) -> GraphRecipe:
        """The recipe with task, loss, metric and split chosen for these graphs, and checked."""
        if graphs.y is None:
            raise ConfigError(
                f"{graphs.name}: there are no targets to learn; targets are columns of "
                "numbers, or one of words, which are classes; name it with --targets."
            )
        binary, words = _is_binary(graphs, graphs.y), graphs.class_names is not None
        known = ~np.isnan(graphs.y)
        columns = zip(graphs.y.T, known.T, strict=True)
        same = all(len(np.unique(column[there])) < 2 for column, there in columns)
        if same and known.any(axis=1).sum() > 2:  # of fewer graphs the split will tell
            raise ConfigError(f"{graphs.name}: no target varies; there is nothing to learn.")
        named = GRAPH_SETS.get(graphs.name)
        told: TargetKind = "classification" if binary or words else "regression"
        task = self.task or (named.task if named else told)
        if words and task == "regression":
            raise ConfigError(f"{graphs.name}: the target is text; use `--task classification`.")
        kind = _NUMBERS if task == "regression" else _TWO_CLASSES if binary else _CLASSES
        if kind is _CLASSES and not words:
            _check_classes(graphs.name, graphs.y)
        of_set = named.metric if named and named.task == task else None
        loss, metric = kind.judged(graphs.name, self.loss, self.metric or of_set)
        standardise = self.standardise and task == "regression"
        split = settled_graph_protocol(graphs, self.split, named=named is not None)
        return replace(
            self, task=task, metric=metric, loss=loss, standardise=standardise, split=split
        )


@dataclass(frozen=True)
class BaselineRecipe(GraphRecipe):
    """The same with a baseline's settings: Specformer's own recipes stay as they are recorded."""

    model: BaselineModel = field(default_factory=BaselineModel)  # type: ignore[assignment]


@dataclass(frozen=True)
class ForestRecipe(GraphRecipe):
    """The same with a forest's settings. It is grown once: all that makes epochs is idle."""

    model: ForestModel = field(default_factory=ForestModel)  # type: ignore[assignment]
    schedule: GraphSchedule = field(default_factory=lambda: GraphSchedule(epochs=1, warmup=0))


#: Settings of a recipe that a forest does not look at.
IDLE_IN_FORESTS = (
    "schedule", "loss", "standardise", "monitor", "precision", "matrix", "atoms", "start",
)  # fmt: skip


def recipe_kind(model: str | None) -> type[GraphRecipe]:
    """The data class of a model's recipes."""
    if model == FOREST:
        return ForestRecipe
    return BaselineRecipe if model in GRAPH_BASELINES else GraphRecipe


def _is_binary(graphs: GraphSet, targets: np.ndarray) -> bool:
    """Whether targets are 0 and 1: all that are known or, where classes have names, those two."""
    names = graphs.class_names
    if names is None:
        return bool(np.isin(targets[~np.isnan(targets)], (0.0, 1.0)).all())
    if len(names) < 2:
        told = f"the only class is {names[0]!r}" if names else "no graph has a class"
        raise ConfigError(f"{graphs.name}: {told}; there is nothing to tell apart.")
    return len(names) == 2


def _check_classes(name: str, targets: np.ndarray) -> None:
    """Refuse what is not one target whose classes are numbered from 0."""
    if targets.shape[1] > 1:
        raise ConfigError(
            f"{name}: classes of several targets are 0 and 1; choose one with --targets, "
            "or use --task regression."
        )
    found = np.unique(targets[~np.isnan(targets)])
    expected = np.arange(len(found))
    if not np.array_equal(found, expected):
        place = int((found != expected).argmax())
        strange = found[place]
        none = f" and none is {place}" if strange > place and strange.is_integer() else ""
        raise ConfigError(
            f"{name}: classes are numbered 0, 1, 2, … without a gap, and a target is {strange:g}"
            f"{none}; use --task regression for numbers."
        )


def with_class_names(graphs: GraphSet) -> GraphSet:
    """The graphs with classes such as 1 and 2, or -1 and 1, numbered from 0 and named as they were.

    Numbers with fractions, and those of which most differ, stay as they are.
    """
    if graphs.y is None or graphs.num_tasks != 1 or graphs.class_names is not None:
        return graphs
    known = ~np.isnan(graphs.y)
    values, numbers = np.unique(graphs.y[known], return_inverse=True)
    whole = np.array_equal(values, np.round(values)) and 2 * len(values) <= len(numbers)
    if not whole or np.array_equal(values, np.arange(len(values))):
        return graphs
    y = np.full_like(graphs.y, np.nan)
    y[known] = numbers
    return replace(graphs, y=y, class_names=tuple(f"{value:.0f}" for value in values))


def graph_recipe(
    name: str | None,
    dataset: str,
    assignments: Sequence[str] = (),
    model: str = "specformer",
    given: Mapping[str, Any] | None = None,
) -> tuple[str, GraphRecipe]:
    """The recipe's name and itself, with what is given and then with ``key=value`` changes.

    A name that ends in ``.yaml`` is a file. Without a name, ``paper`` for Specformer on the data
    sets the paper has, else ``default``, which baselines have for each of those sets. Where models
    learn from another set first, they are as they are there.
    """
    chosen, settings = _BOOK.settings(name, dataset, model, _default(dataset, model))
    settings = merged(settings, given or {})
    start = override(settings, assignments).get("start")
    if isinstance(start, str):
        check_known("data set", GRAPH_SETS, start)
        if start not in _BOOK.written[START].get(model, {}):
            raise ConfigError(f"start={start}: there is no recipe {START} of {model} for it.")
        settings = merged(settings, of_models(graph_recipe(START, start, (), model)[1]))
    return chosen, built_recipe(model, override(settings, assignments), f"recipe {chosen}")


def of_models(recipe: GraphRecipe) -> dict[str, Any]:
    """What of a recipe makes its models: the matrix, and all settings of a model but dropouts."""
    settings = {
        name: value for name, value in asdict(recipe.model).items() if not name.endswith("dropout")
    }
    return {"model": settings, "matrix": recipe.matrix}


def built_recipe(model: str, settings: Mapping[str, Any], where: str) -> GraphRecipe:
    """A model's recipe from plain settings, checked."""
    return build(recipe_kind(model), settings, where)


def _default(dataset: str, model: str) -> dict[str, Any]:
    """The settings that a model's recipes start from."""
    written = _BOOK.written
    default: dict[str, Any] = written["default"]
    if dataset not in GRAPH_SETS:
        default = merged(default, written["own"])
    if model == FOREST:
        split = written["baselines"]["sets"].get(dataset, default)["split"]
        return {**written[FOREST], "split": split}
    if model not in GRAPH_BASELINES:
        return default
    baselines = written["baselines"]
    shared = {**default, "description": baselines["description"], "model": {}}
    of_set = merged(shared, baselines["sets"].get(dataset, {}))
    return merged(of_set, baselines["models"][model].get(dataset, {}))


def graph_recipes_for(dataset: str, model: str) -> list[str]:
    """The named recipes of a model on a data set, or ``default`` where it has none."""
    return _BOOK.names(dataset, model)


def chosen_targets(graphs: GraphSet, names: Sequence[str] | None) -> GraphSet:
    """The graphs with the targets of these names alone, or as they are.

    Where nobody chose among the columns of a user's file, those that are learned are logged.
    """
    if names is not None and not names:
        raise ConfigError("targets=[]: name at least one.")
    known = graphs.task_names or ()
    if names is None or graphs.y is None:
        if len(known) > 1 and graphs.name not in GRAPH_SETS:  # not every column need be a target
            more = "" if len(known) <= _NAMED else f" and {len(known) - _NAMED} more"
            logger.warning(
                "%s: there are %d targets, %s%s; --targets chooses among them.",
                graphs.name, len(known), ", ".join(map(repr, known[:_NAMED])), more,
            )  # fmt: skip
        return graphs
    for name in names:
        if name not in known:
            choices = ", ".join(map(repr, known)) or "unnamed ones"
            raise ConfigError(f"{graphs.name}: no target {name!r}, only {choices}.")
    columns = [known.index(name) for name in names]
    return replace(graphs, y=graphs.y[:, columns], task_names=tuple(names))
