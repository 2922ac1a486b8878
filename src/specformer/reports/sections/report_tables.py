r"""A result's numbers as tables: models down, filters or data sets across, the best marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specformer.reports import numbers
from specformer.reports.looks import Look
from specformer.reports.variants import Entry, Variant, variant, variant_looks

#: A table of features has at most so many columns of the data.
MOST_COLUMNS = 40
#: A set with more targets than this has no table of its targets.
MOST_TARGETS = 24


@dataclass(frozen=True)
class Cell:
    """A number as it is printed, its interval, and whether it is the best of its column's many.

    ``value`` is the number itself, which tables are sorted by.
    """

    text: str
    spread: str = ""
    best: bool = False
    value: float | None = None


@dataclass(frozen=True)
class Row:
    """One model, or one recipe of a model trained with several."""

    look: Look
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A caption, column heads, and rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Listing:
    """A caption, column heads, and rows of words."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def prepared_features(entries: Sequence[Entry]) -> Listing:
    """How each column of the first data set that has raw ones was prepared, in its first run."""
    told = next((entry["features"] for entry in entries if entry.get("features")), ())
    rows = tuple((str(each["column"]), str(each["prepared"])) for each in told[:MOST_COLUMNS])
    more = f" The first {MOST_COLUMNS} of {len(told)}." if len(told) > MOST_COLUMNS else ""
    caption = "How columns of features were prepared; numbers are the first run’s training nodes’."
    return Listing(caption + more, ("Column", "Prepared"), rows)


def comparison(
    caption: str,
    entries: Sequence[Entry],
    *,
    across: str,
    metric: str,
    lower_is_better: bool,
    write: Callable[..., str],
    looks: Mapping[Variant, Look] | None = None,
) -> Table:
    """One metric of every model (down) in every filter or data set (across).

    ``looks``: those of more entries than these, where models shall look the same as there.
    """
    columns = tuple(dict.fromkeys(str(entry[across]) for entry in entries))
    found = {(variant(entry), str(entry[across])): entry.get(metric) or {} for entry in entries}
    sign = 1 if lower_is_better else -1
    best: dict[str, str] = {}
    for column in columns:
        means = [
            value["mean"]
            for (_, where), value in found.items()
            if where == column and value.get("mean") is not None
        ]
        if len(means) > 1:
            best[column] = write(min(means, key=lambda mean: sign * mean))

    def cell(who: Variant, column: str) -> Cell:
        value = found.get((who, column), {})
        mean = value.get("mean")
        if mean is None:
            return Cell(numbers.NONE)
        text, ci95 = write(mean), interval(value)
        spread = "" if ci95 is None else numbers.spread(write, mean, ci95)
        # Numbers that print alike are equally good to the reader.
        return Cell(text, spread, best=text == best.get(column), value=mean)

    present = {variant(entry) for entry in entries}
    rows = tuple(
        Row(style, tuple(cell(who, column) for column in columns))
        for who, style in (looks or variant_looks(entries)).items()
        if who in present
    )
    return Table(caption, columns, rows)


def by_target(entries: Sequence[Entry]) -> list[Entry]:
    """An entry for each of several targets, under ``target``, if they are not too many."""
    return [
        {**entry, "target": name, "test": figures or {}}
        for entry in entries
        if len(entry.get("test_by_target") or ()) <= MOST_TARGETS
        for name, figures in (entry.get("test_by_target") or {}).items()
    ]


def costs(caption: str, entries: Sequence[Entry], repeats: str) -> Table:
    """What each model took: its size, and epochs and time over all it was trained on."""
    rows = []
    for who, style in variant_looks(entries).items():
        own = [entry for entry in entries if variant(entry) == who]
        sizes = sorted({entry["parameters"] for entry in own if entry.get("parameters")})
        size = " to ".join(numbers.count(value) for value in dict.fromkeys(sizes[:1] + sizes[-1:]))
        epochs = [entry["epochs"] for entry in own if entry.get("epochs") is not None]
        seconds = [entry["seconds"] for entry in own if entry.get("seconds") is not None]
        runs = sum(int(entry.get(repeats) or 0) for entry in own)
        cells = (
            Cell(str(own[0].get("recipe") or numbers.NONE)),
            Cell(size or numbers.NONE, value=sizes[0] if sizes else None),
            _number(numbers.count, runs or None),
            _number(numbers.count, sum(epochs) / len(epochs) if epochs else None),
            _number(numbers.duration, sum(seconds) if seconds else None),
        )
        rows.append(Row(style, cells))
    columns = ("Recipe", "Parameters", "Runs", "Mean epochs", "Time, all runs")
    return Table(caption, columns, tuple(rows))


def _number(write: Callable[[float | None], str], value: float | None) -> Cell:
    return Cell(write(value), value=value)


def interval(value: Mapping[str, Any]) -> float | None:
    """The 95% interval; a single run has none."""
    ci95 = value.get("ci95")
    return None if len(value.get("values") or (0, 0)) < 2 else ci95
