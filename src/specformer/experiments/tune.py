r"""Search for the settings of a model on nodes or on many graphs: ``specformer tune``."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from specformer.errors import ConfigError
from specformer.experiments.graph_search import GraphTrials
from specformer.experiments.node_search import NodeTrials
from specformer.experiments.search import BEST, TRIALS, Search
from specformer.experiments.source_kind import source_kind
from specformer.experiments.training_job import full_changes
from specformer.files import write_text
from specformer.training.progress import Progress, Silent

#: By kind of source: splits that a trial trains on, and those of the finalists.
SPLITS = {"nodes": (3, 10), "molecules": (1, 3)}


def tune(
    source: str,
    *,
    model: str = "specformer",
    recipe: str | None = None,
    assignments: Sequence[str] = (),
    trials: int = 30,
    splits: int | None = None,
    finalists: int = 3,
    runs: int | None = None,
    seconds: float | None = None,
    explore: int = 20,
    parameters: int | None = None,
    start: str | Path | None = None,
    folder: Path,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Search, and leave the winner as ``best.yaml``, a recipe that ``train --recipe`` takes.

    The source, one graph or many, decides what is searched. Keys of ``assignments`` are not.

    Args:
        source: a data set's name, a file or a folder.
        model: what to tune.
        recipe: where to start; None as in ``train``.
        assignments: ``key=value`` changes that all trials have.
        trials: settings to try, the recipe's own first.
        splits: those a trial trains on; None for :data:`SPLITS`, as of ``runs``.
        finalists: trials to repeat on ``runs`` splits.
        runs: splits of the finalists.
        seconds: begin no other trial after this long; the finalists follow all the same.
        explore: trials before every second one changes one of the best.
        parameters: the most a model may have.
        start: of molecules, the folder of a finished run whose models every trial starts from.
        folder: of the search; what is there already is not run again.
        data: where data files are.
        cache: where spectra are kept.
        device: where to train.
        seed: of all that is drawn.
        progress: who is told.
    """
    kind = source_kind(source)
    if kind == "filters":
        raise ConfigError(f"{source}: signals are fitted, so there is nothing to validate on.")
    splits = SPLITS[kind][0] if splits is None else splits
    counted = {"trials": trials, "splits": splits, "finalists": finalists, "explore": explore}
    for name, value in {**counted, "runs": runs}.items():
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value}: at least one is needed.")
    if seconds is not None and not seconds >= 0:
        raise ConfigError(f"--seconds {seconds:g}: it must not be negative.")
    if start is not None and kind == "nodes":
        raise ConfigError(f"`--from` applies to molecules only; {source} is a single graph.")
    common: dict[str, Any] = {
        "model": model,
        "recipe": recipe,
        "assignments": full_changes(kind, model, assignments),
        "data": data,
        "cache": cache,
        "device": device,
        "seed": seed,
    }
    subject = (
        NodeTrials(source, **common)
        if kind == "nodes"
        else GraphTrials(source, start=start, **common)
    )
    if runs is None:  # a file may hold fewer splits
        runs = max(subject.runs if isinstance(subject, NodeTrials) else SPLITS[kind][1], splits)
    search = Search(subject, folder, seed=seed, explore=explore, parameters=parameters)
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
        "dataset": subject.name,
        "model": model,
        "metric": subject.metric,
        "trials": len({number for number, _ in search.done}),
        "winner": winner["trial"],
        "splits": winner["splits"],
        "set": winner["set"],
        "score": winner["score"],
        "val": winner["val"],
        "seconds": time.perf_counter() - started,
        "recipe_file": str(path),
        "trials_file": str(folder / TRIALS),
    }
