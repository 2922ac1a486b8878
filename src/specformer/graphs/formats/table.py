"""A table in memory, from a file of any kind; errors number its rows as a spreadsheet does."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import category, normalize

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.graphs.columns import ENDS, MARKS, SPLIT, plain_name, quoted

logger = logging.getLogger(__name__)

#: Cells that mean "missing", in any case, also as spreadsheets and data bases write it.
_MISSING = {
    "", "nan", "na", "n/a", "n.a.", "#n/a", "<na>", "nat", "null", "none", "-", "--", "?", ".",
    "\\n", "#div/0!", "#name?", "#null!", "#num!", "#ref!", "#value!",
}  # fmt: skip
#: What to do with an adjacency matrix in a text file.
MATRIX = "save it with scipy.sparse.save_npz('graph.npz', scipy.sparse.csr_array(matrix))"
#: Words for yes and no, in any case.
TRUTHS = {
    **dict.fromkeys(("true", "yes", "1", "1.0"), 1.0),
    **dict.fromkeys(("false", "no", "0", "0.0"), 0.0),
}
#: The words for the parts of a split, in any case.
_PARTS = {
    **dict.fromkeys(("train", "training", "trn"), 0),
    **dict.fromkeys(("valid", "val", "validation", "validate", "dev", "development"), 1),
    **dict.fromkeys(("test", "testing", "tst"), 2),
}
#: Words that may mean the second part or the third.
_HELD_OUT = ("holdout", "hold-out", "heldout", "held-out", "eval", "evaluation")
#: Codes rather than numbers: 01234.
CODE = re.compile(r"0\d+")
#: Hyphens and underscores between words, which others write as a blank.
_JOINED = re.compile(r"(?<=[^\W_])[-_]+(?=[^\W_])")


def is_missing(cell: str) -> bool:
    """Whether a cell means a missing value."""
    return cell.casefold() in _MISSING


@dataclass(frozen=True)
class Table:
    """Columns of text by name.

    It stores columns because a list per row keeps the garbage collector busy with a million rows.

    Attributes:
        path: the file.
        columns: the cells by the column's name.
        lines: the line number of each row in the file.
        decimal_commas: whether numbers are written as 0,5.
        row: what a row is called in errors.
    """

    path: Path
    columns: dict[str, list[str]]
    lines: Sequence[int]
    decimal_commas: bool = False
    row: str = "row"

    def named(self, *names: str) -> str | None:
        """Return the column of the first of these names that occurs, or None.

        Names are compared in the form of :func:`plain_name`.
        """
        for name in names:
            alike = [column for column in self.columns if plain_name(column) == name]
            if len(alike) > 1 and name not in alike:
                raise GraphError(f"{self.path}: columns {quoted(alike)} differ only in case")
            if alike:
                return name if name in alike else alike[0]
        return None

    def said(self, name: str) -> str:
        """Return the column that the user named, in any case; refuse a missing one."""
        if name in self.columns:
            return name
        alike = [column for column in self.columns if column.casefold() == name.casefold()]
        if len(alike) != 1:
            raise GraphError(
                f"{self.path}: there is no column {name!r}, only {quoted(self.columns)}"
            )
        return alike[0]

    def chosen(self, said: str | None, *names: str) -> str | None:
        """Return the column that the user named, else the one of these names."""
        return self.named(*names) if said is None else self.said(said)

    def endpoints(self) -> tuple[str, str] | None:
        """Return the columns of an edge's two ends, or None; refuse two such pairs."""
        for pairs in ENDS:
            found = [(self.named(one), self.named(other)) for one, other in pairs]
            whole = [(one, other) for one, other in found if one is not None and other is not None]
            if len(whole) > 1:
                either = " or ".join(f"{one!r} and {other!r}" for one, other in whole)
                raise GraphError(
                    f"{self.path}: the ends of an edge may be {either}; say which with "
                    "--source and --target"
                )
            if whole:
                return whole[0]
        return None

    def split(self, said: str | None = None) -> str | None:
        """Return the column of a split: as the user says, by name, or by its cells.

        All of them name a part, and some are train.
        """
        found = self.chosen(said, SPLIT)
        if found is not None:
            return found
        told = [name for name, cells in self.columns.items() if _name_parts(cells)]
        if len(told) > 1:
            raise GraphError(
                f"{self.path}: {quoted(told)} may each be a split; say which with --split-column"
            )
        return told[0] if told else None

    def marks(self) -> dict[str, str]:
        """Return the columns that mark the parts of a split, by the field of a graph."""
        found = {field: self.named(*names) for field, names in MARKS.items()}
        marked = {field: name for field, name in found.items() if name and self._holds_truths(name)}
        if marked.keys() >= {"train_mask", "test_mask"}:
            return marked
        return {field: name for field, names in MARKS.items() if (name := self.named(names[0]))}

    def _holds_truths(self, name: str) -> bool:
        """Whether all cells of a column that are not missing are truth values."""
        written = self.written(name)
        return bool(written) and all(cell.casefold() in TRUTHS for cell in written)

    def refuse_half_a_split(self, name: str, other: str) -> None:
        """Refuse truth values under a name such as ``is_train``; ``other`` is another fix."""
        may_mark = {*MARKS["train_mask"], *MARKS["test_mask"], "isval"}
        if plain_name(name) in may_mark and self._holds_truths(name):
            raise GraphError(
                f"{self.path}: column {name!r} may mark a split; write a column 'split' of "
                f"train, valid and test, or {other}"
            )

    def written(self, name: str) -> list[str]:
        """Return a column's cells that are not missing."""
        return [cell for cell in self.columns[name] if cell.casefold() not in _MISSING]

    def error(self, column: str, row: int, problem: str) -> GraphError:
        where = f"column {column!r}, {self.row} {self.lines[row]}"
        return GraphError(f"{self.path}: {where}: {problem}")

    def number(self, cell: str) -> float:
        """Return the number in a cell; ``ValueError`` if it is not a number."""
        if "_" in cell:  # Python would read 1_2 as 12
            raise ValueError(cell)
        cell = cell.replace("−", "-")
        return float(cell.replace(",", ".") if self.decimal_commas else cell)

    def numbers(
        self,
        name: str,
        within: type[Any] = np.float64,
        *,
        missing: bool = False,
        hint: str = "",
        words: Mapping[str, float] | None = None,
    ) -> NDArray[np.float64]:
        """Return a column's numbers, finite in the type ``within``; NaN if ``missing`` is allowed.

        ``hint`` is the end of the error for a word; ``words`` are read as numbers, in any case.
        """
        cells, known = self.columns[name], words or {}
        values = plain_numbers(cells)
        if values is None:
            values = np.full(len(cells), np.nan)
            for row, cell in enumerate(cells):
                if missing and is_missing(cell):
                    continue
                try:
                    found = known.get(cell.casefold())
                    values[row] = self.number(cell) if found is None else found
                except ValueError:
                    problem = f"{cell!r} is not a number{hint}"
                    raise self.error(name, row, problem) from None
        with np.errstate(over="ignore"):  # what overflows is refused below
            numbers: NDArray[Any] = values.astype(within)
        bad = np.isinf(numbers) if missing else ~np.isfinite(numbers)
        if bad.any():
            row = int(bad.argmax())
            fix = "; correct it, or leave the cell empty" if missing else ""
            what = "too large for 32 bits" if np.isfinite(values[row]) else "not a finite number"
            raise self.error(name, row, f"{cells[row]!r} is {what}{fix}")
        return values

    def weights(self, name: str) -> NDArray[np.float64]:
        fix = "; --weight none leaves all weights out"
        weights = self.numbers(name, hint=fix)
        negative = weights < 0
        if negative.any():
            row = int(negative.argmax())
            raise self.error(name, row, f"the weight {weights[row]} is negative{fix}")
        return weights

    def booleans(self, name: str) -> NDArray[np.bool_]:
        problem = "is neither 1 nor 0, nor true or false"
        return self._looked_up(name, TRUTHS, problem).astype(np.bool_)

    def _looked_up(self, name: str, known: Mapping[str, float], problem: str) -> NDArray[Any]:
        """The numbers that words stand for, in any case; refuse other words."""
        found = [known.get(cell.casefold()) for cell in self.columns[name]]
        if None in found:
            row = found.index(None)
            raise self.error(name, row, f"{self.columns[name][row]!r} {problem}")
        return np.array(found)

    def refuse_no_header(self) -> None:
        """Refuse a first row of values; columns after the first may be called 0, 1, 2, …."""
        header = list(self.columns)
        counted = {str(place) for place in range(len(header) + 1)}
        numbers = filter(is_number, header)
        strange = next((name for name in numbers if name not in counted), None)
        if strange is None and header and is_number(header[0]):
            strange = header[0]
        if strange is not None:
            problem = f"the first row must name the columns, and {strange!r} looks like a value"
            raise GraphError(f"{self.path}: {problem}")

    def refuse_matrix(self) -> None:
        """Refuse an adjacency matrix: as many rows as columns, or one column of names more."""
        rows = len(self.lines)
        if rows > 3 and rows in (len(self.columns), len(self.columns) - 1):
            raise GraphError(f"{self.path}: looks like an adjacency matrix; {MATRIX}")

    def index(self, name: str) -> dict[str, int]:
        """Return the position of each id; refuse an id that is empty or appears twice."""
        index: dict[str, int] = {}
        for row, cell in enumerate(self.columns[name]):
            if not cell:
                raise self.error(name, row, "the id is empty")
            if cell in index:
                before = f"{self.row} {self.lines[index[cell]]}"
                fix = "remove one of them, or say which column holds the ids with --id"
                raise self.error(name, row, f"the id {cell!r} is also in {before}; {fix}")
            index[cell] = row
        return index

    def positions(self, name: str, index: Mapping[str, int], among: str) -> NDArray[np.int64]:
        """Return the position of each node that a column names; ``among`` is their list."""
        cells = self.columns[name]
        try:
            return np.fromiter(map(index.__getitem__, cells), np.int64, len(cells))
        except KeyError as error:
            cell = error.args[0]
            problem = f"there is no node {cell!r} in {among}" if cell else "the id is empty"
            hint = self._how_to_find(cell, index, {*cells} - index.keys()) if cell else ""
            raise self.error(name, cells.index(cell), problem + hint) from None

    @staticmethod
    def _how_to_find(cell: str, index: Mapping[str, int], strange: set[str]) -> str:
        """How to fix an edge to a node that is not listed; ``strange`` are all such nodes."""
        alike = next((node for node in index if _plain(node) == _plain(cell)), None)
        if alike is not None and normalize("NFC", alike) == normalize("NFC", cell):
            return "; there it has the same letters in another Unicode form; save both files as NFC"
        if alike is not None:
            return f"; write it as {alike!r}, as there"
        more = "it" if len(strange) == 1 else f"it and {len(strange) - 1:,} more"
        which = " (--id says which column holds the ids)" if len(strange) > 1 else ""
        return f"; add {more} there, or remove the edges{which}"

    def classes(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return the class of every row, -1 where it is missing, and the classes' names.

        Numbers written in two ways, 1 and 1.0, are one class. Refuses the word none among words,
        because it may be a class or mean a missing one, and two spellings of what may be one class:
        1 and 01, Dog and dog, True and yes.
        """
        cells = self.columns[name]
        if self.decimal_commas:
            cells = [cell.replace(",", ".") if reads(self.number, cell) else cell for cell in cells]
        names = in_order({cell for cell in cells if not is_missing(cell)})
        none = next((row for row, cell in enumerate(cells) if cell.casefold() == "none"), None)
        if none is not None and not all(map(is_number, names)):
            either = "may be a class or a missing one; write another word, or leave it empty"
            raise self.error(name, none, f"{cells[none]!r} {either}")
        first = self._first_spellings(name, names)
        number = {each: i for i, each in enumerate(dict.fromkeys(first.values()))}
        numbers = {word: number[first[word]] for word in names}
        return np.array([numbers.get(cell, -1) for cell in cells], dtype=np.int64), tuple(number)

    def _first_spellings(self, column: str, names: Sequence[str]) -> dict[str, str]:
        """The name of each class in its first spelling; refuses those that may be another class."""
        of_key: dict[str | float, str] = {}
        first: dict[str, str] = {}
        truths = len(names) > 2 and all(word.casefold() in TRUTHS for word in names)
        for word in names:
            key = TRUTHS[word.casefold()] if truths else _plain(word)
            other = first[word] = of_key.setdefault(key, word)
            numbers = isinstance(key, float) and not truths
            if other == word or (numbers and not any(map(CODE.match, (word, other)))):
                continue
            same = isinstance(key, str) or (truths and other.casefold() == word.casefold())
            how = "differ only in case, blanks or hyphens" if same else "mean the same"
            alike = f"the classes {other!r} and {word!r} {how}; write one of them"
            raise GraphError(f"{self.path}: column {column!r}: {alike}")
        return first

    def parts(self, name: str) -> NDArray[np.int64]:
        """Return the part of the split of every row: 0 train, 1 valid, 2 test, -1 none."""
        fix = "write train, valid or test, or give the column another name"
        known = {**_PARTS, **dict.fromkeys(_MISSING, -1)}
        return self._looked_up(name, known, f"is not a part of a split; {fix}").astype(np.int64)

    def say_split(self, name: str, sizes: Sequence[int]) -> None:
        """Log that a column is read as a split."""
        told = "%s: column %r is a split: %d train, %d valid, %d test"
        logger.info(told, self.path, name, *sizes)


def plain_numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Cells that are all numbers as Python writes them, as an array, else None.

    It takes a fifth of the time of :meth:`Table.number` for each cell.
    """
    try:
        values = np.array(list(map(float, cells)), dtype=np.float64)
    except ValueError:
        return None
    return None if "_" in "".join(cells) else values


def _name_parts(cells: Sequence[str]) -> bool:
    """Whether all cells name a part of a split, and some are train; looks no further than needed.

    One other word beside several parts counts too: :meth:`Table.parts` refuses it with a reason.
    """
    parts: set[int] = set()
    others: set[str] = set()
    for cell in cells:
        word = cell.casefold()
        if word in _PARTS:
            parts.add(_PARTS[word])
        elif word not in _MISSING and word not in _HELD_OUT:
            others.add(word)
            if len(others) > 1:
                return False
    return 0 in parts and (not others or len(parts) > 1)


def _plain(word: str) -> str | float:
    """A form in which different spellings are equal: 7, 007 and 7.0, or Ann and ann.

    It has no signs that are not seen, such as a blank without width.
    """
    if is_number(word):
        return float(word)
    seen = "".join(sign for sign in normalize("NFKC", word) if category(sign) != "Cf")
    return " ".join(_JOINED.sub(" ", seen).casefold().split())


def is_number(cell: str) -> bool:
    """Whether a cell is a number, with or without a decimal point."""
    return reads(float, cell)


def in_order(names: Iterable[str]) -> list[str]:
    """Sort by number if every name is an integer, else alphabetically."""
    names = sorted(names)
    try:
        return sorted(names, key=int)
    except ValueError:
        return names


def reads(read: Callable[[str], float], cell: str) -> bool:
    """Whether a function reads a cell without ``ValueError``."""
    try:
        read(cell)
    except ValueError:
        return False
    return True
