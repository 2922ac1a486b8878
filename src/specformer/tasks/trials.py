r"""What a search tries: settings of a model, drawn from lists and measured on validation data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from specformer.baselines import Propagation
from specformer.datasets import GraphStore, Split
from specformer.errors import ConfigError, RunError
from specformer.spectrum import AnySpectrum
from specformer.tasks.graphs.graph_recipe import ForestModel, GraphRecipe
from specformer.tasks.graphs.graph_work import (
    GraphWork,
    StoreKey,
    graph_splits,
    job_graphs,
)
from specformer.tasks.job import Job, Kind, Workplace
from specformer.tasks.link_work import LinkWork
from specformer.tasks.nodes.node_fit import fit_nodes_of
from specformer.tasks.nodes.node_recipe import NodeRecipe, node_model
from specformer.tasks.nodes.node_work import NodeWork
from specformer.tasks.recipes.settings import build, override, shipped
from specformer.tasks.task import parameter_count
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import summary
from specformer.training.loops.nodes import FullBatchTask
from specformer.training.runs.progress import Silent


@dataclass(frozen=True)
class Measured:
    """How good a setting is on validation data.

    ``score`` ranks trials and is None where training diverged; ``val`` is the summary of the kept
    models' validation figures; ``epochs`` the mean over runs.
    """

    score: float | None
    val: dict[str, Any] | None
    epochs: float


class Trials(ABC):
    """A job whose settings are searched. Test data are not looked at."""

    #: The file of the lists to draw from, and the neighbouring epochs whose mean figure counts.
    space_file: ClassVar[str]
    window: ClassVar[int]
    #: The usual number of splits that a trial trains on.
    splits: ClassVar[int]
    #: The usual number of splits that finalists train on.
    runs: int

    #: The data, as :meth:`.Work.load` gives them, their name, and the metric of scores.
    work: Any
    name: str
    metric: str
    #: A fingerprint of the models that trials start from; None for fresh ones.
    begun_from: str | None = None

    def __init__(self, job: Job, place: Workplace) -> None:
        self.source, self.model, self.seed, self.place = job.source, job.model, job.seed, place
        deep = job.model == "specformer" and getattr(job.settings.model, "form", "") == "deep"
        lists = "specformer-deep" if deep else job.model
        #: ``key=value`` changes that all trials have.
        self.assignments = ["monitor=metric", *job.changes]
        #: The lists that trials draw from, by key.
        self.space = search_space(self.space_file, lists, self.assignments)
        self._settings = job.settings

    @property
    def data(self) -> str:
        """The data's fingerprint."""
        return str(self.work.fingerprint)

    @property
    def lower(self) -> bool:
        """Whether less of the metric is better."""
        return metric_named(self.metric).lower

    def recipe(self, changes: Sequence[str]) -> Any:
        """The job's recipe, a data class, with these changes, checked."""
        settings = override(asdict(self._settings), changes)
        return build(type(self._settings), settings, "the search")

    @abstractmethod
    def size(self, recipe: Any) -> int:
        """The number of its model's parameters; refuses settings that no model can have."""

    @abstractmethod
    def measure(self, recipe: Any, splits: int) -> Measured:
        """Train on that many splits and measure on the validation part of each."""

    def judged(self, figures: Tensor, epochs: Tensor, kept: Sequence[float]) -> Measured:
        """The mean over runs of what :func:`sustained` gives, and a summary of the kept figures."""
        score = float(sustained(figures, epochs, self.window, lower=self.lower).mean())
        mean = float(epochs.double().mean())
        return Measured(score if math.isfinite(score) else None, summary(kept), mean)


def sustained(figures: Tensor, epochs: Tensor, window: int, *, lower: bool = False) -> Tensor:
    """The best mean of ``window`` neighbouring epochs of every run, ``[runs]``.

    The best single epoch would favour settings whose curves jump.

    Args:
        figures: ``[epochs, runs]``, only the first ``epochs`` of a run count; NaN is never best.
        epochs: ``[runs]``.
        window: how many epochs are averaged; all, of a shorter run.
        lower: whether less is better.
    """
    best = []
    sign = -1.0 if lower else 1.0
    for curve, length in zip(figures.T, epochs.tolist(), strict=True):
        means = curve[:length].unfold(0, min(window, length), 1).mean(dim=-1)
        best.append(sign * (sign * means).nan_to_num(nan=-math.inf).max())
    return torch.stack(best)


def search_space(file: str, model: str, assignments: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The lists a trial draws from, by key, without those of keys that are assigned.

    Baselines have the lists of ``baseline`` and those of their own name; a forest only the latter.
    """
    found = shipped(file)
    shared = {} if model.startswith(("specformer", "forest")) else found["baseline"]
    given = {assignment.partition("=")[0] for assignment in assignments}
    lists = {**shared, **found.get(model, {})}
    return {key: choices for key, choices in lists.items() if key not in given}


class NodeTrials(Trials):
    """One model on the nodes of one graph; all splits of a trial train at once."""

    space_file, window, splits = "node_search.yaml", 20, 3

    work: NodeWork

    def __init__(self, job: Job, place: Workplace) -> None:
        super().__init__(job, place)
        first = replace(super().recipe(self.assignments), forms={})
        #: The job with its own settings on all splits; trials change some of them.
        self.work = (LinkWork if job.kind == "links" else NodeWork).load(
            replace(job, settings=first, runs=None), place
        )
        self.name, self.metric = self.work.graph.name, str(self.work.recipe.metric)
        self.runs = len(self.work.splits)  # ten, or those that a file holds
        self._tasks: dict[tuple[str, int], FullBatchTask] = {}
        self._operators: dict[str, AnySpectrum | Propagation] = {}
        assert self.work.prepared is not None
        if self.work.prepared[0].scaling == "columns":  # raw columns are always prepared
            self.space.pop("features", None)

    def recipe(self, changes: Sequence[str]) -> NodeRecipe:
        """The recipe with these changes and no choice of forms, settled for the graph."""
        recipe: NodeRecipe = replace(super().recipe(changes), forms={})
        return recipe.settled(self.work.graph)

    def size(self, recipe: NodeRecipe) -> int:
        width = self._task(recipe, 1).x.shape[-1]
        return parameter_count(node_model(self.model, recipe, width, self.work.outputs))

    def measure(self, recipe: NodeRecipe, splits: int) -> Measured:
        inputs = self._operator(recipe), self._task(recipe, splits)
        work = self._with(recipe, splits)
        fit = fit_nodes_of(work, replace(self.place, progress=Silent()), None, "", inputs).fit
        _, loss, figure = fit.curves.unbind(dim=-1)
        counted = figure.where(~loss.isnan(), torch.nan)  # else that of a constant guess
        return self.judged(counted, fit.epochs, fit.kept.val.tolist())

    def _with(self, recipe: NodeRecipe, splits: int) -> NodeWork:
        parts = self.work.resplit(splits)
        return replace(self.work, recipe=recipe, splits=parts, prepared=None)

    def _task(self, recipe: NodeRecipe, splits: int) -> FullBatchTask:
        key = recipe.features, splits
        if key not in self._tasks:
            self._tasks[key] = self._with(recipe, splits).task(self.place.device)
        return self._tasks[key]

    def _operator(self, recipe: NodeRecipe) -> AnySpectrum | Propagation:
        """Computed once for all trials: it can take longer than a trial."""
        key = recipe.spectrum_key if self.model == "specformer" else "propagation"
        if key not in self._operators:
            place = replace(self.place, progress=Silent())
            work = replace(self.work, recipe=recipe).with_spectra(place)
            self._operators[key] = work.operator(place.device)
        return self._operators[key]


class GraphTrials(Trials):
    """One model on one set of graphs.

    Spectra and packed graphs are computed once for all trials. With ``job.start`` every trial
    starts from that run's models, whose settings are not searched.
    """

    space_file, window = "graph_search.yaml", 5  # a short trial has a dozen epochs in all
    splits, runs = 1, 3

    work: GraphWork

    def __init__(self, job: Job, place: Workplace) -> None:
        super().__init__(job, place)
        first: GraphRecipe = super().recipe(self.assignments)
        if first.start is not None:
            raise ConfigError(
                f"start={first.start}: a search trains nothing first; name a run with --from, "
                "or --set start=null."
            )
        graphs = job_graphs(job, place, first.targets)
        self.work = GraphWork.on(replace(job, settings=first), place, graphs, splits=())
        self.name, self.metric = graphs.name, str(self.work.recipe.metric)
        if start := self.work.start:
            self.begun_from = start.fingerprint[:12]
            fixed = {"matrix", *(f"model.{name}" for name in start.settings["model"])}
            self.space = {key: values for key, values in self.space.items() if key not in fixed}
        self._splits: dict[int, list[Split]] = {}
        self._stores: dict[StoreKey, GraphStore] = {}

    def recipe(self, changes: Sequence[str]) -> GraphRecipe:
        """The recipe with these changes, settled for the graphs."""
        recipe: GraphRecipe = super().recipe(changes)
        return recipe.settled(self.work.graphs)

    def size(self, recipe: GraphRecipe) -> int:
        """Parameters of a recipe's model; a forest has none before it is grown."""
        if isinstance(recipe.model, ForestModel):
            return 0
        return parameter_count(replace(self.work, recipe=recipe).first_model())

    def measure(self, recipe: GraphRecipe, splits: int) -> Measured:
        """Train one split after the other."""
        epochs = recipe.schedule.epochs
        if splits not in self._splits:  # scaffolds take a while
            found = graph_splits(self.work.graphs, recipe, splits, self.work.seed)
            # A search tests on the validation part, so that test data are not used.
            self._splits[splits] = [replace(split, test=split.val) for split in found]
        work = replace(self.work, recipe=recipe, splits=self._splits[splits])
        store = self._store(recipe)
        try:
            fits = [work.fit(store, run) for run in range(splits)]
        except RunError:  # no epoch of a run gave a number
            return Measured(score=None, val=None, epochs=float(epochs))
        curves = torch.from_numpy(np.stack([fit.curves[:, 2] for fit in fits], axis=1))
        kept = [fit.chosen[recipe.monitor].val for fit in fits]
        return self.judged(curves, torch.tensor([fit.epochs for fit in fits]), kept)

    def _store(self, recipe: GraphRecipe) -> GraphStore:
        work = replace(self.work, recipe=recipe)
        if work.store_key not in self._stores:
            place = replace(self.place, progress=Silent())
            self._stores[work.store_key] = work.with_spectra(place).store()
        return self._stores[work.store_key]


#: What a search tries, by the kind of its job. Signals are not searched.
TRIALS: dict[Kind, type[Trials]] = {
    "nodes": NodeTrials, "links": NodeTrials, "molecules": GraphTrials,
}  # fmt: skip
