r"""A result's numbers as tables: models down, filters or data sets across, the best marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specformer.reports import numbers
from specformer.reports.style import OURS, Look, look

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """A number as it is printed, its interval, and whether it is its column's best."""

    text: str
    spread: str = ""
    best: bool = False


@dataclass(frozen=True)
class Row:
    """One model, or one recipe of a model trained with several."""

    look: Look
    label: str
    cells: tuple[Cell, ...]
    ours: bool = False


@dataclass(frozen=True)
class Table:
    """A caption, column heads, and rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def comparison(
    caption: str,
    entries: Sequence[Entry],
    *,
    across: str,
    metric: str,
    lower_is_better: bool,
    write: Callable[..., str],
) -> Table:
    """One metric of every model (down) in every filter or data set (across)."""
    columns = tuple(dict.fromkeys(str(entry[across]) for entry in entries))
    found = {(*_who(entry), str(entry[across])): entry.get(metric) or {} for entry in entries}
    sign = 1 if lower_is_better else -1
    best: dict[str, str] = {}
    for column in columns:
        means = [
            value["mean"]
            for (_, _, where), value in found.items()
            if where == column and value.get("mean") is not None
        ]
        if means:
            best[column] = write(min(means, key=lambda mean: sign * mean))

    def cell(who: tuple[str, str], column: str) -> Cell:
        value = found.get((*who, column), {})
        mean = value.get("mean")
        if mean is None:
            return Cell(numbers.NONE)
        text, ci95 = write(mean), interval(value)
        spread = "" if ci95 is None else f"± {write(ci95, like=mean)}"
        # Numbers that print alike are equally good to the reader.
        return Cell(text, spread, best=text == best[column])

    rows = tuple(
        _row(who, entries, tuple(cell(who, column) for column in columns)) for who in _whos(entries)
    )
    return Table(caption, columns, rows)


def costs(caption: str, entries: Sequence[Entry], repeats: str) -> Table:
    """What each model took: its size, and epochs and time over all it was trained on."""
    rows = []
    for who in _whos(entries):
        own = [entry for entry in entries if _who(entry) == who]
        sizes = sorted({entry["parameters"] for entry in own if entry.get("parameters")})
        size = " to ".join(numbers.count(value) for value in dict.fromkeys(sizes[:1] + sizes[-1:]))
        epochs = [entry["epochs"] for entry in own if entry.get("epochs") is not None]
        seconds = [entry["seconds"] for entry in own if entry.get("seconds") is not None]
        runs = sum(int(entry.get(repeats) or 0) for entry in own)
        cells = (
            Cell(str(own[0].get("recipe") or numbers.NONE)),
            Cell(size or numbers.NONE),
            Cell(numbers.count(runs) if runs else numbers.NONE),
            Cell(numbers.count(sum(epochs) / len(epochs) if epochs else None)),
            Cell(numbers.duration(sum(seconds) if seconds else None)),
        )
        rows.append(_row(who, entries, cells))
    columns = ("Recipe", "Parameters", "Runs", "Mean epochs", "Time, all runs")
    return Table(caption, columns, tuple(rows))


def interval(value: Mapping[str, Any]) -> float | None:
    """The 95% interval, unless a single run leaves none to speak of."""
    ci95 = value.get("ci95")
    return None if len(value.get("values") or (0, 0)) < 2 else ci95


def _who(entry: Entry) -> tuple[str, str]:
    return str(entry["model"]), str(entry.get("recipe") or "")


def _whos(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    return sorted(dict.fromkeys(map(_who, entries)), key=lambda who: who[0] == OURS)


def _row(who: tuple[str, str], entries: Sequence[Entry], cells: tuple[Cell, ...]) -> Row:
    model, recipe = who
    recipes = {other for name, other in map(_who, entries) if name == model}
    label = look(model).label
    return Row(
        look=look(model),
        label=f"{label} ({recipe})" if len(recipes) > 1 and recipe else label,
        cells=cells,
        ours=model == OURS,
    )
