r"""Recipes: named settings in YAML, checked against data classes, overridable one by one."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml

from specformer.errors import ConfigError, brief, nearest
from specformer.files.documents import parse_yaml, read_yaml, unsealed

logger = logging.getLogger(__name__)

Recipe = TypeVar("Recipe")

#: YAML 1.1 reads 1e-3, without a point, as text.
_SCIENTIFIC = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
#: Characters of an assignment that an error repeats.
_SHOWN = 200
#: The origins of ``int | None`` and ``Optional[int]``.
_UNIONS = (typing.Union, types.UnionType)

#: Settings that are gone, and the values with no effect that earlier files may have for them.
RETIRED: Mapping[str, Any] = {"filter_activation": None, "recalibrate": None, "final_rate": 0.0}
#: Recipes by data set: the paper's settings, those of its authors' code where they differ in the
#: model, those that did best on validation data, and those of pair states that start afresh.
NAMED = ("paper", "authors", "best", "pairs")
#: The recipe of models for other data sets to start from. No table has it.
START = "start"


def build(kind: type[Recipe], settings: Mapping[str, Any], where: str) -> Recipe:
    """A ``kind`` from plain settings; unknown keys and wrong types are named, with the file.

    Example:
        >>> from specformer.training.optim.schedule import Schedule
        >>> build(Schedule, {"epochs": 5}, "example").epochs
        5
    """
    hints = typing.get_type_hints(kind)
    fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key in RETIRED and RETIRED[key] == value:
            continue
        if key not in fields:
            close = nearest(key, fields)
            hint = f"did you mean {close!r}?" if close else f"known: {', '.join(sorted(fields))}."
            raise ConfigError(f"{where}: unknown key {brief(key)}; {hint}")
        values[key] = _checked(hints[key], value, f"{where}: {key}")
    try:
        return kind(**values)
    except ConfigError as error:  # a bad value: say where it was set
        raise ConfigError(f"{where}: {error}") from error
    except TypeError as error:
        raise ConfigError(f"{where}: {error}.") from error


def override(settings: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Settings with ``key=value`` assignments applied; dots reach into groups, values are YAML.

    A group's settings are changed one by one, see :func:`merged`.

    Example:
        >>> override({"schedule": {"epochs": 5, "warmup": 1}}, ["schedule.epochs=7"])
        {'schedule': {'epochs': 7, 'warmup': 1}}
    """
    changed = copy.deepcopy(dict(settings))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        shown = assignment if len(assignment) <= _SHOWN else f"{assignment[:_SHOWN]}…"
        if not equals or not path:
            raise ConfigError(f"--set {shown}: expected key=value.")
        try:
            value = parse_yaml(text)
        except ValueError as error:
            raise ConfigError(f"--set {shown}: the value cannot be read: {error}.") from error
        *groups, leaf = path.split(".")
        target: dict[str, Any] = changed
        for group in groups:
            target = target.setdefault(group, {})
            if not isinstance(target, dict):
                raise ConfigError(f"--set {shown}: {brief(group)} is not a group of settings.")
        target.update(merged(target, {leaf: value}))
    return changed


def full_keys(kind: type, assignments: Iterable[str], unused: Iterable[str] = ()) -> list[str]:
    """Assignments in which a setting's last name alone, ``epochs``, is its whole key.

    Where only one setting of ``kind`` has that name, the whole key is logged; a name of several is
    refused. Groups that are ``unused`` do not count.

    Example:
        >>> from specformer.tasks.nodes.node_recipe import NodeRecipe
        >>> full_keys(NodeRecipe, ["epochs=3", "monitor=loss"])
        ['schedule.epochs=3', 'monitor=loss']
    """
    hints = typing.get_type_hints(kind)
    places: dict[str, list[str]] = {}
    for group, hint in hints.items():
        if dataclasses.is_dataclass(hint) and group not in set(unused):
            for setting in dataclasses.fields(hint):
                places.setdefault(setting.name, []).append(f"{group}.{setting.name}")
    full = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        found = [] if key in hints else places.get(key, [])
        if len(found) > 1:
            raise ConfigError(
                f"--set {assignment}: {key} can be {' or '.join(found)}; write the whole key."
            )
        if found:
            logger.warning("--set %s: taken as %s.", assignment, found[0])
        full.append(f"{found[0]}{equals}{text}" if found else assignment)
    return full


def refuse_idle(assignments: Iterable[str], idle: Iterable[str], why: str) -> None:
    """Refuse assignments to keys, or to any key of groups, that would change nothing."""
    useless = set(idle)
    for assignment in assignments:
        key = assignment.partition("=")[0]
        if useless & {key, key.partition(".")[0]}:
            raise ConfigError(f"--set {assignment} would change nothing: {why}.")


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with changes on top; a group's settings are changed one by one.

    Example:
        >>> merged({"schedule": {"epochs": 5, "warmup": 1}}, {"schedule": {"epochs": 7}})
        {'schedule': {'epochs': 7, 'warmup': 1}}
    """
    merged = dict(base)
    for key, value in change.items():
        inner = merged.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            merged[key] = {**inner, **value}
        else:
            merged[key] = value
    return merged


def read_settings(path: Path) -> dict[str, Any]:
    """The settings that a YAML file holds: a recipe's, or a training run's ``config.yaml``."""
    try:
        content = unsealed(read_yaml(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a recipe should hold settings, not {brief(content)}.")
    if "command" not in content:
        return content
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: this run has no settings; name a run of specformer train.")
    return settings


def _checked(hint: Any, value: Any, where: str) -> Any:
    """The value as its type; other values are refused."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} should hold settings, not {brief(value)}.")
        return build(hint, value, where)
    if origin in _UNIONS:
        for choice in arguments:
            with suppress(ConfigError):
                return _checked(choice, value, where)
    if origin is list and isinstance(value, list):
        return [_checked(arguments[0], item, where) for item in value]
    if origin is dict and isinstance(value, dict):
        return {
            str(name): _checked(arguments[1], item, f"{where}.{name}")
            for name, item in value.items()
        }
    if origin is typing.Literal and value in arguments:
        return value
    if hint is float and (number := _finite(value)) is not None:
        return number
    if hint is not float and type(value) is hint:  # not isinstance: True is not a whole number
        return value
    raise ConfigError(f"{where}={brief(value)} should be {_describe(hint)}.")


def _finite(value: Any) -> float | None:
    """A number as people write it, or None."""
    if isinstance(value, str) and _SCIENTIFIC.fullmatch(value):
        return _finite(float(value))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else None


def _describe(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(hint))
    if origin in _UNIONS:
        return " or ".join(_describe(choice) for choice in typing.get_args(hint))
    if origin is dict:
        return f"{{name: {_describe(typing.get_args(hint)[1])}}}"
    if origin is list:
        return f"[{_describe(*typing.get_args(hint))}, …]"
    return {
        type(None): "empty",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
    }.get(hint, "text")


def shipped(file: str) -> dict[str, Any]:
    """All that a file of this package's ``recipes/`` holds."""
    text = resources.files("specformer.tasks") / "recipes" / file
    return dict(yaml.safe_load(text.read_text(encoding="utf-8")))


class RecipeBook:
    """A YAML file with ``default`` settings and, under each name, changes by model and data set."""

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
            only = f", only for {', '.join(known)}" if known else ""
            raise ConfigError(
                f"there is no recipe {chosen} of {model} for {dataset}{only}; use the recipe "
                "default."
            )
        return chosen, merged(default, known[dataset])

    def _sets(self, name: str, model: str) -> dict[str, Any]:
        return self.written.get(name, {}).get(model, {})
