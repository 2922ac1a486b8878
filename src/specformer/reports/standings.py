r"""Models compared, by a comparison or run beside run: in words, as tables, as sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from specformer.errors import RunError
from specformer.reports import numbers
from specformer.reports.looks import look
from specformer.reports.sections.blocks import Cell, Listing, Row, Section, Table
from specformer.reports.variants import Entry, array_name, entries_by, variant, variant_looks
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import paired_differences
from specformer.training.runs.folder import OUTPUTS, RunFolder

Result = Mapping[str, Any]


def labels(result: Result) -> dict[str, str]:
    """What the compared models are called, by their names."""
    looks = variant_looks(result["rows"])
    return {row["name"]: looks[variant(row)].label for row in result["rows"]}


def writer(result: Result) -> Callable[..., str]:
    """How figures of its metric are written: accuracies in per cent."""
    return numbers.percent if result["metric"] == "accuracy" else numbers.error


def figure(result: Result, reached: Mapping[str, Any]) -> str:
    """A mean with its interval, if it has one."""
    write, mean, ci95 = writer(result), reached["mean"], reached["ci95"]
    return write(mean) + ("" if ci95 is None else f" {numbers.spread(write, mean, ci95)}")


def signed(result: Result, difference: Mapping[str, Any] | None) -> tuple[str, str]:
    """A difference and its interval; of accuracies in points.

    Example:
        >>> signed({"metric": "accuracy"}, {"mean": -0.012, "ci95": 0.004})
        ('−1.2', '± 0.4')
    """
    if difference is None:
        return numbers.NONE, ""
    write, mean, ci95 = writer(result), difference["mean"], difference["ci95"]
    sign = "+" if mean > 0 else "−" if mean < 0 else ""
    spread = "" if ci95 is None else f"± {write(ci95, like=ci95)}"
    return sign + write(abs(mean), like=abs(mean)), spread


def chance(difference: Mapping[str, Any] | None) -> str:
    """The adjusted p-value of a difference.

    Example:
        >>> chance({"p_holm": 0.0312}), chance({"p_holm": 1e-7}), chance({"p_holm": None})
        ('0.031', '< 0.001', '–')
    """
    p = None if difference is None else difference["p_holm"]
    if p is None:
        return numbers.NONE
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def held(difference: Mapping[str, Any] | None) -> str:
    """Whether a difference holds, in a word."""
    told = None if difference is None else difference["holds"]
    return numbers.NONE if told is None else "yes" if told else "no"


def comparison_lines(result: Result) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a table, one per model, the best first."""
    names, metric = labels(result), metric_named(result["metric"])
    points = ", points" if result["metric"] == "accuracy" else ""
    header = [
        "model", "recipe", "parameters", f"test {metric.label}", "validation",
        f"to {names[result['against']]}{points}", "p (Holm)", "holds", "seconds",
    ]  # fmt: skip
    lines = [
        [
            names[row["name"]],
            ", ".join(filter(None, (row["recipe"], row.get("form")))),
            numbers.count(row["parameters"]),
            figure(result, row["test"]),
            figure(result, row["val"]),
            " ".join(filter(None, signed(result, row["difference"]))),
            chance(row["difference"]),
            held(row["difference"]),
            f"{row['seconds']:.1f}",
        ]
        for row in result["rows"]
    ]
    return header, lines


def verdict(result: Result) -> str:
    """Who leads, and which differences hold, in two or three sentences."""
    names, rows = labels(result), result["rows"]
    metric = metric_named(result["metric"])
    reached = figure(result, rows[0]["test"])
    told = [
        f"On {result['dataset']}, {names[rows[0]['name']]} has the best test {metric.label}, "
        f"{reached}."
    ]
    if len(rows) > 1:
        told.append(_which_hold(result, names))
    failed = [each["model"] for each in result.get("failures") or ()]
    if failed:
        told.append(f"{_listed(failed)} could not be trained.")
    return " ".join(told)


def _which_hold(result: Result, names: Mapping[str, str]) -> str:
    """What can be said of the model that the others are compared with."""
    if result["runs"] < 2:
        return "With one split nothing can be said of which differences hold; use --runs 10."
    lower = metric_named(result["metric"]).lower
    groups: dict[str, list[str]] = {"better than": [], "worse than": [], "alike": []}
    for row in result["rows"]:
        difference = row["difference"]
        if difference is None:
            continue
        is_better = (difference["mean"] > 0) == lower  # the other's figure minus this one's
        holds = "better than" if is_better else "worse than"
        groups[holds if difference["holds"] else "alike"].append(names[row["name"]])
    alike = groups.pop("alike")
    parts = [f"{word} {_listed(group)}" for word, group in groups.items() if group]
    is_best = result["against"] == result["rows"][0]["name"]
    told = [f"is {' and '.join(parts)}"] if parts else []
    told += [f"cannot be told apart from {_listed(alike)}"] if alike else []
    who = "It" if is_best else names[result["against"]]
    return f"{who} {' and '.join(told)} ({how_tested(result)})."


def how_tested(result: Result) -> str:
    """The test in words."""
    adjusted = "Holm-adjusted p < 0.05"
    if result["is_one_split"]:
        return (
            f"paired t-test over {result['runs']} runs with one test part: it says nothing of "
            f"other splits; {adjusted}"
        )
    return (
        f"paired t-test over {result['runs']} splits, corrected for the training data they share; "
        f"{adjusted}"
    )


def _listed(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def standings_section(result: Result, settings: Listing) -> Section:
    """A report's section: which differences of compared models hold, and their settings."""
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    intro = "With one split nothing can be said of which differences hold."
    if result["runs"] > 1:
        intro = (
            "All models had the same splits, so they are compared split by split: a split that is "
            "hard is hard for all. A difference holds by the "
            f"{how_tested(result)}, over all pairs."
        )
    told = "each has its own folder beside this page, with its models and its report: "
    folders = told + ", ".join(f"{row['folder']}/" for row in rows)
    failures = tuple((each["model"], each["error"]) for each in result.get("failures") or ())
    return Section(
        anchor="comparison",
        title="Which differences hold",
        intro=intro,
        notes=(("Runs of the models", folders),),
        blocks=(
            _standings(result, rows),
            _pairs(result, rows),
            Listing("Models that could not be trained.", ("Model", "Why"), failures),
            settings,
        ),
    )


def _standings(result: Result, rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row per model: what it reached, and how that differs from the one compared with."""
    looks, other = variant_looks(rows), labels(result)[result["against"]]
    metric = metric_named(result["metric"])
    points = " in points" if metric.name == "accuracy" else ""
    lines = []
    for row in rows:
        difference = row["difference"]
        text, spread = signed(result, difference)
        value = None if difference is None else difference["mean"]
        p = None if difference is None else difference["p_holm"]
        holds = bool(difference and difference["holds"])
        cells = (
            Cell(figure(result, row["test"]), value=row["test"]["mean"]),
            Cell(figure(result, row["val"]), value=row["val"]["mean"]),
            Cell(text, spread, best=holds, value=value),
            Cell(chance(difference), value=p),
            Cell(numbers.count(row["parameters"]), value=row["parameters"]),
            Cell(numbers.duration(row["seconds"]), value=row["seconds"]),
        )
        lines.append(Row(looks[variant(row)], cells))
    caption = (
        f"The best first. The difference to {other}{points} is bold where it holds; intervals are "
        "of 95%."
    )
    columns = (
        f"Test {metric.label}", "Validation", f"To {other}", "p (Holm)", "Parameters",
        "Time, in all",
    )  # fmt: skip
    return Table(caption, columns, tuple(lines))


def _pairs(result: Result, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Every model (down) minus every other (across)."""
    looks, names = variant_looks(rows), labels(result)
    found = {(each["model"], each["against"]): each for each in result["differences"]}

    def cell(one: str, other: str) -> Cell:
        each, sign = found.get((one, other)), 1.0
        if each is None:
            each, sign = found.get((other, one)), -1.0
        if each is None:
            return Cell(numbers.NONE)
        mean = sign * each["mean"]
        text, spread = signed(result, {**each, "mean": mean})
        return Cell(text, spread, best=bool(each["holds"]), value=mean)

    lines = tuple(
        Row(looks[variant(row)], tuple(cell(row["name"], other["name"]) for other in rows))
        for row in rows
    )
    caption = "All pairs: the model of the row minus that of the column, bold where it holds."
    return Table(caption, tuple(names[row["name"]] for row in rows), lines if len(rows) > 2 else ())


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
