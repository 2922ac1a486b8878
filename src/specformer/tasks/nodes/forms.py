r"""Which form of the model suits a graph: the recipe's forms, tried on validation nodes."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from specformer.spectrum import Spectrum
from specformer.tasks.nodes.fit import fit_nodes_of
from specformer.tasks.nodes.recipe import TRIED_SPLITS, NodeRecipe
from specformer.tasks.nodes.work import NodeWork
from specformer.tasks.workplace import Workplace
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.runs.checkpoint import Checkpoint, numbered

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """The form that was taken, and the mean validation figure of every form that was tried."""

    taken: str
    tried: Mapping[str, float | None]

    def told(self, metric: str) -> str:
        """The choice in a sentence.

        Example:
            >>> Choice("deep-3", {"paper": 0.81, "deep-3": 0.84}).told("accuracy")
            'takes the form deep-3: accuracy on validation nodes paper 0.8100, deep-3 0.8400'
        """
        figures = (
            f"{name} {'diverged' if value is None else f'{value:.4f}'}"
            for name, value in self.tried.items()
        )
        return f"takes the form {self.taken}: {metric} on validation nodes {', '.join(figures)}"


def with_best_form(
    work: NodeWork, place: Workplace, checkpoint: Path | None
) -> tuple[NodeWork, Choice | None]:
    """The work with the form that validates best on its first splits, where there is a choice.

    Test nodes are not looked at. What was tried is kept beside the checkpoints, so that a resumed
    run takes the same form.
    """
    recipes = {name: work.recipe.taking(name) for name in _tried(work, place)}
    if not recipes:
        return work, None
    if len(recipes) == 1:
        return replace(work, recipe=next(iter(recipes.values()))), None
    prepared = work.prepared and work.prepared[:TRIED_SPLITS]
    few = replace(work, splits=work.splits[:TRIED_SPLITS], prepared=prepared)
    figures = torch.full((len(recipes),), math.nan, dtype=torch.float64)
    kept = checkpoint and Checkpoint(numbered(checkpoint, "forms"), _purpose(few, recipes))
    if kept:
        kept.restore({"figures": figures})
    for number, (name, recipe) in enumerate(recipes.items()):
        if figures[number].isnan():
            own = checkpoint and checkpoint.with_name(f"{checkpoint.name}-{name}")
            figures[number] = _validated(replace(few, recipe=recipe), place, own, name)
            if kept:
                kept.save({"figures": figures})
    if kept and not figures.isfinite().any():
        kept.path.unlink()  # nothing to go on from
    metric = metric_named(work.recipe.metric or "accuracy")
    tried = {
        name: figure if math.isfinite(figure) else None
        for name, figure in zip(recipes, figures.tolist(), strict=True)
    }
    taken = min(tried, key=lambda name: math.inf if (v := tried[name]) is None else metric.score(v))
    choice = Choice(taken, tried)
    place.progress.say(f"{work.graph.name}: {choice.told(metric.label)}")
    return replace(work, recipe=recipes[taken]), choice


def _tried(work: NodeWork, place: Workplace) -> list[str]:
    """The forms to try; those that are left out are named."""
    spectrum = work.spectrum
    entries = spectrum.eigenvectors.numel() if isinstance(spectrum, Spectrum) else 0
    names = work.recipe.affordable(entries, place.device)
    if slow := [name for name in work.recipe.forms if name not in names]:
        logger.warning(
            "%s: %s not tried, which take long on a CPU for %d nodes; take one by --set form=%s",
            work.graph.name,
            ", ".join(slow),
            work.graph.num_nodes,
            slow[0],
        )
    return names


def _validated(work: NodeWork, place: Workplace, checkpoint: Path | None, name: str) -> float:
    """The mean validation figure of a form's models; infinite if one diverged."""
    fit = fit_nodes_of(work, place, checkpoint, f"form {name}").fit
    kept = fit.by_loss if work.recipe.monitor == "loss" else fit.by_metric
    if bool(fit.is_lost.any()):
        return math.inf
    return float(kept.val.double().mean())


def _purpose(work: NodeWork, recipes: Mapping[str, NodeRecipe]) -> str:
    """What the figures belong to."""
    told: dict[str, Any] = {name: asdict(recipe) for name, recipe in recipes.items()}
    drawn = [split.fingerprint for split in work.splits]
    return json.dumps([told, drawn, work.seed, work.graph.fingerprint])
