r"""A report's section: which differences of compared models hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections.report_tables import Cell, Listing, Row, Table
from specformer.reports.sections.section import Section, present
from specformer.reports.standings import chance, figure, how_tested, labels, signed
from specformer.reports.variants import variant, variant_looks
from specformer.training.evaluation.graph_metrics import metric_named


def standings_section(result: Mapping[str, Any]) -> Iterable[Section]:
    """The section of paired differences, if the result compares models."""
    if "differences" not in result:
        return
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    yield Section(
        anchor="comparison",
        title="Which differences hold",
        intro=_intro(result),
        notes=(("Runs of the models", _folders(rows)),),
        blocks=present(_standings(result, rows), _pairs(result, rows), _failures(result)),
    )


def _intro(result: Mapping[str, Any]) -> str:
    if result["runs"] < 2:
        return "With one split nothing can be said of which differences hold."
    return (
        "All models had the same splits, so they are compared split by split: a split that is hard "
        f"is hard for all. A difference holds by the {how_tested(result)}, over all pairs."
    )


def _folders(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the models' own runs are."""
    names = ", ".join(f"{row['folder']}/" for row in rows)
    return f"each has its own folder beside this page, with its models and its report: {names}"


def _standings(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
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
        f"Test {metric.label}", "Validation", f"To {other}", "p (Holm)", "Parameters", "Time",
    )  # fmt: skip
    return Table(caption, columns, tuple(lines))


def _pairs(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
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


def _failures(result: Mapping[str, Any]) -> Listing:
    """Who could not be trained, and why."""
    rows = tuple((each["model"], each["error"]) for each in result.get("failures") or ())
    return Listing("Models that could not be trained.", ("Model", "Why"), rows)
