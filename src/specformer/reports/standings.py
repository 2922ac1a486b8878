r"""What a comparison of models found: in words, as a table, and as a section of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections.blocks import Cell, Listing, Row, Section, Table
from specformer.reports.variants import variant, variant_looks
from specformer.training.evaluation.graph_metrics import metric_named

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
