r"""What is compared: rows of a result, each with its model's look and its arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specformer.reports.looks import Look, in_order, look
from specformer.training.evaluation.graph_metrics import Metric, metric_named
from specformer.training.runs.folder import OUTPUTS, RunFolder

Arrays = Mapping[str, np.ndarray]

#: The kinds of rows of a result, in the order of a page.
KINDS = ("filters", "nodes", "links", "molecules")


def array_name(model: str, recipe: str) -> str:
    """The name that a run's arrays are kept under if its model has several recipes."""
    return f"{model} ({recipe})"


def kept_arrays(run: RunFolder) -> dict[str, np.ndarray]:
    """The arrays of a run; empty if it kept none."""
    return run.outputs() if (run.path / OUTPUTS).exists() else {}


class Entry(dict[str, Any]):
    """A row of a result: a model, with the recipe it was trained by, on a filter or data set.

    ``look`` is how it is drawn, ``arrays`` are its own, by what they hold.
    """

    def __init__(self, row: Mapping[str, Any], look: Look, arrays: Arrays | None = None) -> None:
        super().__init__(row)
        self.look, self.arrays = look, dict(arrays or {})

    @property
    def metric(self) -> Metric:
        """Entries of earlier versions name none, and have an accuracy."""
        return metric_named(str(self.get("metric") or "accuracy"))

    @property
    def where(self) -> str:
        """The filter or data set."""
        return str(self["filter"] if "filter" in self else self["dataset"])

    @property
    def trained_by(self) -> str:
        """The recipe and, if it tries several forms, the one taken; empty if there is none.

        In a table of several runs, ``recipe`` is the run's name, and ``trained_by`` the recipe.
        """
        recipe = self.get("trained_by", self.get("recipe"))
        return ", ".join(filter(None, (recipe, self.get("form"))))

    @property
    def reached(self) -> Mapping[str, Any]:
        """Its main figures: mean, interval and values; empty if it has none."""
        return self.get("sse" if "filter" in self else "test") or {}

    @property
    def mean(self) -> float:
        """Its main figure, without the last digits, in which the sums of equal ones may differ."""
        return _without_rounding(self.reached["mean"])


def best_first(entries: Iterable[Entry], *, lower: bool) -> list[Entry]:
    """Entries by their main figures, then by those on validation data, then by their names.

    ``lower``: whether less is better.

    Example:
        >>> tied = [{"model": model, "test": {"mean": 0.9}} for model in ("mlp", "gcn")]
        >>> [
        ...     entry["model"]
        ...     for entry in best_first(Rows.of("r", {"r": tied}, {}).entries, lower=True)
        ... ]
        ['gcn', 'mlp']
    """
    sign = 1.0 if lower else -1.0

    def place(entry: Entry) -> tuple[float, float, str]:
        val = (entry.get("val") or {}).get("mean") or 0.0
        return sign * entry.mean, sign * _without_rounding(val), entry.look.label.lower()

    return sorted(entries, key=place)


def _without_rounding(value: float) -> float:
    return float(f"{value:.9g}")


def looks_of(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Look]:
    """The look of each model and recipe, ours last; a recipe is empty if a row names none.

    A label has the recipe if a model has several. The ``label`` of a row, if it has one, comes
    first.

    Example:
        >>> recipes = [("specformer", "paper"), ("specformer", "best"), ("gcn", "paper")]
        >>> looks = looks_of([{"model": m, "recipe": r} for m, r in recipes])
        >>> [look.label for look in looks.values()]
        ['GCN', 'Specformer (paper)', 'Specformer (best)']
    """
    labels: dict[str, dict[str, str]] = {}
    for row in rows:
        own = labels.setdefault(str(row["model"]), {})
        own[_recipe(row)] = str(row.get("label") or own.get(_recipe(row), ""))
    looks = {}
    for model in in_order(labels):
        for number, (recipe, label) in enumerate(labels[model].items()):
            style = look(model)
            if len(labels[model]) > 1:
                style = style.by_recipe(recipe, number)
            if label:
                style = replace(style, label=label, recipe=style.recipe and label)
            looks[model, recipe] = style
    return looks


def _recipe(row: Mapping[str, Any]) -> str:
    return str(row.get("recipe") or "")


@dataclass(frozen=True)
class Rows:
    """A result's entries of one kind of learning, and the arrays of the run.

    ``kind`` is filters, nodes, links or molecules. A group has the entries of one filter or data
    set. ``order`` has the looks of all models, ours last.
    """

    kind: str
    entries: Sequence[Entry]
    order: Sequence[Look]
    arrays: Arrays

    @classmethod
    def of(cls, kind: str, result: Mapping[str, Any], arrays: Arrays) -> Rows:
        found = result.get(kind) or ()
        looks = looks_of(found)
        entries = [Entry(row, looks[str(row["model"]), _recipe(row)]) for row in found]
        rows = cls(kind, entries, list(looks.values()), arrays)
        for name, group in rows.groups.items() if arrays else ():
            for entry in group:
                own = array_name(entry["model"], _recipe(entry))
                entry.arrays.update(_below(f"{kind}/{name}/{own}/", arrays))
            # A run with one recipe per model keeps its arrays under the model's bare name.
            for model in dict.fromkeys(entry["model"] for entry in group):
                for what, array in _below(f"{kind}/{name}/{model}/", arrays).items():
                    bare = [e for e in group if e["model"] == model and what not in e.arrays]
                    if bare:
                        bare[-1].arrays[what] = array
        return rows

    @property
    def looks(self) -> list[Look]:
        """The looks of the entries' models, ours last."""
        present = {entry.look for entry in self.entries}
        return [style for style in self.order if style in present]

    @property
    def groups(self) -> dict[str, list[Entry]]:
        """Entries by filter or data set."""
        return grouped(self.entries)

    @property
    def descriptions(self) -> tuple[tuple[str, str], ...]:
        """Names and descriptions of the data sets that have a description."""
        told = {str(entry["dataset"]): entry.get("description") for entry in self.entries}
        return tuple((name, str(text)) for name, text in told.items() if text)

    def only(self, entries: Iterable[Entry]) -> Rows:
        """The same with these entries."""
        return replace(self, entries=list(entries))

    def most(self, key: str = "runs") -> int:
        """The largest count under that key, 0 if no entry has it."""
        return max((int(entry.get(key) or 0) for entry in self.entries), default=0)

    def get(self, what: str) -> np.ndarray | None:
        """An array that does not belong to a model."""
        return self.arrays.get(f"{self.kind}/{what}")

    def found(self, what: str) -> Iterator[tuple[str, list[Entry], dict[Look, np.ndarray]]]:
        """The name of every group, its entries, and the arrays of its models, ours last."""
        for name, group in self.groups.items():
            own = {entry.look: entry.arrays[what] for entry in group if what in entry.arrays}
            yield name, group, {style: own[style] for style in self.order if style in own}

    def having(self, what: str, ours: bool = False) -> Iterator[Entry]:
        """Entries with such arrays, by group; only Specformer's, or the only one, if ``ours``."""
        for group in self.groups.values():
            own = [entry for entry in group if what in entry.arrays]
            own.sort(key=lambda entry: self.order.index(entry.look))
            yield from (e for e in own if not ours or e.look.ours or len(own) == 1)


def _below(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): array for k, array in arrays.items() if k.startswith(prefix)}


def grouped(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Entries by filter or data set."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.where, []).append(entry)
    return groups
