r"""Parts of a report's sections: tables, listings, and figures of several pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from specformer.reports import numbers
from specformer.reports.looks import Look, in_order


@dataclass(frozen=True)
class Cell:
    """A number as text, its interval, and whether it is the best of its column.

    ``value`` is the number itself, by which tables are sorted.
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
    """A caption, column heads, and rows.

    ``in_standings``: the table of compared models, where there is one, says the same.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    in_standings: bool = False

    def __bool__(self) -> bool:
        return any(cell.text != numbers.NONE for row in self.rows for cell in row.cells)

    @property
    def as_text(self) -> tuple[list[str], list[list[str]]]:
        """The header and the lines, as a terminal shows them."""
        header = ["model", *(f"{name[0].lower()}{name[1:]}" for name in self.columns)]
        return header, [
            [row.look.label, *(f"{cell.text} {cell.spread}".strip() for cell in row.cells)]
            for row in self.rows
        ]


@dataclass(frozen=True)
class Listing:
    """A caption, column heads, and rows of words.

    With ``aside`` a page folds it if it has many rows, until a reader opens it.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    aside: bool = False

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True)
class Picture:
    """An inline SVG, ready for the page.

    Args:
        svg: the element.
        wide: whether it takes the page's width.
        key: the lines that need a key beside the picture.
        values: the numbers behind it, for tooltips.
        choice: the choices by which a reader selects it among the pictures of a figure.
        shown: whether it is shown before a reader chooses; the others need JavaScript.
        title, note: text below it.
    """

    svg: Markup
    wide: bool = False
    key: tuple[Look, ...] = ()
    values: Mapping[str, Any] | None = None
    choice: Mapping[str, str] = field(default_factory=dict)
    shown: bool = True
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """Pictures of one kind, under one caption."""

    title: str
    caption: str
    pictures: Iterable[Picture]
    small: bool = False
    truth: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "pictures", tuple(self.pictures))

    def __bool__(self) -> bool:
        return bool(self.pictures)

    @property
    def key(self) -> list[Look]:
        """The lines of pictures without a legend."""
        return in_order(line for item in self.pictures for line in item.key)


Block = Figure | Table | Listing


@dataclass(frozen=True)
class Section:
    """A task's tables and figures, in reading order; those with nothing to show are left out."""

    anchor: str
    title: str
    intro: str
    blocks: Iterable[Block]
    notes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(filter(None, self.blocks)))
