"""A user's table of molecules: a CSV file with a column of SMILES and columns of targets."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.graphs.formats.csv_table import CsvTable, csv_name, is_missing
from specformer.graphs.formats.smiles import BadMolecule, Molecules, NoMoleculeError, read_smiles

logger = logging.getLogger(__name__)

_SMILES = "smiles"
_ID = "id"
_SPLIT = "split"
#: Classes as other programs write them.
_CLASSES = {"true": 1.0, "false": 0.0}


def read_molecule_csv(
    path: str | Path,
    smiles_column: str | None = None,
    target_columns: Sequence[str] | None = None,
) -> Molecules:
    r"""Read molecules and their targets; rows that are no molecule are reported, not raised.

    Rows are counted as a spreadsheet does: the header is row 1. An empty cell, ``nan`` or ``NA`` is
    a missing target; ``True`` is 1 and ``False`` 0. A column ``id`` names the molecules, and a
    column ``split`` says which of them train, validate and test. A column without a name, as pandas
    writes its index, is left out.

    Args:
        path: the file, ``.csv`` or ``.csv.gz``; its name becomes the set's.
        smiles_column: column of the SMILES; by default the one called smiles, in any case.
        target_columns: columns of the targets, numbers all, or a single one of words, which are
            then the names of classes; by default every other named column that holds a number.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "own.csv"
        >>> _ = path.write_text("SMILES,name,logS,toxic\nCCO,ethanol,1.1,0\nC1CC,?,2,1\nN,,,1\n")
        >>> found = read_molecule_csv(path)  # doctest: +SKIP
        >>> found.graphs.task_names, found.graphs.y.tolist(), found.rows  # doctest: +SKIP
        (('logS', 'toxic'), [[1.1, 0.0], [nan, 1.0]], (2, 4))
        >>> print(found.problems[0])  # doctest: +SKIP
        row 3: 'C1CC' is not valid SMILES
    """
    path = Path(path)
    table = CsvTable.read(path)
    if not table.lines:
        raise GraphError(f"{path}: there are no rows below the header")
    column = _smiles_column(table, smiles_column)
    targets, class_names = _targets(table, column, target_columns)
    position = {line: i for i, line in enumerate(table.lines)}
    ids = table.named(_ID)

    def identified(problems: Sequence[BadMolecule]) -> tuple[BadMolecule, ...]:
        if ids is None:
            return tuple(problems)
        names = table.columns[ids]
        return tuple(each._replace(id=names[position[each.row]]) for each in problems)

    try:
        found = read_smiles(table.column(column), rows=table.lines, name=csv_name(path))
    except NoMoleculeError as error:
        message = f"{path}: column {column!r}: {error}"
        raise NoMoleculeError(message, identified(error.problems)) from None
    kept = [position[row] for row in found.rows]
    y = np.stack(list(targets.values()), axis=1)[kept] if targets else None
    if y is not None and class_names is not None:
        y, class_names = _in_use(y, class_names)
    train, valid, test = _split(table, targets, kept)
    graphs = replace(
        found.graphs,
        y=y,
        task_names=tuple(targets) or None,
        class_names=class_names,
        ids=None if ids is None else tuple(table.columns[ids][i] for i in kept),
        train_idx=train,
        valid_idx=valid,
        test_idx=test,
    )
    return replace(found, graphs=graphs, problems=identified(found.problems))


def _smiles_column(table: CsvTable, asked: str | None) -> str:
    column = table.named(asked or _SMILES)
    if column is None:
        ends = table.endpoints()
        if ends and not asked:
            raise GraphError(
                f"{table.path}: is a list of edges, by its columns {ends[0]!r} and {ends[1]!r}; "
                "put it into a folder as edges.csv, beside a nodes.csv with the labels"
            )
        known = ", ".join(map(repr, table.columns))
        hint = "" if asked else "; rename the one that holds SMILES"
        wanted = f"no column {asked or _SMILES!r}, only {known}{hint}"
        raise GraphError(f"{table.path}: there is {wanted}")
    return column


def _targets(
    table: CsvTable, smiles_column: str, asked: Sequence[str] | None
) -> tuple[dict[str, NDArray[np.float32]], tuple[str, ...] | None]:
    """Return the targets by name and, if the only one is of words, its classes."""
    if asked is None:
        not_targets = (smiles_column, table.named(_ID), table.named(_SPLIT), "")
        others = [name for name in table.columns if name not in not_targets]
        asked = [name for name in others if _has_number(table, table.columns[name])]
    words = next((name for name in asked if _is_of_words(table, table.column(name))), None)
    if words is None:
        return {name: _numbers(table, name) for name in asked}, None
    if len(asked) > 1:
        alone = f"its words are classes, which are learned alone: targets=[{words}]"
        raise GraphError(f"{table.path}: column {words!r}: {alone}")
    numbers, class_names = _classes(table, words)
    return {words: numbers}, class_names


def _split(
    table: CsvTable, targets: Collection[str], kept: Sequence[int]
) -> tuple[NDArray[np.int64], ...] | tuple[None, ...]:
    """Return the parts of the split that a column holds, as numbers of molecules that were read."""
    column = table.named(_SPLIT)
    if column is None or column in targets:
        return (None,) * 3
    parts = tuple(np.flatnonzero(table.parts(column)[kept] == part) for part in range(3))
    told = "%s: column %r is a split: %d train, %d valid, %d test"
    logger.info(told, table.path, column, *map(len, parts))
    return parts


def _has_number(table: CsvTable, cells: Sequence[str]) -> bool:
    return any(_is_number(table, cell) for cell in cells)


def _is_of_words(table: CsvTable, cells: Sequence[str]) -> bool:
    return not all(map(is_missing, cells)) and not _has_number(table, cells)


def _classes(table: CsvTable, name: str) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Return the number of every cell's word, NaN where there is none, and the words by number."""
    cells = table.column(name)
    table.refuse_none(name)
    written = [cell for cell in cells if not is_missing(cell)]
    words = sorted(set(written))
    if 2 * len(words) > len(written):
        different = f"{len(words)} different words in {len(written)} rows are no classes"
        raise GraphError(f"{table.path}: column {name!r}: {different}")
    first: dict[str, str] = {}
    for word in words:
        if (other := first.setdefault(word.casefold(), word)) != word:
            alike = f"the classes {other!r} and {word!r} differ only in case; write one of them"
            raise GraphError(f"{table.path}: column {name!r}: {alike}")
    number = {word: float(place) for place, word in enumerate(words)}
    return np.array([number.get(cell, np.nan) for cell in cells], dtype=np.float32), tuple(words)


def _in_use(
    y: NDArray[np.float32], names: tuple[str, ...]
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Number the classes that some molecule has; rows that are none may have had the others."""
    used = [number for number in range(len(names)) if (y == number).any()]
    numbered = np.full_like(y, np.nan)
    for place, number in enumerate(used):
        numbered[y == number] = place
    return numbered, tuple(names[number] for number in used)


def _is_number(table: CsvTable, cell: str) -> bool:
    try:
        _number(table, cell)
    except ValueError:
        return False
    return not is_missing(cell)


def _number(table: CsvTable, cell: str) -> float:
    found = _CLASSES.get(cell.casefold())
    return table.number(cell) if found is None else found


def _numbers(table: CsvTable, name: str) -> NDArray[np.float32]:
    """Return a column's numbers, NaN where a cell says that there is none."""
    cells = table.column(name)
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if is_missing(cell):
            continue
        try:
            values[row] = _number(table, cell)
        except ValueError:
            hint = "leave it empty if it is missing, write classes as 0 and 1, or set targets=[…]"
            raise table.error(name, row, f"{cell!r} is not a number; {hint}") from None
    return table.finite(name, values, np.float32, missing=True)
