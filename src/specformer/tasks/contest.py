r"""The models of a comparison, its folder, and its outcome."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from specformer.errors import ConfigError, RunError
from specformer.reports.standings import standings, verdict
from specformer.tasks.job import Job, Kind, Request
from specformer.tasks.resolve import TASKS, full_changes, kind_of, resolve
from specformer.training.runs.folder import CONFIG, RunFolder

#: The usual models, and the number of splits where it is not the task's own.
_OF_ONE_GRAPH = ("specformer", "gcn", "gat", "gprgnn", "mlp", "chebnetii", "gcnii")
_USUAL: dict[Kind, tuple[str, ...]] = {
    "nodes": _OF_ONE_GRAPH, "links": _OF_ONE_GRAPH, "molecules": ("specformer", "gin", "gps"),
}  # fmt: skip
_RUNS: dict[Kind, int] = {"molecules": 3}
#: Settings of a comparison that may differ when it goes on.
_CARRIED_OVER = {"models", "device", "repeat"}


@dataclass(frozen=True)
class Contest:
    """Models to compare on the same splits.

    ``jobs`` has one per model, by the name it was given: ``gcn``, or ``specformer:best`` for a
    recipe of its own. ``seconds`` says how long each model's settings are searched for; None to
    train each by its recipe.
    """

    request: Request
    jobs: Mapping[str, Job]
    seconds: float | None = None
    repeat: str = ""

    @property
    def first(self) -> Job:
        """The first of the jobs, for what all of them share."""
        return next(iter(self.jobs.values()))

    @property
    def config(self) -> dict[str, Any]:
        """The comparison as ``config.yaml`` holds it."""
        job = self.first
        return {
            "command": "compare",
            "source": job.source,
            "kind": job.kind,
            "models": list(self.jobs),
            "seconds": self.seconds,
            "runs": job.runs,
            **self.request.learned,
            "columns": self.request.columns.said,
            "set": list(self.request.changes),
            "seed": job.seed,
            "device": job.device,
            "repeat": self.repeat,
        }


def contest(
    request: Request,
    models: Sequence[str] | None = None,
    *,
    seconds: float | None = None,
    runs: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    repeat: str = "",
) -> Contest:
    """The comparison that is asked for, with names and settings checked."""
    kind = kind_of(request)
    if kind not in _USUAL:
        raise ConfigError(f"{request.source}: models are compared on nodes and on molecules only.")
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"--seconds {seconds:g}: it must be more than 0.")
    names = list(dict.fromkeys(models or _USUAL[kind]))
    if len(names) < 2:
        raise ConfigError(f"--models {names[0]}: a comparison needs at least two.")
    if len({folder_name(name) for name in names}) < len(names):
        raise ConfigError(f"--models {','.join(names)}: two of them would share a folder.")
    runs = _RUNS.get(kind) if runs is None else runs
    request = replace(request, changes=full_changes(kind, None, request.changes))
    jobs = {}
    for name in names:
        model, _, recipe = name.partition(":")
        changes = tuple(TASKS[kind].concerning(model, request.changes))
        own = replace(request, model=model, recipe=recipe or None, changes=changes)
        job = resolve(own, runs, kind, seed=seed, device=device)
        jobs[name] = replace(job, repeat=_train_command(own, job))
    return Contest(request, jobs, seconds, repeat)


def _train_command(request: Request, job: Job) -> str:
    """The command that trains one of the models alone."""
    words = ["specformer", "train", job.source, "--model", job.model, "--recipe", job.recipe]
    words += [] if job.runs is None else ["--runs", str(job.runs)]
    words += [word for key, text in request.learned.items() for word in (f"--{key}", text)]
    words += request.columns.words
    words += [word for change in request.changes for word in ("--set", change)]
    return shlex.join([*words, "--seed", str(job.seed)])


def folder_name(name: str) -> str:
    """The folder of a model in that of its comparison."""
    model, _, recipe = name.partition(":")
    return f"{model}-{Path(recipe).stem}" if recipe else model


def check_folder(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse the folder of anything but a comparison with these settings; models may differ."""
    run = RunFolder(path)
    run.refuse_unwritable()
    if not (path / CONFIG).exists():
        return
    known = run.config()
    if known.get("command") != "compare":
        raise RunError(f"{path}: is not a comparison's folder; choose another --out.")
    every = dict.fromkeys([*known, *config])
    keys = [key for key in every if key not in _CARRIED_OVER and known.get(key) != config.get(key)]
    if keys:
        told = "; ".join(
            f"{key}: {_shown(known.get(key))} there, {_shown(config.get(key))} here" for key in keys
        )
        raise RunError(
            f"{path}: holds a comparison of other settings ({told}); choose another --out."
        )


def _shown(value: Any) -> str:
    """A setting in words."""
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return "none" if value in (None, "") else str(value)


def check_kept(run: RunFolder, job: Job, *, searched: bool) -> None:
    """Refuse a finished run that is not of this job; ``searched`` settings may differ."""
    known, wanted = run.config(), job.config
    keys = {"source", "kind", "model", "runs", "seed"} | (set() if searched else {"settings"})
    if any(known.get(key) != wanted[key] for key in keys):
        raise RunError(
            f"{run.path}: holds a run of other settings; move it away, or choose another --out."
        )


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison.

    Args:
        result: ``rows``, the best model first; ``differences`` of all pairs; ``failures``; ….
        run_dir: the folder, with the run folder of every model in it.
        report: the HTML page.
    """

    result: Mapping[str, Any]
    run_dir: Path
    report: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One per model, the best first."""
        return list(self.result["rows"])

    @property
    def differences(self) -> list[dict[str, Any]]:
        """One per pair of models, see :func:`.paired_differences`."""
        return list(self.result["differences"])

    def __str__(self) -> str:
        header, lines = standings(self.result).as_text
        widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (header, *lines)
        ]
        return "\n".join([*table, verdict(self.result)])

    def _repr_html_(self) -> str:
        header, lines = standings(self.result).as_text
        head, *body = (
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line)
            for tag, line in (("th", header), *(("td", line) for line in lines))
        )
        rows = "".join(f"<tr>{row}</tr>" for row in (head, *body))
        return f"<table>{rows}</table><p>{escape(verdict(self.result))}</p>"
