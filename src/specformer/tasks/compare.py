r"""Compare models on the same splits: ``specformer compare``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from specformer.datasets import Split
from specformer.errors import ConfigError, RunError, SpecformerError, system_sentence
from specformer.files import user_cache
from specformer.graphs import Columns, Graph, as_graph, write_npz
from specformer.reports.html import write_report
from specformer.reports.variants import Rows, array_name, best_first
from specformer.tasks.contest import (
    Comparison,
    Contest,
    check_folder,
    check_kept,
    contest,
    folder_name,
)
from specformer.tasks.estimate import Estimate
from specformer.tasks.job import Job, Request, Workplace, source_name
from specformer.tasks.resolve import TASKS
from specformer.tasks.train import keep, tell, train
from specformer.tasks.tune import searched, spent
from specformer.training.engine.capture import release_memory
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import paired_differences
from specformer.training.runs.environment import choose_device
from specformer.training.runs.folder import CONFIG, DATA, REPORT, RESULT, RunFolder
from specformer.training.runs.progress import Progress, Recorded, Silent

logger = logging.getLogger(__name__)

#: The folder of all searches in a comparison's folder.
_SEARCH = "search"
#: Keys of a model's result that a comparison needs.
_NEEDED = ("dataset", "metric", "model", "recipe", "test", "val", "parameters", "seconds")
#: The error of a kept run whose files were changed.
_ODD = "cannot be compared"
#: Keys for a model's own report alone.
_OWN = ("worst", "features", "test_by_target")


def compare(
    source: Any,
    models: Sequence[str] | None = None,
    *,
    seconds: float | None = None,
    runs: int | None = None,
    seed: int = 0,
    against: str | None = None,
    changes: Sequence[str] = (),
    task: str | None = None,
    metric: str | None = None,
    columns: Columns | None = None,
    device: str = "auto",
    data: str | Path | None = None,
    cache: str | Path | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Train several models on the same splits of a graph or of molecules, and test which is better.

    Args:
        source: a data set's name, a file or a folder, as ``specformer train`` takes them, or a
            graph with labels that :func:`specformer.as_graph` takes, a PyG ``Data`` say.
        models: names, each perhaps with a recipe: ``"specformer:best"``; None for the usual ones.
        seconds: search for each model's settings that long, on validation data; None to train
            each by its recipe.
        runs: splits; None for ten, or those of the file, and three of molecules.
        seed: of everything drawn at random.
        against: the model that rows give the difference to; None for the best.
        changes: ``key=value`` changes of all recipes.
        task: ``"regression"`` or ``"classification"``; None to decide by the targets.
        metric: what models are judged by, as ``specformer train`` has it; None for the usual one.
        columns: which column of a file is what, where their names do not tell.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        data: the folder with data files.
        cache: the folder that keeps spectra; None for the one in the user's cache.
        out: the folder to write; what it holds already is not trained again. None for a new one
            in ``runs/``. A graph that is not a file is kept in it too, so it needs one.
        progress: shows how far the work is.

    Example:
        >>> import os, tempfile
        >>> os.chdir(tempfile.mkdtemp())
        >>> found = compare("csbm", ["gcn", "mlp"], runs=3, changes=["schedule.epochs=20"])
        >>> [row["model"] for row in found.rows]
        ['gcn', 'mlp']
    """
    if not isinstance(source, str | Path):  # jobs name a file
        graph = as_graph(source)
        if out is None:
            raise ConfigError("out: name a folder; the graph is kept there.")
        source = _kept_in(Path(out), graph)
    request = Request(
        str(source),
        changes=tuple(changes),
        task=task,
        metric=metric,
        columns=columns or Columns(),
    )
    target = choose_device(device)
    made = contest(request, models, seconds=seconds, runs=runs, seed=seed, device=str(target))
    folder = None if out is None else Path(out)
    place = Workplace(
        target,
        None if data is None else Path(data),
        user_cache("spectra") if cache is None else Path(cache),
        progress or Silent(),
    )
    return compare_models(made, place, folder, against)


def compare_models(
    made: Contest,
    place: Workplace,
    folder: Path | None = None,
    against: str | None = None,
    on_begin: Callable[[RunFolder], object] = lambda _: None,
) -> Comparison:
    """Train all models that the folder does not hold yet, and compare them.

    A model that cannot be trained is left out with a warning. ``on_begin`` is called with the
    folder once the data are loaded and checked.
    """
    if against is not None and against not in made.jobs:
        raise ConfigError(
            f"--against {against}: is not among the models compared; choose from "
            f"{', '.join(made.jobs)}."
        )
    if folder:
        check_folder(folder, made.config)
    data: Any = TASKS[made.first.kind].load(made.first, place)
    if folder:
        _refuse_other_data(made, folder, data.fingerprint)
    seconds, memory = len(made.jobs) * (made.seconds or 0.0), 0
    for job in made.jobs.values():
        with suppress(SpecformerError):  # reported when it is that model's turn
            if needs := data.beside(job, place).estimate(place.device):
                seconds, memory = seconds + needs.seconds, max(memory, needs.memory)
    tell(data.overview(), Estimate(seconds, memory), place)
    started = time.perf_counter()
    with _opened(made, folder) as run:
        on_begin(run)
        kept = [name for name in made.jobs if RunFolder(run.path / folder_name(name)).is_finished]
        found, arrays, failures = _train_all(made, run, data, place)
        before = sum(found[name]["seconds"] for name in kept if name in found)
        with ExitStack() as answering:
            for name in found:
                own = RunFolder(run.path / folder_name(name))
                answering.enter_context(own.answering_for_files(_ODD))
            result = {
                **_judged(found, data.splits, against),
                # Models that go on count their time before they were stopped.
                "seconds": max(
                    time.perf_counter() - started + before,
                    sum(result["seconds"] for result in found.values()),
                ),
                "failures": [{"model": name, "error": why} for name, why in failures.items()],
            }
            job = made.first
            complete = run.finish(
                job.kind, result, arrays, command=made.repeat, seed=job.seed, device=place.device
            )
            return Comparison(complete, run.path, write_report(run))


def _kept_in(folder: Path, graph: Graph) -> Path:
    """The file of a graph in a comparison's folder; refuses a folder that holds another graph."""
    path = folder / DATA
    with TemporaryDirectory() as aside:
        written = Path(aside) / DATA
        write_npz(written, graph)
        if not (path.exists() and path.read_bytes() == written.read_bytes()):
            if path.exists() and (folder / CONFIG).exists():
                raise RunError(
                    f"{folder}: holds a comparison on another graph; choose another out."
                )
            write_npz(path, graph)
    return path


def _refuse_other_data(made: Contest, folder: Path, fingerprint: str) -> None:
    """Refuse a folder with models of other data, as tables of both would mean nothing."""
    for name, job in made.jobs.items():
        own = RunFolder(folder / folder_name(name))
        entry: dict[str, Any] = {}
        if own.is_finished:
            with suppress(SpecformerError):  # reported when it is that model's turn
                entry = own.result(job.kind)[job.kind][0]
        if entry.get("data", fingerprint) != fingerprint:  # earlier versions do not say
            raise RunError(
                f"{own.path}: was trained on other data than those of {job.source} today; choose "
                "another --out."
            )


@contextmanager
def _opened(made: Contest, folder: Path | None) -> Iterator[RunFolder]:
    """The comparison's folder, locked for this process; removed after an error if it is empty."""
    name = f"compare-{source_name(made.first.source)}"
    run = RunFolder(folder) if folder else RunFolder.fresh("runs", name, made.config)
    with run.held():
        if folder:
            check_folder(folder, made.config)
            (folder / RESULT).unlink(missing_ok=True)  # until it has all the models
            RunFolder.create(folder, made.config)
        try:
            yield run
        except SpecformerError:
            run.withdraw()
            raise


def _train_all(
    made: Contest, run: RunFolder, data: Any, place: Workplace
) -> tuple[dict[str, dict[str, Any]], dict[str, np.ndarray], dict[str, str]]:
    """By name, the results of all models, their curves, and the errors of those that failed."""
    found: dict[str, dict[str, Any]] = {}
    arrays: dict[str, np.ndarray] = {}
    failures: dict[str, str] = {}
    for name, job in made.jobs.items():
        own = RunFolder(run.path / folder_name(name))
        try:
            kept = own.is_finished
            with own.held(), own.answering_for_files(_ODD) if kept else nullcontext():
                result = _trained(job, own, made.seconds, data, place)
        except Exception as error:  # go on with the others
            why = _sentence(error)
            failures[name] = why or f"{type(error).__name__}: {error}"
            logger.warning("%s is left out: %s", name, failures[name], exc_info=why is None)
            continue
        finally:
            release_memory()
        found[name] = result
        where = f"{job.kind}/{result['dataset']}"
        if (curve := own.outputs().get(f"{where}/{job.model}/curve")) is not None:
            arrays[f"{where}/{array_name(job.model, str(result['recipe']))}/curve"] = curve
    if not found:
        why = "; ".join(f"{name}: {text}" for name, text in failures.items())
        raise RunError(f"no model could be trained. {why}")
    return found, arrays, failures


def _sentence(error: Exception) -> str | None:
    """Why a model cannot be trained; None for an error that should not happen."""
    if isinstance(error, SpecformerError):
        return str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return "not enough memory; free some, or ask for less."
    return system_sentence(error) if isinstance(error, OSError) else None


def _trained(
    job: Job, run: RunFolder, seconds: float | None, data: Any, place: Workplace
) -> dict[str, Any]:
    """The result of a model in its folder, trained unless it is there already."""
    search = run.path.parent / _SEARCH / run.path.name
    if run.is_finished:
        check_kept(run, job, searched=seconds is not None)
        run.discard_checkpoints()  # it may have been killed after its result
    else:
        started: list[RunFolder] = []

        def begin() -> RunFolder:
            started.append(RunFolder.create(run.path, job.config))
            return run

        shown = Recorded(place.progress, lambda: run if started else None)
        try:
            if seconds is not None:
                job = searched(job, seconds, len(data.splits), search, place)
            trained = train(job, replace(place, progress=shown), begin, beside=data)
        except Exception:
            if started:
                run.withdraw()
            with suppress(OSError):
                run.path.rmdir()  # only where there is nothing in it
            raise
        keep(run, job, trained)
    if not (run.path / REPORT).exists():
        write_report(run)
    result = run.result(*_NEEDED, job.kind)
    if result[job.kind][0]["splits"] != [split.fingerprint for split in data.splits]:
        raise RunError(
            f"{run.path}: was trained on other splits than those of today: its recipe has others, "
            "or the data have changed; choose another --out."
        )
    return result if seconds is None else {**result, "search": spent(search)}


def _judged(
    found: Mapping[str, Mapping[str, Any]], splits: Sequence[Split], against: str | None
) -> dict[str, Any]:
    """The rows of all models, the best first, and the differences of all pairs."""
    first = next(iter(found.values()))
    kind, metric = first["kind"], metric_named(first["metric"])
    entries = {name: result[kind][0] for name, result in found.items()}
    is_fixed = len({split.test.tobytes() for split in splits}) == 1
    overlap = 0.0 if is_fixed else float(splits[0].test.sum() / splits[0].train.sum())
    measured = [{**result, "name": name} for name, result in found.items()]
    ranked = best_first(Rows.of("rows", {"rows": measured}, {}).entries, lower=metric.lower)
    names = [entry["name"] for entry in ranked]
    differences = paired_differences(
        {name: found[name]["test"]["values"] for name in names}, overlap
    )
    chosen = names[0] if against is None or against not in found else against
    return {
        "title": f"Models compared on {first['dataset']}",
        "dataset": first["dataset"],
        "metric": metric.name,
        "split": first["split"],
        "runs": first["runs"],
        "is_one_split": is_fixed,
        "overlap": overlap,
        "against": chosen,
        "rows": [_row(name, found[name], differences, chosen) for name in names],
        "differences": differences,
        kind: [
            {key: value for key, value in entry.items() if key not in _OWN}
            for entry in entries.values()
        ],
    }


def _row(
    name: str,
    result: Mapping[str, Any],
    differences: Sequence[Mapping[str, Any]],
    against: str,
) -> dict[str, Any]:
    """One model's figures, and the difference to the model ``against``; None for that one."""
    difference = None
    for each in differences:
        if {each["model"], each["against"]} == {name, against}:
            sign = 1.0 if each["model"] == name else -1.0
            difference = {**each, "model": name, "against": against, "mean": sign * each["mean"]}
    keys = ("model", "recipe", "form", "test", "val", "parameters", "seconds", "search")
    row = {"name": name, **{key: result[key] for key in keys if key in result}}
    return {**row, "folder": folder_name(name), "difference": difference}
