r"""Train on one set of graphs for the sake of another: where a recipe's models start from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from specformer.datasets import Split, graph_set
from specformer.errors import ConfigError
from specformer.graphs import GraphSet
from specformer.graphs.same_graphs import shared_with
from specformer.nn.pretrained import Pretrained
from specformer.tasks.graphs.fit import check_parts, learn_graphs
from specformer.tasks.graphs.models import graph_model, model_for
from specformer.tasks.graphs.recipe import GraphRecipe, graph_recipe, of_models
from specformer.tasks.graphs.start import StartingPoint, seen
from specformer.tasks.graphs.work import GraphWork, graph_splits
from specformer.tasks.recipes.book import START
from specformer.tasks.workplace import Workplace
from specformer.training.engine.capture import release_memory

logger = logging.getLogger(__name__)


def check_start(recipe: GraphRecipe, model: str) -> None:
    """Refuse settings of other models than those a recipe starts from; needs no data."""
    if recipe.start is None:
        return
    first = graph_recipe(START, recipe.start, (), model)[1]
    fresh, trained = (graph_model(model, each, [1], [1], 1) for each in (recipe, first))
    _starting_point(recipe.start, first, model, [trained]).check_same(recipe, fresh)


def first_work(work: GraphWork, place: Workplace) -> GraphWork | None:
    """What a recipe's models learn first, all found good; None where they start afresh.

    That is one run of the recipe ``start`` on the set that ``recipe.start`` names, without the
    graphs that validate or test on ``work.graphs`` later: those would no longer be unseen.
    """
    origin = work.recipe.start
    if origin is None:
        return None
    unsettled = graph_recipe(START, origin, (), work.model)[1]
    found = graph_set(origin, place.data)
    own = unsettled.settled(found)
    untrained = _starting_point(found.name, own, work.model, [model_for(found, work.model, own)])
    untrained.check(work.graphs, work.recipe)  # what would be refused hours later
    check_parts(work.graphs, work.recipe, work.splits)
    (first,) = graph_splits(found, own, 1, work.seed)
    first = _without_held_out(first, found, work.graphs, work.splits)
    return replace(work, graphs=found, splits=[first], recipe=own)


def trained_first(
    first: GraphWork, place: Workplace, checkpoint: Path | None = None
) -> tuple[StartingPoint, float]:
    """The models of :func:`first_work`, and the seconds that the checkpoint held already."""
    outcome = learn_graphs(first, replace(place, lanes=1), checkpoint, label=START)
    models = [model.cpu() for model in outcome.models]  # who trains further may be another process
    untold = _starting_point(first.graphs.name, first.recipe, first.model, models)
    known, seconds = seen(first.graphs, first.splits), outcome.row["seconds"]
    release_memory()
    return replace(untold, seen=known, seconds=seconds), outcome.seconds_before


def _starting_point(
    origin: str, recipe: GraphRecipe, model: str, models: Sequence[nn.Module]
) -> StartingPoint:
    """Models of a recipe, of which it is not told yet what they have seen."""
    kept = tuple(each for each in models if isinstance(each, Pretrained))
    return StartingPoint(origin, model, kept, of_models(recipe), seen={})


def _without_held_out(
    split: Split, graphs: GraphSet, later: GraphSet, splits: Sequence[Split]
) -> Split:
    """A split of the graphs whose training part has none of those held out later."""
    held_out = np.logical_or.reduce([split.val | split.test for split in splits])
    shared = shared_with(graphs, later.subset(np.flatnonzero(held_out)))
    kept = split.train & ~shared
    if not kept.any():
        raise ConfigError(
            f"{graphs.name}: all of its training graphs validate or test on {later.name}."
        )
    logger.info(
        "%s: %s of %s training graphs are left out; they validate or test on %s.",
        graphs.name,
        f"{int(split.train.sum() - kept.sum()):,}",
        f"{int(split.train.sum()):,}",
        later.name,
    )
    return replace(split, train=kept)
