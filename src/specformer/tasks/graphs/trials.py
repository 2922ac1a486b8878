r"""Settings for many small graphs, as a search tries them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specformer.datasets import GraphStore, Split, graph_set
from specformer.errors import ConfigError, RunError
from specformer.tasks.graphs.fit import graph_spectra, graph_splits
from specformer.tasks.graphs.models import GRAPH_MODELS, largest_ring
from specformer.tasks.graphs.recipe import GraphRecipe, chosen_targets, graph_recipe
from specformer.tasks.graphs.setup import first_model, fit_run
from specformer.tasks.graphs.start import StartingPoint
from specformer.tasks.search import Measured, Trials, sustained
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import summary
from specformer.training.loops.graphs import GraphFit

#: Neighbouring epochs whose mean validation figure counts; a short trial has a dozen in all.
_SUSTAINED = 5


class GraphTrials(Trials):
    """One model on one set of graphs, a :class:`~specformer.tasks.search.Subject`.

    A score is the :func:`~specformer.tasks.search.sustained` validation metric, the mean over
    splits, or over initial weights where the split is fixed. Spectra and the packed graphs are made
    once for all trials, by matrix. Test graphs are not looked at.

    Args:
        start: the folder of a finished run whose models every trial starts from. What makes them is
            not searched then.
    """

    models, space_file, monitor = GRAPH_MODELS, "graph_search.yaml", "metric"

    def __init__(self, source: str, *, start: str | Path | None = None, **options: Any) -> None:
        self._start = None if start is None else StartingPoint.of(start, options["model"])
        self.begun_from: str | None = self._start.fingerprint[:12] if self._start else None
        super().__init__(source, **options)

    def _load(self, data: str | Path | None) -> None:
        first = self._unsettled(self.assignments)
        if first.start is not None:
            raise ConfigError(
                f"start={first.start}: a search trains nothing first; name a run with --from, or "
                "--set start=null."
            )
        self.graphs = chosen_targets(graph_set(self.source, data, first.targets), first.targets)
        self.name = self.graphs.name
        recipe = self.recipe(self.assignments)
        self.metric = str(recipe.metric)
        if self._start:
            self._start.check(self.graphs, recipe)
            fixed = {"matrix", *(f"model.{name}" for name in self._start.settings["model"])}
            self.space = {key: values for key, values in self.space.items() if key not in fixed}
        self.lower = metric_named(self.metric).lower
        self._splits: dict[int, list[Split]] = {}
        self._stores: dict[tuple[str, int | None], GraphStore] = {}

    def recipe(self, changes: Sequence[str]) -> GraphRecipe:
        """The recipe with these changes, settled for the graphs."""
        return self._unsettled(changes).settled(self.graphs)

    def _unsettled(self, changes: Sequence[str]) -> GraphRecipe:
        given = self._start.settings if self._start else None
        return graph_recipe(self.recipe_name, self.source, changes, self.model, given=given)[1]

    def size(self, recipe: GraphRecipe) -> int:
        """Parameters of a recipe's model."""
        fresh = first_model(self.graphs, self.model, recipe, self._start)
        return sum(parameter.numel() for parameter in fresh.parameters())

    def measure(self, recipe: GraphRecipe, splits: int) -> Measured:
        """One setting, trained on one split after the other."""
        epochs = recipe.schedule.epochs
        if splits not in self._splits:  # scaffolds take a while
            found = graph_splits(self.graphs, recipe, splits, self.seed)
            # What a search tests on is the validation part: nothing is read of the other.
            self._splits[splits] = [replace(split, test=split.val) for split in found]
        try:
            fits = [self._fit(recipe, run, split) for run, split in enumerate(self._splits[splits])]
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

    def _fit(self, recipe: GraphRecipe, run: int, split: Split) -> GraphFit:
        return fit_run(
            self.graphs,
            self._store(recipe),
            split,
            self.model,
            recipe,
            run=run,
            seed=self.seed,
            device=self.device,
            start=self._start,
        )

    def _store(self, recipe: GraphRecipe) -> GraphStore:
        max_ring = largest_ring(self.model, recipe)
        key = (recipe.matrix, max_ring)
        if key not in self._stores:
            spectra = graph_spectra(self.graphs, recipe, self.device, self.cache)
            store = GraphStore.build(self.graphs, spectra, max_ring=max_ring)
            self._stores[key] = store.placed(self.device)
        return self._stores[key]
