r"""Compared models, of a comparison or of several runs: in words, as tables, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from specformer.errors import RunError
from specformer.reports import numbers
from specformer.reports.looks import Look, look
from specformer.reports.sections.blocks import Cell, Listing, Row, Section, Table
from specformer.reports.variants import KINDS, Entry, Rows, array_name, best_first, kept_arrays
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import paired_differences
from specformer.training.runs.folder import RunFolder

Result = Mapping[str, Any]


def looks(result: Result) -> dict[str, Look]:
    """The looks of the compared models, by their names."""
    return {row["name"]: row.look for row in Rows.of("rows", result, {}).entries}


def _labels(result: Result) -> dict[str, str]:
    return {name: style.label for name, style in looks(result).items()}


def figure(result: Result, reached: Mapping[str, Any]) -> str:
    """A mean with its interval, if it has one."""
    write, mean, ci95 = numbers.writer(result["metric"]), reached["mean"], reached.get("ci95")
    return write(mean) + ("" if ci95 is None else f" {numbers.spread(write, mean, ci95)}")


def signed(result: Result, difference: Mapping[str, Any] | None) -> tuple[str, str]:
    """A difference and its interval, for accuracies in points.

    Example:
        >>> signed({"metric": "accuracy"}, {"mean": -0.012, "ci95": 0.004})
        ('−1.2', '± 0.4')
    """
    if difference is None:
        return numbers.NONE, ""
    write, mean, ci95 = numbers.writer(result["metric"]), difference["mean"], difference["ci95"]
    sign = "+" if mean > 0 else "−" if mean < 0 else ""
    spread = "" if ci95 is None else f"± {write(ci95, like=ci95)}"
    return sign + write(abs(mean), like=abs(mean)), spread


def p_value(difference: Mapping[str, Any] | None) -> str:
    """The adjusted p-value of a difference.

    Example:
        >>> p_value({"p_holm": 0.0312}), p_value({"p_holm": 1e-7}), p_value({"p_holm": None})
        ('0.031', '< 0.001', '–')
    """
    if difference is None or (p := difference["p_holm"]) is None:
        return numbers.NONE
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def verdict(result: Result) -> str:
    """The best model, and which differences hold, in two or three sentences."""
    names, rows = _labels(result), result["rows"]
    metric, best = metric_named(result["metric"]), leaders(Rows.of("rows", result, {}).entries)
    verb, shown = "has", rows[0]["test"]
    if len(best) > 1:  # their intervals may differ
        verb, shown = "share", {"mean": shown["mean"]}
    reached = figure(result, shown)
    told = [
        f"On {result['dataset']}, {listed(best)} {verb} the best test {metric.label}, {reached}."
    ]
    if len(rows) > 1:
        told.append(_which_hold(result, names))
    if failed := [each["model"] for each in result.get("failures") or ()]:
        told.append(f"{listed(failed)} could not be trained.")
    return " ".join(told)


def _which_hold(result: Result, names: Mapping[str, str]) -> str:
    """Which models are better, worse or alike, seen from the one they are compared with."""
    if result["runs"] < 2:
        return "With one split nothing can be said of which differences hold; use --runs 10."
    lower = metric_named(result["metric"]).lower
    groups: dict[str, list[str]] = {"better than": [], "worse than": [], "alike": []}
    untested = []
    for row in result["rows"]:
        difference = row["difference"]
        if difference is None:
            continue
        if difference["holds"] is None:
            untested.append(names[row["name"]])
            continue
        is_better = (difference["mean"] > 0) == lower  # the other's figure minus this one's
        holds = "better than" if is_better else "worse than"
        groups[holds if difference["holds"] else "alike"].append(names[row["name"]])
    alike = groups.pop("alike")
    parts = [f"{word} {listed(group)}" for word, group in groups.items() if group]
    is_best = result["against"] == result["rows"][0]["name"]
    told = [f"is {' and '.join(parts)}"] if parts else []
    told += [f"cannot be told apart from {listed(alike)}"] if alike else []
    is_alone = len(leaders(Rows.of("rows", result, {}).entries)) == 1
    who = "It" if is_best and is_alone else names[result["against"]]
    said = [f"{who} {' and '.join(told)} ({how_tested(result)})."] if told else []
    if untested:
        said.append(
            f"To {listed(untested)} the difference is the same in every split: there is no test."
        )
    return " ".join(said)


def how_tested(result: Result) -> str:
    """The statistical test in words."""
    over = "splits, corrected for the training data they share"
    if result["is_one_split"]:
        over = "runs with one test part: it says nothing of other splits"
    return f"paired t-test over {result['runs']} {over}; Holm-adjusted p < 0.05"


def leaders(ranked: Sequence[Entry]) -> list[str]:
    """The labels of the best entry and of those with the same figure; ``ranked``: best first."""
    return [entry.look.label for entry in ranked if entry.mean == ranked[0].mean]


def listed(names: Sequence[str]) -> str:
    """Names joined for a sentence: a, b and c."""
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
    link = Markup('<a href="{}/report.html">{}</a>')
    reports = Markup(", ").join(
        link.format(quote(row["folder"]), style.label)
        for row, style in zip(rows, looks(result).values(), strict=True)
    )
    failures = tuple((each["model"], each["error"]) for each in result.get("failures") or ())
    return Section(
        anchor="comparison",
        title="Which differences hold",
        intro=intro,
        notes=(("Reports of the models", reports),),
        blocks=(
            standings(result),
            _pairs(result),
            Listing("Models that could not be trained.", ("Model", "Why"), failures),
            settings,
        ),
    )


def standings(result: Result) -> Table:
    """One row per model, the best first: what it reached, and its difference to one of them."""
    other, metric = _labels(result)[result["against"]], metric_named(result["metric"])
    points = ", points" if metric.name == "accuracy" else ""
    lines = []
    for row in Rows.of("rows", result, {}).entries:
        difference = row["difference"] or {}
        cells = (
            Cell(row.trained_by),
            Cell(numbers.count(row["parameters"]), value=row["parameters"]),
            _reached_cell(result, row["test"]),
            _reached_cell(result, row["val"]),
            _signed_cell(result, row["difference"]),
            Cell(p_value(row["difference"]), value=difference.get("p_holm")),
            Cell({None: numbers.NONE, True: "yes", False: "no"}[difference.get("holds")]),
            Cell(numbers.duration(row["seconds"]), value=row["seconds"]),
        )
        lines.append(Row(row.look, cells))
    columns = (
        "Recipe", "Parameters", f"Test {metric.label}", "Validation", f"To {other}{points}",
        "p (Holm)", "Holds", "Time",
    )  # fmt: skip
    caption = f"The best first, with differences to {other} and 95% intervals."
    return Table(caption, columns, tuple(lines))


def _reached_cell(result: Result, reached: Mapping[str, Any]) -> Cell:
    """A mean in a table, with its interval below."""
    mean, _, spread = figure(result, reached).partition(" ")
    return Cell(mean, spread, value=reached["mean"])


def _signed_cell(result: Result, difference: Mapping[str, Any] | None) -> Cell:
    """A difference in a table, bold where it holds."""
    told, known = signed(result, difference), difference or {}
    return Cell(*told, best=bool(known.get("holds")), value=known.get("mean"))


def _pairs(result: Result) -> Table:
    """Every model (down) minus every other (across)."""
    styles, found = looks(result), {}
    for each in result["differences"]:
        found[each["model"], each["against"]] = each
        found[each["against"], each["model"]] = {**each, "mean": -each["mean"]}
    lines = tuple(
        Row(style, tuple(_signed_cell(result, found.get((name, other))) for other in styles))
        for name, style in styles.items()
    )
    caption = "All pairs: the model of the row minus that of the column, bold where it holds."
    columns = tuple(style.label for style in styles.values())
    return Table(caption, columns, lines if len(lines) > 2 else ())


#: The size of a test part over that of its training part, as in 60/20/20.
_OVERLAP = 1 / 3
#: Settings that say where and how a run was made, not what it computed.
_ASIDE = ("command", "repeat", "set", "device", "settings.description", "lanes", "tensorboard")


def merged_runs(runs: Sequence[RunFolder]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """All runs as the result and arrays of one run, in which each is a recipe of its model.

    What runs share, such as the eigenvalues and the true images of filters, is left out where they
    differ in it: one run's answers over another's truth would be wrong.
    """
    merged: dict[str, Any] = {kind: [] for kind in KINDS}
    arrays: dict[str, np.ndarray] = {}
    common: dict[str, list[np.ndarray]] = {}
    spectra: dict[str, Any] = {}
    for name, run in names_of_runs(runs).items():
        result = run.result()
        arrays_here = kept_arrays(run)
        for kind in KINDS:
            entries = Rows.of(kind, result, arrays_here).entries
            several = len({entry.get("recipe") for entry in entries}) > 1
            for entry in entries:
                recipe = entry.get("recipe")
                own = f"{name}, {recipe}" if several else name
                merged[kind].append({**entry, "recipe": own, "trained_by": recipe})
                where = f"{kind}/{entry.where}/{array_name(entry['model'], own)}"
                arrays |= {f"{where}/{what}": array for what, array in entry.arrays.items()}
        for key, array in arrays_here.items():
            if key.count("/") == 1 or key.endswith(("/target", "/true")):
                common.setdefault(key, []).append(array)
        spectra |= {each["name"]: each for each in result.get("spectra") or ()}
    found = {kind: entries for kind, entries in merged.items() if entries}
    if not found:
        raise RunError("None of the runs recorded figures to compare.")
    arrays |= {
        key: first
        for key, (first, *others) in common.items()
        if all(np.array_equal(first, other) for other in others)
    }
    title = f"{len(runs)} runs side by side"
    return {"kind": "comparison", "title": title, "spectra": [*spectra.values()], **found}, arrays


def names_of_runs(runs: Sequence[RunFolder]) -> dict[str, RunFolder]:
    """The runs by their folders' names, with the folder above if two have the same name."""
    paths = [run.path.resolve() for run in runs]
    if len(set(paths)) < len(paths):
        raise RunError("A run is named twice; name every run once.")
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
        blocks=(*_paired_listings(result), differing_settings(names_of_runs(runs))),
    )


def _paired_listings(result: Mapping[str, Any]) -> Iterator[Listing]:
    """The paired differences of the runs on each filter or data set."""
    for kind in KINDS:
        for name, group in Rows.of(kind, result, {}).groups.items():
            alike: dict[Any, list[Entry]] = {}  # the same metric and splits
            for entry in group:
                values = entry.reached.get("values") or ()
                if len(values) > 1:
                    splits = tuple(entry.get("splits") or range(len(values)))
                    alike.setdefault((entry.get("metric"), splits), []).append(entry)
            yield from (_paired_listing(name, own) for own in alike.values() if len(own) > 1)


def _paired_listing(name: str, group: Sequence[Entry]) -> Listing:
    measured = "sse" if "filter" in group[0] else group[0].metric.name
    lower = measured == "sse" or group[0].metric.lower
    figures = {
        f"{look(each['model']).label} ({each['recipe']})": each.reached["values"]
        for each in best_first(group, lower=lower)
    }
    shared = len(set(group[0].get("splits") or ())) > 1
    rows = [
        (
            each["model"],
            each["against"],
            *signed({"metric": measured}, each),
            p_value(each),
            {True: "holds", False: "may be chance", None: numbers.NONE}[each["holds"]],
        )
        for each in paired_differences(figures, _OVERLAP if shared else 0.0)
    ]
    what = "points of accuracy" if measured == "accuracy" else measured.upper()
    count = len(group[0].reached["values"])
    return Listing(
        f"{name}: differences in {what} over {count} splits or images, the better run first, with "
        "95% intervals and p-values adjusted for all pairs (paired t-test, Holm"
        + ("; corrected for splits that share data, Nadeau and Bengio)." if shared else ")."),
        ("Run", "Compared with", "Difference", "95%", "p", "Verdict"),
        tuple(rows),
    )


def differing_settings(runs: Mapping[str, RunFolder]) -> Listing:
    """The settings that are not the same in all runs; of several models, only those all have."""
    configs = [_config(run) for run in runs.values()]
    is_shared = len({config.get("model") for config in configs}) > 1
    rows = tuple(_differing(configs, is_shared))
    return Listing("Settings that differ.", ("Setting", *runs), rows, aside=True)


def _config(run: RunFolder) -> dict[str, Any]:
    """A run's configuration with the settings that were used: those of the form it took."""
    config = run.config()
    used = (run.result().get("settings") if run.is_finished else None) or {}
    settings = {key: used.get(key, value) for key, value in config.get("settings", {}).items()}
    return {**config, "settings": settings}


def _differing(
    settings: Sequence[Mapping[str, Any]], is_shared: bool, before: str = ""
) -> Iterator[tuple[str, ...]]:
    """Settings that are not the same; for a group that some runs lack, at most its names."""
    for key in dict.fromkeys(key for own in settings for key in own):
        name, values = f"{before}{key}", [own.get(key, numbers.NONE) for own in settings]
        if all(isinstance(value, Mapping) and value for value in values):
            yield from _differing(values, is_shared, f"{name}.")
        elif name not in _ASIDE and not (is_shared and numbers.NONE in values):
            told = [
                (", ".join(map(str, value)) or numbers.NONE)
                if isinstance(value, (Mapping, list))
                else str(value)
                for value in values
            ]
            if len(set(told)) > 1:
                yield name.removeprefix("settings."), *told
