r"""Several runs side by side: one result and one set of arrays, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from specformer.errors import RunError
from specformer.reports import numbers
from specformer.reports.looks import look
from specformer.reports.sections.blocks import Listing, Section
from specformer.reports.standings import chance, signed
from specformer.reports.variants import Entry, array_name, entries_by
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import paired_differences
from specformer.training.runs.folder import OUTPUTS, RunFolder

#: What the rows of a result are called, and what they are rows of.
_KINDS = {
    "filters": "filter", "nodes": "dataset", "links": "dataset", "molecules": "dataset",
}  # fmt: skip
#: A test part over the training part that it was drawn beside, as in 60/20/20.
_OVERLAP = 1 / 3
#: Settings that say where and how a run was made, not what it is.
_ASIDE = ("command", "repeat", "set", "device", "settings.description", "lanes", "tensorboard")


def laid_together(runs: Sequence[RunFolder]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The result and the arrays of all runs as those of one: each run is a recipe of its model."""
    merged: dict[str, Any] = {kind: [] for kind in _KINDS}
    arrays: dict[str, np.ndarray] = {}
    spectra: dict[str, Any] = {}
    for name, run in names_of(runs).items():
        result = run.result()
        held = run.outputs() if (run.path / OUTPUTS).exists() else {}
        for kind in _KINDS:
            entries: Sequence[Entry] = result.get(kind) or ()
            several = len({entry.get("recipe") for entry in entries}) > 1
            for entry in entries:
                own = f"{name}, {entry['recipe']}" if several else name
                merged[kind].append({**entry, "recipe": own})
                arrays |= dict(_renamed(held, kind, entry, own))
        arrays |= {key: array for key, array in held.items() if key.count("/") == 1}
        arrays |= {key: array for key, array in held.items() if key.endswith(("/target", "/true"))}
        spectra |= {each["name"]: each for each in result.get("spectra") or ()}
    found = {kind: entries for kind, entries in merged.items() if entries}
    if not found:
        raise RunError("None of the runs recorded figures to compare.")
    title = f"{len(runs)} runs side by side"
    return {"kind": "comparison", "title": title, "spectra": [*spectra.values()], **found}, arrays


def _renamed(
    held: Mapping[str, np.ndarray], kind: str, entry: Entry, own: str
) -> Iterator[tuple[str, np.ndarray]]:
    """A row's arrays under the name that its run has here."""
    where, model = f"{kind}/{entry[_KINDS[kind]]}", str(entry["model"])
    full = array_name(model, str(entry.get("recipe") or ""))
    for label in (model, full):
        prefix = f"{where}/{label}/"
        for key, array in held.items():
            if key.startswith(prefix):
                yield f"{where}/{array_name(model, own)}/{key.removeprefix(prefix)}", array


def names_of(runs: Sequence[RunFolder]) -> dict[str, RunFolder]:
    """The runs by their folders' names, with the folder above where two are called the same."""
    paths = [run.path.resolve() for run in runs]
    if len(set(paths)) < len(paths):
        raise RunError("Give every run once.")
    short = [path.name for path in paths]
    long = ["/".join(path.parts[-2:]) for path in paths]
    own = [a if short.count(a) == 1 else b for a, b in zip(short, long, strict=True)]
    return dict(zip(own if len(set(own)) == len(own) else map(str, paths), runs, strict=True))


def differences_section(runs: Sequence[RunFolder], result: Mapping[str, Any]) -> Section:
    """Which differences hold, and which settings differ."""
    return Section(
        anchor="differences",
        title="What differs",
        intro=(
            "Runs on the same splits are compared split by split: what they share cancels out, "
            "and a difference holds if chance would rarely give one as large."
        ),
        blocks=(*_paired(result), differing_settings(names_of(runs))),
    )


def _paired(result: Mapping[str, Any]) -> Iterator[Listing]:
    """Paired differences of the runs on one filter or data set."""
    for kind, key in _KINDS.items():
        metric = "sse" if kind == "filters" else "test"
        for name, group in entries_by(result.get(kind) or (), key).items():
            for same in _alike(group, metric):
                yield _told(name, same, metric)


def _alike(group: Sequence[Entry], metric: str) -> Iterator[list[Entry]]:
    """The rows of a data set that can be compared split by split: two or more of the same."""
    found: dict[Any, list[Entry]] = {}
    for entry in group:
        values = (entry.get(metric) or {}).get("values") or ()
        splits = tuple(entry.get("splits") or range(len(values)))
        if len(values) > 1:
            found.setdefault((entry.get("metric"), splits), []).append(entry)
    yield from (rows for rows in found.values() if len(rows) > 1)


def _told(name: str, group: Sequence[Entry], metric: str) -> Listing:
    measured = str(group[0].get("metric") or ("sse" if metric == "sse" else "accuracy"))
    lower = metric == "sse" or metric_named(measured).lower
    figures = {
        f"{look(each['model']).label} ({each['recipe']})": each[metric]["values"] for each in group
    }
    shared = len(set(group[0].get("splits") or ())) > 1
    rows = [
        (
            each["model"],
            each["against"],
            *signed({"metric": measured}, each),
            chance(each),
            {True: "holds", False: "may be chance", None: numbers.NONE}[each["holds"]],
        )
        for each in paired_differences(figures, lower=lower, overlap=_OVERLAP if shared else 0.0)
    ]
    what = "points of accuracy" if measured == "accuracy" else measured.upper()
    count = len(group[0][metric]["values"])
    return Listing(
        f"{name}: differences in {what} over {count} splits or images, the better run first, with "
        "95% intervals and p-values adjusted for all pairs (paired t-test, Holm"
        + ("; corrected for splits that share data, Nadeau and Bengio)." if shared else ")."),
        ("Better", "Than", "Difference", "95%", "p", "Verdict"),
        tuple(rows),
    )


def differing_settings(runs: Mapping[str, RunFolder]) -> Listing:
    """The settings that are not the same in all runs."""
    rows = tuple(_differing([run.config() for run in runs.values()]))
    return Listing("Settings that differ.", ("Setting", *runs), rows, aside=True)


def _differing(
    settings: Sequence[Mapping[str, Any]], before: str = ""
) -> Iterator[tuple[str, ...]]:
    """Settings that are not the same; of a group that some runs lack, its names alone."""
    for key in dict.fromkeys(key for own in settings for key in own):
        name, values = f"{before}{key}", [own.get(key, numbers.NONE) for own in settings]
        if all(isinstance(value, Mapping) and value for value in values):
            yield from _differing(values, f"{name}.")
        elif name not in _ASIDE:
            told = [
                (", ".join(map(str, value)) or numbers.NONE)
                if isinstance(value, (Mapping, list))
                else str(value)
                for value in values
            ]
            if len(set(told)) > 1:
                yield name.removeprefix("settings."), *told
