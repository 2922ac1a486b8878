r"""Parts of a report's sections: tables, listings, and figures of several pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from specformer.reports import numbers
from specformer.reports.looks import Look, in_order

#: Most rows of a side listing that are shown unfolded.
_LONG = 12


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
    """A caption, column heads, and rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def is_empty(self) -> bool:
        return all(cell.text == numbers.NONE for row in self.rows for cell in row.cells)


@dataclass(frozen=True)
class Listing:
    """A caption, column heads, and rows of words.

    With ``aside`` it is folded if it has many rows, until a reader opens it.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    aside: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.rows

    @property
    def is_folded(self) -> bool:
        return self.aside and len(self.rows) > _LONG


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

    @property
    def is_empty(self) -> bool:
        return not self.pictures

    @property
    def layout(self) -> str:
        """The CSS classes that arrange the pictures shown at first."""
        seen = sum(item.shown for item in self.pictures)
        placed = {1: "single", 2: "pair", 4: "pair"}.get(seen, "")
        return " ".join(filter(None, ("small" if self.small else "", placed)))

    @property
    def is_half(self) -> bool:
        """Whether there is room for another figure beside it."""
        seen = [item for item in self.pictures if item.shown]
        return len(seen) == 1 and not seen[0].wide

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
        shown = tuple(block for block in self.blocks if not block.is_empty)
        object.__setattr__(self, "blocks", shown)
