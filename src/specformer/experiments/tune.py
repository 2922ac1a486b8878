r"""Random search for settings, judged on validation nodes alone."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from specformer.datasets import make_splits, node_graph
from specformer.errors import ConfigError, RunError
from specformer.experiments.node_recipe import NODE_MODELS, NodeRecipe, node_recipe
from specformer.experiments.nodes import (
    fresh_models,
    node_landmarks,
    node_operator,
    node_spectrum,
    node_task,
)
from specformer.files import write_text
from specformer.graphs import Graph
from specformer.spectrum import AnySpectrum
from specformer.training.metrics import summary
from specformer.training.node_loop import NodeTask, fit_nodes
from specformer.training.precision import matmul_precision
from specformer.training.progress import Progress, Silent

#: Files of a search in its folder.
TRIALS, BEST = "trials.jsonl", "best.yaml"
#: Trials drawn afresh before any starts from a better one; how many of the best may be started
#: from; which share of their settings is drawn anew.
_EXPLORED, _PARENTS, _CHANGED = 20, 3, 0.25


class Search:
    """Trials of one model on one graph, kept in a file and never run twice.

    Trial 0 is the recipe as it is. The others draw one value of each list of
    ``recipes/node_search.yaml``; after the first twenty, every second one changes a quarter of the
    settings of one of the three best so far instead. Generators are seeded with a trial's number,
    so that a stopped search goes on where it was. A trial's score is its mean validation accuracy;
    test nodes are not looked at.

    Args:
        source: a data set's name, a file or a folder.
        model: what to tune.
        recipe: where to start; the rest as in :func:`specformer.experiments.table2.table2`.
        folder: where ``trials.jsonl`` is kept.
    """

    def __init__(
        self,
        source: str,
        *,
        model: str,
        recipe: str | None,
        assignments: Sequence[str],
        folder: Path,
        data: str | Path | None,
        cache: str | Path | None,
        device: torch.device,
        seed: int,
    ) -> None:
        if model not in NODE_MODELS:
            raise ConfigError(f"unknown model {model!r}; choose from {', '.join(NODE_MODELS)}.")
        self.source, self.model, self.recipe = source, model, recipe
        self.assignments = ["monitor=accuracy", *assignments]
        self.device, self.seed, self.cache = device, seed, cache
        self.path = folder / TRIALS
        self.space = _space(model)
        self.graph: Graph = node_graph(source, data)
        self.done = _read(self.path)
        self._tasks: dict[tuple[str, int], NodeTask] = {}
        self._spectra: dict[str, AnySpectrum] = {}

    def run(
        self, trials: int, splits: int, finalists: int, runs: int, progress: Progress
    ) -> dict[str, Any]:
        """All trials over ``splits`` splits, the best few over ``runs``; returns the winner."""
        with progress.stage(f"{self.graph.name}: trials", trials, "best accuracy") as update:
            for number in range(trials):
                self._trial(number, splits)
                update(number + 1, max(self._scores(splits).values()))
        chosen = self._ranked(splits)[:finalists]
        with progress.stage(f"{self.graph.name}: finalists", finalists, "best accuracy") as update:
            for place, number in enumerate(chosen):
                self._trial(number, runs)
                update(place + 1, max(self._scores(runs).values()))
        scores = {number: self._scores(runs)[number] for number in chosen}
        winner = max(scores, key=scores.__getitem__)
        return self.done[winner, runs]

    def settings(self, number: int, splits: int) -> list[str]:
        """The ``key=value`` changes of one trial."""
        if number == 0:
            return []
        generator = np.random.default_rng([self.seed, number])
        drawn = {
            key: f"{key}={json.dumps(choices[generator.integers(len(choices))])}"
            for key, choices in self.space.items()
        }
        if number <= _EXPLORED or number % 2:
            return list(drawn.values())
        best = [earlier for earlier in self._ranked(splits) if earlier < number][:_PARENTS]
        parent = self.done[best[generator.integers(len(best))], splits]["set"]
        kept = parent[len(self.assignments) :]
        again = [change for change in drawn.values() if generator.random() < _CHANGED]
        return [*kept, *again]

    def _ranked(self, splits: int) -> list[int]:
        """Trials over that many splits, the best first."""
        scores = self._scores(splits)
        return sorted(scores, key=lambda number: (-scores[number], number))

    def _scores(self, splits: int) -> dict[int, float]:
        return {
            number: trial["val"]["mean"]
            for (number, count), trial in self.done.items()
            if count == splits
        }

    def _trial(self, number: int, splits: int) -> None:
        if (number, splits) in self.done:
            return
        changes = self._changes(number, splits)
        _, recipe = node_recipe(self.recipe, self.source, changes, self.model)
        started = time.perf_counter()
        val, epochs = self._fit(recipe, splits)
        trial = {
            "trial": number,
            "splits": splits,
            "set": changes,
            "val": summary(val),
            "epochs": epochs,
            "seconds": time.perf_counter() - started,
            "recipe": asdict(recipe),
        }
        self.done[number, splits] = trial
        lines = [json.dumps(entry) for entry in self.done.values()]
        write_text(self.path, "\n".join(lines) + "\n")

    def _changes(self, number: int, splits: int) -> list[str]:
        """All of a trial's changes; a finalist keeps those it had on fewer splits."""
        for (earlier, _), trial in self.done.items():
            if earlier == number:
                changes: list[str] = trial["set"]
                return changes
        return [*self.assignments, *self.settings(number, splits)]

    def _fit(self, recipe: NodeRecipe, splits: int) -> tuple[list[float], float]:
        """Validation accuracies of one setting and the mean number of epochs."""
        key = recipe.features, splits
        if key not in self._tasks:
            parts = make_splits(self.graph, recipe.split, splits, self.seed)
            self._tasks[key] = node_task(self.graph, parts, recipe, self.device, self.model)
        spectrum = self._spectrum(recipe) if self.model == "specformer" else None
        operator = node_operator(self.model, self.graph, spectrum, self.device)
        models = fresh_models(self.model, recipe, self.graph, splits, self.seed)
        with matmul_precision(recipe.precision, self.device):
            fit = fit_nodes(
                models,
                self._tasks[key],
                operator,
                recipe.schedule,
                monitor=recipe.monitor,
                landmarks=node_landmarks(operator, recipe),
            )
        chosen = fit.by_loss if recipe.monitor == "loss" else fit.by_accuracy
        return chosen.val.tolist(), float(fit.epochs.double().mean())

    def _spectrum(self, recipe: NodeRecipe) -> AnySpectrum:
        key = recipe.spectrum_key
        if key not in self._spectra:
            self._spectra[key] = node_spectrum(self.graph, recipe, self.device, self.cache)
        return self._spectra[key]


def tune(
    source: str,
    *,
    model: str = "specformer",
    recipe: str | None = None,
    assignments: Sequence[str] = (),
    trials: int = 30,
    splits: int = 3,
    finalists: int = 3,
    runs: int = 10,
    folder: Path,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Search, and leave the winner as ``best.yaml``, a recipe that ``train --recipe`` takes."""
    for name, value in (("trials", trials), ("splits", splits), ("finalists", finalists)):
        if value < 1:
            raise ConfigError(f"--{name} {value}: at least one is needed.")
    search = Search(
        source,
        model=model,
        recipe=recipe,
        assignments=assignments,
        folder=folder,
        data=data,
        cache=cache,
        device=device,
        seed=seed,
    )
    started = time.perf_counter()
    winner = search.run(trials, splits, min(finalists, trials), runs, progress or Silent())
    path = folder / BEST
    write_text(path, yaml.safe_dump(winner["recipe"], sort_keys=False))
    return {
        "dataset": search.graph.name,
        "model": model,
        "trials": trials,
        "winner": winner["trial"],
        "set": winner["set"],
        "val": winner["val"],
        "seconds": time.perf_counter() - started,
        "recipe_file": str(path),
    }


def _space(model: str) -> dict[str, list[Any]]:
    text = resources.files("specformer.experiments") / "recipes" / "node_search.yaml"
    written = yaml.safe_load(text.read_text(encoding="utf-8"))
    space: dict[str, list[Any]] = written["specformer" if model == "specformer" else "baseline"]
    return space


def _read(path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Trials done before, by number and splits."""
    if not path.is_file():
        return {}
    try:
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {(trial["trial"], trial["splits"]): trial for trial in found}
    except (ValueError, KeyError) as error:
        raise RunError(f"{path}: damaged ({error}); remove it to start anew.") from error
