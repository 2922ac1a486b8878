"""Options that say which column of a file is what, the same for every command that reads one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from specformer.cli.options import checked_task, split_names
from specformer.errors import ConfigError

if TYPE_CHECKING:
    from specformer.graphs import Columns
    from specformer.tasks.job import Request

#: By the name of the field of ``Columns``: the option and its help.
_OPTIONS = {
    "label": ("--label", "Nodes: the column of classes."),
    "id": ("--id", "Nodes, molecules: the column of ids."),
    "source": ("--source", "Edges: the column of one end."),
    "target": ("--target", "Edges: the column of the other end."),
    "weight": ("--weight", "Edges: the column of weights, or none."),
    "features": ("--features", "Nodes: the columns of features, as a,b,c."),
    "split": ("--split-column", "Nodes, molecules: the column of train, valid and test."),
    "smiles": ("--smiles-column", "Molecules: the column of SMILES."),
    "targets": ("--targets", "Molecules: the columns to learn, as a,b."),
}
_SEVERAL = ("features", "targets")
_PANEL = "Columns of a file, where their names do not tell"


def reads_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it takes what they say as one argument, ``columns``."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        each.replace(annotation=hints[name])
        for name, each in inspect.signature(command).parameters.items()
        if name != "columns"
    ]
    added = [
        inspect.Parameter(
            f"{name}_column",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None, typer.Option(option, help=told, rich_help_panel=_PANEL)
            ],
        )
        for name, (option, told) in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def reading(**given: Any) -> None:
        said = {name: given.pop(f"{name}_column") for name in _OPTIONS}
        command(**given, columns={key: each for key, each in said.items() if each is not None})

    signature = inspect.Signature([*own, *added])
    reading.__signature__ = signature  # type: ignore[attr-defined]
    reading.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    return reading


def requested(
    source: str, columns: dict[str, str] | None, options: Mapping[str, Any], **fields: Any
) -> Request:
    """What a command asks for; options that do not go with the source are refused.

    Args:
        source: a name, a file or a folder.
        columns: what :func:`reads_columns` gives.
        options: those that not every kind of source has, by name without dashes.
        fields: what else the request says.
    """
    from specformer.tasks.job import Request
    from specformer.tasks.resolve import refuse_foreign
    from specformer.tasks.source import source_kind

    told = told_columns(columns or {})
    foreign = {**options, **dict.fromkeys(told.options, True)}
    refuse_foreign(source_kind(source, told), source, foreign)
    start = options.get("from")
    return Request(
        source=source,
        task=checked_task(options["task"]),
        metric=options["metric"],
        start=None if start is None else str(start),
        filter=options.get("filter"),
        columns=told,
        **fields,
    )


def told_columns(said: dict[str, str]) -> Columns:
    """What the options say; apart from them, as it imports what reads files."""
    from specformer.graphs import Columns

    told: dict[str, Any] = dict(said)
    for name in _SEVERAL:
        if name in told:
            told[name] = split_names(told[name]) or []
            if not told[name] and name == "targets":
                raise ConfigError("--targets: name at least one column.")
    return Columns.of(told)
