r"""Settings for many small graphs, as a search tries them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from specformer.datasets import GraphStore, Split
from specformer.errors import ConfigError, RunError
from specformer.tasks.graphs.model_settings import ForestModel
from specformer.tasks.graphs.models import largest_ring
from specformer.tasks.graphs.recipe import GraphRecipe
from specformer.tasks.graphs.start import StartingPoint
from specformer.tasks.graphs.work import GraphWork, graph_spectra, graph_splits, job_graphs
from specformer.tasks.job import Job
from specformer.tasks.search import Measured, Trials, sustained
from specformer.tasks.workplace import Workplace
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import summary

#: Neighbouring epochs whose mean validation figure counts; a short trial has a dozen in all.
_SUSTAINED = 5


class GraphTrials(Trials):
    """One model on one set of graphs, a :class:`~specformer.tasks.search.Trials`.

    A score is the :func:`~specformer.tasks.search.sustained` validation metric, the mean over
    splits, or over initial weights where the split is fixed. Spectra and the packed graphs are made
    once for all trials, by matrix. Test graphs are not looked at.

    With ``job.start`` every trial starts from that run's models, and what makes them is not
    searched.
    """

    space_file, monitor = "graph_search.yaml", "metric"
    splits, runs = 1, 3

    def __init__(self, job: Job, place: Workplace) -> None:
        super().__init__(job, place)
        first: GraphRecipe = super().recipe(self.assignments)
        if first.start is not None:
            raise ConfigError(
                f"start={first.start}: a search trains nothing first; name a run with --from, "
                "or --set start=null."
            )
        start = None if job.start is None else StartingPoint.of(job.start, job.model)
        graphs = job_graphs(job, place, first.targets)
        recipe = first.settled(graphs)
        self.work = GraphWork(graphs, (), job.model, recipe, job.seed, place.device, start=start)
        self.name, self.metric = graphs.name, str(recipe.metric)
        self.begun_from = start.fingerprint[:12] if start else None
        if start:
            start.check(graphs, recipe)
            fixed = {"matrix", *(f"model.{name}" for name in start.settings["model"])}
            self.space = {key: values for key, values in self.space.items() if key not in fixed}
        self.lower = metric_named(self.metric).lower
        self._splits: dict[int, list[Split]] = {}
        self._stores: dict[tuple[str, int | None, int | None], GraphStore] = {}

    def recipe(self, changes: Sequence[str]) -> GraphRecipe:
        """The recipe with these changes, settled for the graphs."""
        recipe: GraphRecipe = super().recipe(changes)
        return recipe.settled(self.work.graphs)

    def size(self, recipe: GraphRecipe) -> int:
        """Parameters of a recipe's model; a forest has none before it is grown."""
        if isinstance(recipe.model, ForestModel):
            return 0
        fresh = replace(self.work, recipe=recipe).first_model()
        return sum(parameter.numel() for parameter in fresh.parameters())

    def measure(self, recipe: GraphRecipe, splits: int) -> Measured:
        """One setting, trained on one split after the other."""
        epochs = recipe.schedule.epochs
        if splits not in self._splits:  # scaffolds take a while
            found = graph_splits(self.work.graphs, recipe, splits, self.work.seed)
            # What a search tests on is the validation part: nothing is read of the other.
            self._splits[splits] = [replace(split, test=split.val) for split in found]
        work = replace(self.work, recipe=recipe, splits=self._splits[splits])
        store = self._store(recipe)
        try:
            fits = [work.fit(store, run) for run in range(splits)]
        except RunError:  # no epoch of a run gave a number
            return Measured(score=None, val=None, epochs=float(epochs))
        curves = torch.from_numpy(np.stack([fit.curves[:, 2] for fit in fits], axis=1))
        lengths = torch.full((splits,), epochs)
        score = float(sustained(curves, lengths, _SUSTAINED, lower=self.lower).mean())
        kept = [fit.chosen[recipe.monitor] for fit in fits]
        return Measured(
            score=score if math.isfinite(score) else None,
            val=summary([each.val for each in kept]),
            epochs=float(epochs),
        )

    def _store(self, recipe: GraphRecipe) -> GraphStore:
        fingerprint = getattr(recipe.model, "fingerprint", None)
        key = recipe.matrix, largest_ring(self.work.model, recipe), fingerprint
        if key not in self._stores:
            place = self.place
            spectra = graph_spectra(self.work.graphs, recipe, place.device, place.cache)
            self._stores[key] = replace(self.work, recipe=recipe, spectra=spectra).store()
        return self._stores[key]
