r"""Random search for settings, judged on validation nodes alone."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from specformer.baselines import Propagation
from specformer.datasets import make_splits, node_graph
from specformer.errors import ConfigError, RunError
from specformer.experiments.node_recipe import NODE_MODELS, NodeRecipe, node_recipe
from specformer.experiments.nodes import (
    fit_task,
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
from specformer.training.node_loop import NodeFit, NodeTask
from specformer.training.precision import matmul_precision
from specformer.training.progress import Progress, Silent

#: Files of a search in its folder.
TRIALS, BEST = "trials.jsonl", "best.yaml"
#: How many of the best trials may be started from; which share of their settings is drawn anew.
_PARENTS, _CHANGED = 3, 0.25
#: Neighbouring epochs whose mean validation accuracy counts.
_SUSTAINED = 20


class Search:
    """Trials of one model on one graph, kept in a file and never run twice.

    Trial 0 is the recipe as it is. The others draw one value of each list that
    ``recipes/node_search.yaml`` has for the model and ``assignments`` leave open; after the first
    ``explore``, every second one changes a quarter of the settings of one of the three best so far
    instead. Generators are seeded with a trial's number, so that a stopped search goes on where it
    was. A trial's score is the :func:`sustained` validation accuracy, the mean over its splits;
    test nodes are not looked at.

    Args:
        source: a data set's name, a file or a folder.
        model: what to tune.
        recipe: where to start; the rest as in :func:`specformer.experiments.table2.table2`.
        folder: where ``trials.jsonl`` is kept.
        explore: trials drawn afresh before any starts from a better one.
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
        explore: int = 20,
    ) -> None:
        if model not in NODE_MODELS:
            raise ConfigError(f"unknown model {model!r}; choose from {', '.join(NODE_MODELS)}.")
        self.source, self.model, self.recipe = source, model, recipe
        self.assignments = ["monitor=accuracy", *assignments]
        self.device, self.seed, self.cache = device, seed, cache
        self.explore = explore
        self.path = folder / TRIALS
        self.space = search_space(model, self.assignments)
        self.graph: Graph = node_graph(source, data)
        self.done = _read(self.path)
        self._tasks: dict[tuple[str, int], NodeTask] = {}
        self._operators: dict[str, AnySpectrum | Propagation] = {}

    def run(
        self,
        trials: int,
        splits: int,
        finalists: int,
        runs: int,
        progress: Progress,
        seconds: float = math.inf,
    ) -> dict[str, Any]:
        """All trials over ``splits`` splits, the best few over ``runs``; returns the winner.

        No trial but the first begins once ``seconds`` have passed.
        """
        started = time.perf_counter()
        with progress.stage(f"{self.graph.name}: trials", trials, "best accuracy") as update:
            for number in range(trials):
                if number and time.perf_counter() - started > seconds:
                    break
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
        if number <= self.explore or number % 2:
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
            number: trial["score"]
            for (number, count), trial in self.done.items()
            if count == splits
        }

    def _trial(self, number: int, splits: int) -> None:
        if (number, splits) in self.done:
            return
        changes = self._changes(number, splits)
        _, recipe = node_recipe(self.recipe, self.source, changes, self.model)
        started = time.perf_counter()
        fit = self._fit(recipe, splits)
        chosen = fit.by_loss if recipe.monitor == "loss" else fit.by_accuracy
        trial = {
            "trial": number,
            "splits": splits,
            "set": changes,
            "score": float(sustained(fit.curves[..., 2], fit.epochs).mean()),
            "val": summary(chosen.val.tolist()),
            "epochs": float(fit.epochs.double().mean()),
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

    def _fit(self, recipe: NodeRecipe, splits: int) -> NodeFit:
        """One setting, trained on every split at once."""
        key = recipe.features, splits
        if key not in self._tasks:
            parts = make_splits(self.graph, recipe.split, splits, self.seed)
            self._tasks[key] = node_task(self.graph, parts, recipe, self.device, self.model)
        operator = self._operator(recipe)
        models = fresh_models(self.model, recipe, self.graph, splits, self.seed)
        with matmul_precision(recipe.precision, self.device):
            return fit_task(
                models,
                self._tasks[key],
                operator,
                recipe,
                landmarks=node_landmarks(operator, recipe),
                cache=self.cache,
            )

    def _operator(self, recipe: NodeRecipe) -> AnySpectrum | Propagation:
        """Made once for all trials: distances and Ritz pairs take longer than some trials do."""
        ours = self.model == "specformer"
        key = recipe.spectrum_key if ours else "propagation"
        if key not in self._operators:
            spectrum = node_spectrum(self.graph, recipe, self.device, self.cache) if ours else None
            self._operators[key] = node_operator(self.model, self.graph, spectrum, self.device)
        return self._operators[key]


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
    seconds: float | None = None,
    explore: int = 20,
    folder: Path,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Search, and leave the winner as ``best.yaml``, a recipe that ``train --recipe`` takes.

    ``seconds``: begin no other trial after this long; the finalists follow all the same.
    """
    counted = {"trials": trials, "splits": splits, "finalists": finalists, "explore": explore}
    for name, value in counted.items():
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
        explore=explore,
    )
    started = time.perf_counter()
    winner = search.run(
        trials,
        splits,
        min(finalists, trials),
        runs,
        progress or Silent(),
        math.inf if seconds is None else seconds,
    )
    path = folder / BEST
    write_text(path, yaml.safe_dump(winner["recipe"], sort_keys=False))
    return {
        "dataset": search.graph.name,
        "model": model,
        "trials": len({number for number, _ in search.done}),
        "winner": winner["trial"],
        "set": winner["set"],
        "score": winner["score"],
        "val": winner["val"],
        "seconds": time.perf_counter() - started,
        "recipe_file": str(path),
    }


def sustained(accuracy: Tensor, epochs: Tensor, window: int = _SUSTAINED) -> Tensor:
    """The best mean of ``window`` neighbouring epochs of every run, ``[runs]``.

    One lucky epoch of a jumping curve is no merit of a setting, and the highest of many epochs
    favours settings that jump.

    Args:
        accuracy: ``[epochs, runs]``, only the first ``epochs`` of a run count.
        epochs: ``[runs]``.
        window: how many epochs are averaged; all, of a shorter run.

    Example:
        >>> curve = torch.tensor([0.5, 0.9, 0.5, 0.8, 0.8]).unsqueeze(1)
        >>> sustained(curve, torch.tensor([5]), window=2)
        tensor([0.8000])
    """
    best = []
    for curve, length in zip(accuracy.T, epochs.tolist(), strict=True):
        windows = curve[:length].unfold(0, min(window, length), 1)
        best.append(windows.mean(dim=-1).max())
    return torch.stack(best)


def search_space(model: str, assignments: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The lists a trial draws from, by key; what is assigned stays as it is.

    Example:
        >>> search_space("gcnii", ["baseline.num_layers=8"])["baseline.theta"]
        [0.5, 1.0, 1.5]
    """
    text = resources.files("specformer.experiments") / "recipes" / "node_search.yaml"
    written = yaml.safe_load(text.read_text(encoding="utf-8"))
    shared = {} if model == "specformer" else written["baseline"]
    given = {assignment.partition("=")[0] for assignment in assignments}
    lists = {**shared, **written[model]}
    return {key: choices for key, choices in lists.items() if key not in given}


def _read(path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Trials done before, by number and splits."""
    if not path.is_file():
        return {}
    try:
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {(trial["trial"], trial["splits"]): trial for trial in found}
    except (ValueError, KeyError) as error:
        raise RunError(f"{path}: damaged ({error}); remove it to start anew.") from error
