"""Molecules in chemists' own files, as a table: lists of SMILES (``.smi``) and SDF."""

from __future__ import annotations

import io
from pathlib import Path

from specformer.errors import GraphError
from specformer.graphs.formats.csv_dialect import opened
from specformer.graphs.formats.csv_text import decoded
from specformer.graphs.formats.smiles import rdkit
from specformer.graphs.formats.table import Table

_SDF = (".sdf", ".sdf.gz")
#: How their names end.
MOLECULE_FILES = (".smi", ".smi.gz", *_SDF)
_SMILES, _ID = "smiles", "id"


def read_molecule_file(path: Path) -> Table:
    """Read a file as a table with the columns ``smiles`` and, if molecules have names, ``id``."""
    if not path.is_file():
        raise GraphError(f"{path}: there is no such file")
    return _read_sdf(path) if path.name.lower().endswith(_SDF) else _read_smi(path)


def _read_smi(path: Path) -> Table:
    """Read a molecule from each row: its SMILES, then its name, if it has one.

    Between tabs, more columns may follow, called 3, 4, …; a first row ``smiles …`` names them.
    """

    def rows(text: io.TextIOWrapper, _: str) -> list[tuple[int, list[str]]]:
        written = [(number, line.strip()) for number, line in enumerate(text, start=1)]
        return [(number, _cells(line)) for number, line in written if line]

    found = decoded(path, rows)
    width = max((len(cells) for _, cells in found), default=0)
    names = [_SMILES, _ID, *map(str, range(3, width + 1))][:width]
    if found and found[0][1][0].casefold() == _SMILES:
        names = found.pop(0)[1]
        if len(names) < width:
            raise GraphError(f"{path}: a row has {width} cells where the first has {len(names)}")
    columns = {
        name: [cells[place] if place < len(cells) else "" for _, cells in found]
        for place, name in enumerate(names)
    }
    return Table(path, columns, [number for number, _ in found])


def _cells(line: str) -> list[str]:
    cells = line.split("\t") if "\t" in line else line.split(maxsplit=1)
    return [cell.strip() for cell in cells]


def _read_sdf(path: Path) -> Table:
    """Read molecules with RDKit; their titles are ids, their properties columns."""
    chem, silence = rdkit()
    cells: dict[str, list[str]] = {_SMILES: [], _ID: []}
    with opened(path) as file:
        content = file.read()
    count = 0
    with silence():
        for molecule in chem.ForwardSDMolSupplier(io.BytesIO(content)):
            known = {}
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
