r"""What is compared: a model with the recipe it was trained by, its look and its arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specformer.reports.looks import Look, in_order, look
from specformer.training.evaluation.graph_metrics import Metric, metric_named

Entry = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]

#: A model and its recipe, which is empty if the result does not name one.
Variant = tuple[str, str]


def array_name(model: str, recipe: str) -> str:
    """The name that a run's arrays are kept under if its model has several recipes."""
    return f"{model} ({recipe})"


def variant(entry: Entry) -> Variant:
    """The model and the recipe of an entry."""
    return str(entry["model"]), str(entry.get("recipe") or "")


def metric_of(entry: Entry) -> Metric:
    """The metric of an entry; entries of earlier versions name none, and have an accuracy."""
    return metric_named(str(entry.get("metric") or "accuracy"))


def variant_looks(entries: Sequence[Entry]) -> dict[Variant, Look]:
    """The look of each variant, ours last; its label has the recipe if a model has several.

    The ``label`` of an entry, if it has one, comes first.

    Example:
        >>> recipes = [("specformer", "paper"), ("specformer", "best"), ("gcn", "paper")]
        >>> looks = variant_looks([{"model": m, "recipe": r} for m, r in recipes])
        >>> [look.label for look in looks.values()]
        ['GCN', 'Specformer (paper)', 'Specformer (best)']
    """
    recipes: dict[str, list[str]] = {}
    for model, recipe in dict.fromkeys(map(variant, entries)):
        recipes.setdefault(model, []).append(recipe)
    labels = {variant(entry): str(entry["label"]) for entry in entries if "label" in entry}
    looks: dict[Variant, Look] = {}
    for model in in_order(recipes):
        for number, recipe in enumerate(recipes[model]):
            alone = len(recipes[model]) == 1
            style = look(model) if alone else look(model).by_recipe(recipe, number)
            if label := labels.get((model, recipe)):
                style = replace(style, label=label, recipe=style.recipe and label)
            looks[model, recipe] = style
    return looks


def arrays_of(
    arrays: Arrays,
    where: str,
    group: Sequence[Entry],
    what: str,
    looks: Mapping[Variant, Look],
) -> dict[Look, np.ndarray]:
    """The arrays of that kind of the variants of a group, as far as they have one.

    A run with one recipe per model keeps them under the model's bare name.
    """
    keys = {who: f"{where}/{array_name(*who)}/{what}" for who in map(variant, group)}
    bare = {who[0]: who for who, key in keys.items() if key not in arrays}
    keys |= {who: f"{where}/{model}/{what}" for model, who in bare.items()}
    return {style: arrays[keys[who]] for who, style in looks.items() if keys.get(who, "") in arrays}


def entries_by(entries: Sequence[Entry], key: str) -> dict[str, list[Entry]]:
    """Entries grouped by their value of a key."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(str(entry[key]), []).append(entry)
    return groups


@dataclass(frozen=True)
class Rows:
    """A result's entries of one kind of learning, and the arrays that belong to them.

    ``kind`` is filters, nodes, links or molecules. A group has the entries of one filter or data
    set.
    """

    kind: str
    entries: Sequence[Entry]
    arrays: Arrays

    @classmethod
    def of(cls, kind: str, result: Mapping[str, Any], arrays: Arrays) -> Rows:
        return cls(kind, result.get(kind) or (), arrays)

    @property
    def looks(self) -> dict[Variant, Look]:
        return variant_looks(self.entries)

    @property
    def groups(self) -> dict[str, list[Entry]]:
        """Entries by filter or data set."""
        return entries_by(self.entries, "filter" if self.kind == "filters" else "dataset")

    @property
    def descriptions(self) -> tuple[tuple[str, str], ...]:
        """Names and descriptions of the data sets that have a description."""
        told = {str(entry["dataset"]): entry.get("description") for entry in self.entries}
        return tuple((name, str(text)) for name, text in told.items() if text)

    def having(self, keep: Callable[[Entry], bool]) -> Rows:
        """The rows whose entries are to be kept."""
        return replace(self, entries=[entry for entry in self.entries if keep(entry)])

    def most(self, key: str = "runs") -> int:
        """The largest count under that key, 0 if no entry has it."""
        return max((int(entry.get(key) or 0) for entry in self.entries), default=0)

    def get(self, what: str) -> np.ndarray | None:
        """An array that does not belong to a model."""
        return self.arrays.get(f"{self.kind}/{what}")

    def found(self, what: str) -> Iterator[tuple[str, list[Entry], dict[Look, np.ndarray]]]:
        """The name of every group, its entries, and the arrays of its variants."""
        looks = self.looks
        for name, group in self.groups.items():
            yield name, group, arrays_of(self.arrays, f"{self.kind}/{name}", group, what, looks)

    def ours(self, what: str) -> Iterator[tuple[str, Look, np.ndarray]]:
        """Arrays of Specformer, or of the only model of a group."""
        for name, _, found in self.found(what):
            for style, array in found.items():
                if style.ours or len(found) == 1:
                    yield name, style, array

    def one(self, name: str, style: Look, what: str) -> np.ndarray | None:
        """The array of one variant."""
        return next(
            (found.get(style) for other, _, found in self.found(what) if other == name), None
        )
