"""Molecules of a user: a table with a column of SMILES and columns of targets, ``.smi`` or SDF."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.graphs.columns import (
    COUNTERS,
    FOLDS,
    IDS,
    LABEL,
    MOLECULE_IDS,
    UNNAMED,
    Columns,
    is_id,
    plain_name,
    quoted,
)
from specformer.graphs.formats.feature_column import (
    TRUE_FALSE,
    has_number,
    is_date,
    warn_of_stand_ins,
    without_units,
)
from specformer.graphs.formats.smiles import (
    Molecules,
    NoMoleculeError,
    rdkit,
    read_smiles,
)
from specformer.graphs.formats.table import Table, is_number
from specformer.graphs.formats.table_file import (
    SDF,
    bare_name,
    decoded,
    is_table,
    opened,
    read_table,
)
from specformer.graphs.graph_set import SPLITS

logger = logging.getLogger(__name__)

_SMILES, _ID = "smiles", "id"
#: Names of a column of molecules that do not say what it holds.
_MOLECULES = ("smi", "mol", "molecule", "structure")
#: Cells of a column that says which numbers beside it are bounds.
_RELATIONS = {"=", "<", ">", "<=", ">=", "<<", ">>", "~", "≤", "≥"}
#: In so few rows numbers may be in order by chance.
_FEW = 20
_HINT = "; leave it empty if it is missing, write classes as 0 and 1, or use --targets"


def read_molecules(path: str | Path, columns: Columns | None = None) -> Molecules:
    r"""Read molecules and their targets; rows that are not a molecule are reported, not raised.

    Rows are counted as a spreadsheet does: the header is row 1. An empty cell, ``nan`` or ``NA`` is
    a missing target; ``True`` is 1 and ``False`` 0. A column ``id`` names the molecules, and a
    column ``split`` says which of them train, validate and test. A column without a name, as pandas
    writes its index, is left out.

    Args:
        path: a table (``.csv``, ``.csv.gz``, ``.parquet``, …), ``.smi`` or ``.sdf``; its name
            becomes the set's.
        columns: the roles of columns. By default the molecules are in the column called smiles, in
            any case, else in the only one with smiles in its name. Targets are all other named
            columns that hold a number, except those that number molecules or folds; without any,
            the only column of repeated words, which are then classes. ``targets=()`` reads no
            targets, for molecules to predict.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "own.csv"
        >>> _ = path.write_text("SMILES,name,logS,toxic\nCCO,ethanol,1.1,0\nC1CC,?,2,1\nN,,,1\n")
        >>> found = read_molecules(path)  # doctest: +SKIP
        >>> found.graphs.task_names, found.graphs.y.tolist(), found.rows  # doctest: +SKIP
        (('logS', 'toxic'), [[1.1, 0.0], [nan, 1.0]], (2, 4))
        >>> print(found.problems[0])  # doctest: +SKIP
        row 3: 'C1CC' is not valid SMILES
    """
    path, columns = Path(path), columns or Columns()
    if is_table(path):
        table = read_table(path)
    elif not path.is_file():
        raise GraphError(f"{path}: there is no such file")
    else:
        table = _read_sdf(path) if path.name.lower().endswith(SDF) else _read_smi(path)
    if not table.lines:
        told = "rows below the header" if is_table(path) else "molecules in the file"
        raise GraphError(f"{path}: there are no {told}")
    column = _smiles_column(table, columns.smiles)
    ids = _ids(table) if columns.id is None else table.said(columns.id)
    split = None if columns.targets == () else table.split(columns.split)
    targets, class_names = _targets(table, (column, ids, split), columns.targets)
    names = None if ids is None else table.columns[ids]
    try:
        found = read_smiles(
            table.columns[column], rows=table.lines, ids=names, name=bare_name(path)
        )
    except NoMoleculeError as error:
        raise NoMoleculeError(f"{path}: column {column!r}: {error}", error.problems) from None
    position = {line: i for i, line in enumerate(table.lines)}
    kept = [position[row] for row in found.rows]
    fields: dict[str, Any] = {"class_names": class_names}
    if targets:
        y = np.stack(list(targets.values()), axis=1)[kept]
        fields |= {"y": y, "task_names": tuple(targets)}
        if class_names is not None:  # drop classes that occur only in rows that are not a molecule
            known = ~np.isnan(y)
            used, y[known] = np.unique(y[known], return_inverse=True)
            fields["class_names"] = tuple(class_names[int(number)] for number in used)
    if split is not None and split not in targets:
        of_kept = table.parts(split)[kept]
        parts = [np.flatnonzero(of_kept == part) for part in range(len(SPLITS))]
        fields |= dict(zip(SPLITS, parts, strict=True))
        table.say_split(split, [len(part) for part in parts])
    return replace(found, graphs=replace(found.graphs, **fields))


def _ids(table: Table) -> str | None:
    """The column that numbers the molecules, if any."""
    named = {plain_name(name): name for name in table.columns if not _is_measured(table, name)}
    return next((named[name] for name in MOLECULE_IDS if name in named), None)


def _is_measured(table: Table, name: str) -> bool:
    """Whether a column called no, row or index holds negative numbers, or some with fractions."""
    cells = table.written(name)
    if plain_name(name) not in COUNTERS or not all(map(is_number, cells)):
        return False
    return _are_measured(cells) or any(cell.startswith("-") for cell in cells)


def smiles_column(names: Collection[str]) -> list[str]:
    """Return the columns that may hold SMILES, by their names; only one if it is called smiles.

    Example:
        >>> smiles_column(["Canonical SMILES", "name"]), smiles_column(["y", "Smiles", "smiles_2"])
        (['Canonical SMILES'], ['Smiles'])
    """
    plain = {name: plain_name(name) for name in names}
    called = [name for name in plain if plain[name] == _SMILES]
    return (
        ([_SMILES] if _SMILES in called else called)
        or [name for name in plain if _SMILES in plain[name]]
        or [name for name in plain if plain[name] in _MOLECULES]
    )


def _smiles_column(table: Table, asked: str | None) -> str:
    if asked is not None:
        column = table.said(asked)
        chem, silence = rdkit()
        with silence():
            is_molecule = bool(column) and chem.MolFromSmiles(column) is not None
        if is_molecule:
            raise GraphError(
                f"{table.path}: the first row must name the columns, and {column!r} is a molecule"
            )
        return column
    found = smiles_column(table.columns)
    if len(found) > 1:
        raise GraphError(
            f"{table.path}: {quoted(found)} may hold the SMILES; say which with --smiles-column"
        )
    if found:
        if plain_name(found[0]) != _SMILES:
            logger.info("%s: column %r is read as SMILES", table.path, found[0])
        return found[0]
    ends = table.endpoints()
    if ends:
        raise GraphError(
            f"{table.path}: looks like a list of edges, by its columns {ends[0]!r} and "
            f"{ends[1]!r}; put it into a folder as edges.csv, beside a nodes.csv with the labels"
        )
    table.refuse_matrix()
    table.refuse_no_header()
    other = "the ends of an edge with --source and --target"
    if table.named(LABEL, *IDS) is not None:
        other = "put it into a folder as nodes.csv, beside edges.csv, if its rows are nodes"
    raise GraphError(
        f"{table.path}: there is no column 'smiles', only {quoted(table.columns)}; say which one "
        f"holds SMILES with --smiles-column, or {other}"
    )


def _targets(
    table: Table, others: Collection[str | None], asked: Sequence[str] | None
) -> tuple[dict[str, NDArray[np.float32]], tuple[str, ...] | None]:
    """Return the targets by name and, if the only one holds words, its classes."""
    if asked is None:
        table, asked = _usual_targets(table, [each for each in table.columns if each not in others])
    else:
        asked = [table.said(name) for name in asked]
        table = without_units(table, asked)
    filled = (name for name in asked if table.written(name))
    words = next((name for name in filled if not has_number(table, name)), None)
    if words is None:
        read: dict[str, Any] = {"missing": True, "hint": _HINT, "words": TRUE_FALSE}
        numbers = {name: table.numbers(name, np.float32, **read) for name in asked}
        for name, each in numbers.items():
            warn_of_stand_ins(table, name, each)
        return {name: each.astype(np.float32) for name, each in numbers.items()}, None
    if len(asked) > 1:
        alone = f"its words are classes, which are learned one target at a time: --targets {words}"
        raise GraphError(f"{table.path}: column {words!r}: {alone}")
    classes, class_names = table.classes(words)
    written_rows = int((classes >= 0).sum())
    if 2 * len(class_names) > written_rows:
        different = f"{len(class_names)} different words in {written_rows} rows cannot be classes"
        raise GraphError(f"{table.path}: column {words!r}: {different}")
    return {words: np.where(classes < 0, np.nan, classes).astype(np.float32)}, class_names


def _usual_targets(table: Table, columns: Sequence[str]) -> tuple[Table, list[str]]:
    """Return the columns of numbers that do not number molecules, else the only one of classes.

    Units are removed from the table; what is left out or guessed is logged.
    """
    own = [
        name
        for name in columns
        if (plain_name(name) not in (*UNNAMED, *MOLECULE_IDS) or _is_measured(table, name))
        and _SMILES not in plain_name(name)
    ]
    for name in own:
        table.refuse_half_a_split(name, "name what to learn with --targets")
    table = without_units(table, own)
    found = [name for name in own if has_number(table, name) and not _only_counts(table, name)]
    if not found:
        words = {name: table.written(name) for name in own}
        # Several classes, and each twice on average; dates are not classes.
        found = [
            name
            for name in own
            if 1 < len({*words[name]}) <= len(words[name]) / 2
            and not all(map(is_date, {*words[name]}))
        ]
        found = found if len(found) == 1 else []
        if found:
            logger.info("%s: column %r is read as the classes to learn", table.path, found[0])
    if left := [name for name in own if name not in found]:
        told = "%s: columns left out: %s; --targets takes columns to learn"
        logger.info(told, table.path, quoted(left))
        _warn_of_left_out(table, left)
    return table, found


def _warn_of_left_out(table: Table, names: Sequence[str]) -> None:
    """Warn of columns that say that numbers beside them are bounds, or have several units."""
    for name in names:
        words = {cell.strip("'\"") for cell in table.written(name)}
        told = ""
        if words <= _RELATIONS and words - {"="}:
            told = "some numbers are bounds, but are learned as exact values"
        elif plain_name(name).endswith(("unit", "units")) and len(words) > 1:
            told = "numbers have several units, but are learned without them"
        if told:
            held = quoted(sorted(words))
            logger.warning("%s: column %r holds %s: %s", table.path, name, held, told)


def _only_counts(table: Table, name: str) -> bool:
    """Whether a column numbers the rows, holds ids, or numbers folds."""
    cells = table.columns[name]
    names = is_id(name) and not _is_measured(table, name)
    if plain_name(name) in FOLDS or (names and len(set(cells)) == len(cells)):
        return True
    first = int(cells[0]) if cells[0].isdigit() else 0
    return len(cells) > _FEW and cells == [str(first + row) for row in range(len(cells))]


def _read_smi(path: Path) -> Table:
    """Read a molecule from each row: its SMILES, then its name, if it has one.

    If tabs or commas separate columns, more may follow, called 3, 4, …; a first row ``smiles …``
    names them. A second column of numbers with fractions is a target, not a name.
    """

    def rows(text: io.TextIOWrapper, _: str) -> list[tuple[int, str]]:
        written = [(number, line.strip()) for number, line in enumerate(text, start=1)]
        return [(number, line) for number, line in written if line]

    lines = decoded(path, rows)
    named = bool(lines) and re.split(r"[\s,]", lines[0][1])[0].casefold() == _SMILES
    words = len(lines[0][1].split()) if named else 0
    every = all(len(line.split()) == words for _, line in lines)
    found = [(number, _cells(line, every=every)) for number, line in lines]
    width = max((len(cells) for _, cells in found), default=0)
    names = [_SMILES, _ID, *map(str, range(3, width + 1))][:width]
    if named:
        names = found.pop(0)[1]
        if len(names) < width:
            raise GraphError(f"{path}: a row has {width} cells where the first has {len(names)}")
    elif _are_measured([cells[1] for _, cells in found if len(cells) > 1]):
        logger.info("%s: column 2 is read as numbers to learn, not as names", path)
        names[1] = "2"
    columns = {
        name: [cells[place] if place < len(cells) else "" for _, cells in found]
        for place, name in enumerate(names)
    }
    return Table(path, columns, [number for number, _ in found])


def _cells(line: str, *, every: bool) -> list[str]:
    """Split a row at tabs, commas or ``every`` blank; else into a molecule and a name."""
    if "\t" in line:
        cells = line.split("\t")
    elif "," in line.split(maxsplit=1)[0]:  # SMILES have no commas
        cells = line.split(",")
    else:
        cells = line.split() if every else line.split(maxsplit=1)
    return [cell.strip() for cell in cells]


def _are_measured(cells: Sequence[str]) -> bool:
    """Whether all cells are numbers, and some have fractions."""
    return all(map(is_number, cells)) and any("." in cell for cell in cells)


def _read_sdf(path: Path) -> Table:
    """Read molecules with RDKit; titles become ids, properties become columns."""
    chem, silence = rdkit()
    cells: dict[str, list[str]] = {_SMILES: [], _ID: []}
    with opened(path) as file:
        content = file.read()
    count = 0
    with silence():
        # Impossible molecules are None; as written, they still have a title and can be named.
        written = chem.ForwardSDMolSupplier(io.BytesIO(content), sanitize=False)
        possible = chem.ForwardSDMolSupplier(io.BytesIO(content))
        for each, as_written in zip(possible, written, strict=False):
            known, molecule = {}, each or as_written
            if molecule is not None:
                own = {name: molecule.GetProp(name) for name in molecule.GetPropNames()}
                known = {name: value.strip() for name, value in own.items()}
                known[_SMILES] = chem.MolToSmiles(molecule)
                if molecule.HasProp("_Name") and (title := molecule.GetProp("_Name").strip()):
                    known[_ID] = title
            for name in (*cells, *(name for name in known if name not in cells)):
                cells.setdefault(name, [""] * count).append(known.get(name, ""))
            count += 1
    if not any(cells[_ID]):
        del cells[_ID]
    return Table(path, cells, range(1, count + 1), row="molecule")
