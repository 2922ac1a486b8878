r"""Recipes in a file of this package, found by name, model and data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml

from specformer.errors import ConfigError, check_known
from specformer.tasks.recipes.settings import merged, read_settings

Recipe = TypeVar("Recipe")

#: Recipes by data set: the paper's settings, those of its authors' code where they differ in the
#: model, and those that did best on validation data.
NAMED = ("paper", "authors", "best")
#: The recipe of models for other data sets to start from. No table has it.
START = "start"


def shipped(file: str) -> dict[str, Any]:
    """All that a file of this package's ``recipes/`` holds."""
    text = resources.files("specformer.tasks") / "recipes" / file
    return dict(yaml.safe_load(text.read_text(encoding="utf-8")))


def contests(
    datasets: Sequence[str],
    models: Sequence[str],
    chosen: Sequence[str] | None,
    names: Callable[[str, str], Sequence[str]],
    recipe: Callable[[str, str, str], Recipe],
) -> dict[str, list[tuple[str, str, Recipe]]]:
    """By data set, the models that train on it, the names of their recipes, and these.

    Args:
        datasets: the sets; one that no model has a recipe for is left out.
        models: the models.
        chosen: the recipes that count; None for all.
        names: gives the names of a model's recipes on a set, told set and model.
        recipe: gives a recipe, told its name, set and model.
    """
    check_known("recipe", (*NAMED, "default"), *(chosen or ()))
    found: dict[str, list[tuple[str, str, Recipe]]] = {}
    for dataset in datasets:
        for model in models:
            for name in names(dataset, model):
                if chosen is None or name in chosen:
                    made = recipe(name, dataset, model)
                    found.setdefault(dataset, []).append((model, name, made))
    if not found:
        raise ConfigError(f"none of these models has a recipe {', '.join(chosen or ())} here.")
    return found


class RecipeBook:
    """A YAML file with ``default`` settings and, under each name, changes by model and data set.

    Example:
        >>> RecipeBook("nodes.yaml").names("cora", "specformer")
        ['paper', 'best']
    """

    def __init__(self, file: str) -> None:
        self.file = file

    @cached_property
    def written(self) -> dict[str, Any]:
        """All that the file holds."""
        return shipped(self.file)

    def names(self, dataset: str, model: str) -> list[str]:
        """The named recipes of a model on a data set, or ``default`` where it has none."""
        return [name for name in NAMED if dataset in self._sets(name, model)] or ["default"]

    def settings(
        self, name: str | None, dataset: str, model: str, default: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """A recipe's name and its settings: ``default`` with what the recipe changes.

        A name that ends in ``.yaml`` is a file. Without a name, ``paper`` where there is one.
        """
        chosen = name or ("paper" if dataset in self._sets("paper", model) else "default")
        if chosen.endswith(".yaml"):
            return chosen, merged(default, read_settings(Path(chosen)))
        if chosen == "default":
            return chosen, dict(default)
        if chosen not in NAMED and not (chosen == START and START in self.written):
            names = ", ".join([*NAMED, "default"])
            raise ConfigError(
                f"unknown recipe {chosen!r}; choose from {names}, or name a .yaml file."
            )
        known = self._sets(chosen, model)
        if dataset not in known:
            raise ConfigError(
                f"there is no recipe {chosen} of {model} for {dataset}, only for "
                f"{', '.join(known) or 'no set'}. Use --recipe default."
            )
        return chosen, merged(default, known[dataset])

    def _sets(self, name: str, model: str) -> dict[str, Any]:
        found: dict[str, Any] = self.written.get(name, {}).get(model, {})
        return found
