r"""Who is compared: a model with a recipe it was trained by, its look and its arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specformer.reports.looks import Look, in_order, look
from specformer.training.evaluation.graph_metrics import Metric, metric_named

Entry = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]

#: A model and its recipe, which is empty if the result does not name one.
Variant = tuple[str, str]


def array_name(model: str, recipe: str) -> str:
    """What the arrays of a model that has several recipes are kept under.

    Example:
        >>> array_name("specformer", "best")
        'specformer (best)'
    """
    return f"{model} ({recipe})"


def variant(entry: Entry) -> Variant:
    """Whose entry it is."""
    return str(entry["model"]), str(entry.get("recipe") or "")


def metric_of(entry: Entry) -> Metric:
    """What an entry is judged by; nodes of earlier versions by their accuracy.

    Example:
        >>> metric_of({"model": "gcn"}).label
        'accuracy'
    """
    return metric_named(str(entry.get("metric") or "accuracy"))


def variant_looks(entries: Sequence[Entry]) -> dict[Variant, Look]:
    """How each variant is drawn and called, ours last; with its recipe if there are several.

    An entry with a ``label`` is called by that.

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
    """The array of that kind of every variant of a group that has one.

    A run with one recipe per model keeps them under the model's bare name.
    """
    found: dict[Variant, np.ndarray] = {}
    bare: dict[str, Variant] = {}
    for who in map(variant, group):
        key = f"{where}/{array_name(*who)}/{what}"
        if key in arrays:
            found[who] = arrays[key]
        else:
            bare[who[0]] = who
    for model, who in bare.items():
        key = f"{where}/{model}/{what}"
        if key in arrays:
            found[who] = arrays[key]
    return {style: found[who] for who, style in looks.items() if who in found}


def entries_by(entries: Sequence[Entry], key: str) -> dict[str, list[Entry]]:
    """Entries grouped by what they have under a key."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(str(entry[key]), []).append(entry)
    return groups


def arrays_by(
    entries: Sequence[Entry], arrays: Arrays, kind: str, what: str
) -> Iterator[tuple[str, list[Entry], dict[Look, np.ndarray]]]:
    """Of every filter or data set its name, its entries, and its variants' arrays of a kind."""
    looks = variant_looks(entries)
    for name, group in entries_by(entries, "filter" if kind == "filters" else "dataset").items():
        yield name, group, arrays_of(arrays, f"{kind}/{name}", group, what, looks)
