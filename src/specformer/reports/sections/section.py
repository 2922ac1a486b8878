r"""What sections of a report are made of, and words they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specformer.reports import numbers
from specformer.reports.looks import Look, in_order
from specformer.reports.sections import figures, report_tables
from specformer.reports.sections.figures import Picture
from specformer.reports.sections.report_tables import Listing, Table
from specformer.reports.variants import Arrays, Entry, entries_by, metric_of, variant_looks
from specformer.training.evaluation.graph_metrics import metric_named


@dataclass(frozen=True)
class Figure:
    """Pictures of one kind, under one caption."""

    title: str
    caption: str
    pictures: tuple[Picture, ...]
    small: bool = False
    truth: bool = False

    @property
    def layout(self) -> str:
        """The classes of the page that place the pictures seen at first."""
        seen = sum(item.shown for item in self.pictures)
        placed = {1: "single", 2: "pair", 4: "pair"}.get(seen, "")
        return " ".join(filter(None, ("small" if self.small else "", placed)))

    @property
    def key(self) -> list[Look]:
        """The lines of pictures that have no legend of their own."""
        return in_order(line for item in self.pictures for line in item.key)


@dataclass(frozen=True)
class Section:
    """A task's tables and figures, in reading order."""

    anchor: str
    title: str
    intro: str
    blocks: tuple[Figure | Table | Listing, ...]
    notes: tuple[tuple[str, str], ...] = ()


def most(entries: Sequence[Entry], key: str) -> int:
    """The largest count of that key, 0 where none has it."""
    return max((int(entry.get(key) or 0) for entry in entries), default=0)


def described(entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    """The data sets that have a description, with it."""
    found = {str(entry["dataset"]): str(entry.get("description") or "") for entry in entries}
    return tuple((name, text) for name, text in found.items() if text)


def mean_over(count: int, what: str) -> str:
    """What a table's figures are of several runs or images."""
    return f", mean over {count} {what} ± 95% interval" if count > 1 else ""


def median_over(count: int, what: str) -> str:
    """What a picture's lines are of several runs or images."""
    return f": the line is the median over {what}, the tint their range" if count > 1 else ""


def first_of(count: int) -> str:
    """Whose picture it is, where only one of several runs is drawn."""
    return ", in the first run" if count > 1 else ""


def took(entries: Sequence[Entry], key: str, what: str) -> str:
    """The caption of costs."""
    several = len(entries_by(entries, key)) > 1
    return f"What it took, over all {what}." if several else "What it took."


def present(*blocks: Figure | Table | Listing) -> tuple[Figure | Table | Listing, ...]:
    """The blocks that have something to show."""
    return tuple(filter(_shows, blocks))


def _shows(block: Figure | Table | Listing) -> bool:
    if isinstance(block, Table):
        return any(cell.text != numbers.NONE for row in block.rows for cell in row.cells)
    return bool(block.rows if isinstance(block, Listing) else block.pictures)


def confusions(entries: Sequence[Entry], arrays: Arrays, kind: str, things: str) -> Figure:
    """Which classes were taken for which."""
    many, runs = len(variant_looks(entries)) > 1, most(entries, "runs")
    return Figure(
        "Which classes are taken for which",
        f"Of the test {things} of each class (row), the percentage put into each (column)"
        + (" by Specformer" if many else "")
        + (", over all runs." if runs > 1 else "."),
        tuple(figures.confusions(entries, arrays, kind, things)),
    )


def by_metric(entry: Entry) -> str:
    """The key of the test figures at the epochs of the best validation figure."""
    return "test_by_metric" if "test_by_metric" in entry else f"test_by_{metric_of(entry).name}"


def told_by_predictions(entries: Sequence[Entry], things: str) -> str:
    """The caption of predictions beside what was measured."""
    runs = ", of all runs" if most(entries, "runs") > 1 else ""
    told = {
        "ap": "Precision over recall, at every threshold.",
        "rocauc": "True over false positives, at every threshold.",
        "accuracy": "True over false positives, at every threshold.",
    }
    numbered = "Predicted over measured numbers, with the line where they agree."
    sentences = dict.fromkeys(told.get(metric_of(entry).name, numbered) for entry in entries)
    return " ".join([f"The test {things}{runs}.", *sentences])


def compared(entries: Sequence[Entry], name: str) -> Iterable[Table]:
    """Test figures and, where some differ, those at the epochs of the best validation figure."""
    metric, looks = metric_named(name), variant_looks(entries)
    measured = [entry for entry in entries if metric_of(entry).name == name]
    over = mean_over(most(measured, "runs"), "runs")
    better = "Lower" if metric.lower else "Higher"
    bold = "; the best of a data set is bold" if len(variant_looks(measured)) > 1 else ""
    rules, best = {"test": ""}, by_metric(measured[0])
    if any(entry.get(best, entry["test"]) != entry["test"] for entry in measured):
        rules[best] = f" at the epoch of the best validation {metric.label}"
    for key, at in rules.items():
        yield report_tables.comparison(
            f"Test {metric.label}{at}{over}. {better} is better{bold}.",
            measured,
            across="dataset",
            metric=key,
            lower_is_better=metric.lower,
            write=numbers.error,
            looks=looks,
        )
