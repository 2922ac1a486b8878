"""Molecules as graphs: from SMILES to the integer features of atoms and bonds that OGB uses.

Each feature is a position in a list of known values; unknown values take the last position. An atom
has nine: atomic number, chirality, degree with hydrogens, formal charge, number
of hydrogens, radical electrons, hybridisation, aromatic or not, in a ring or not. A bond has three:
type, stereo, conjugated or not. Hydrogens are not nodes unless the SMILES keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from specformer.errors import ConfigError, GraphError
from specformer.graphs.graph_set import GraphSet


def _numbered(words: str) -> dict[str, int]:
    return {word: place for place, word in enumerate(words.split())}


_CHIRALITY = _numbered("CHI_UNSPECIFIED CHI_TETRAHEDRAL_CW CHI_TETRAHEDRAL_CCW CHI_OTHER")
_HYBRIDISATION = _numbered("SP SP2 SP3 SP3D SP3D2")
_BOND_TYPE = _numbered("SINGLE DOUBLE TRIPLE AROMATIC")
_STEREO = _numbered("STEREONONE STEREOZ STEREOE STEREOCIS STEREOTRANS STEREOANY")
#: Number of values of each column.
ATOM_CARDINALITIES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_CARDINALITIES = (5, 6, 2)


class BadMolecule(NamedTuple):
    """A molecule that could not be read: its row in the source, its SMILES, why, and its id."""

    row: int
    smiles: str
    reason: str
    id: str | None = None

    def __str__(self) -> str:
        return f"row {self.row}: {self.smiles!r} {self.reason}"


class NoMoleculeError(GraphError):
    """No molecule could be read; ``problems`` says why for each."""

    def __init__(self, message: str, problems: Sequence[BadMolecule]) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Molecules:
    """The result of reading a list of molecules.

    Attributes:
        graphs: the molecules that could be read.
        rows: the row of each of them in the source.
        problems: those that could not.
    """

    graphs: GraphSet
    rows: tuple[int, ...]
    problems: tuple[BadMolecule, ...]


def read_smiles(
    smiles: Sequence[str],
    *,
    rows: Sequence[int] | None = None,
    ids: Sequence[str] | None = None,
    name: str = "molecules",
) -> Molecules:
    """Turn SMILES into graphs; molecules that cannot be read are reported and left out.

    Args:
        smiles: the molecules.
        rows: their row numbers in the source; by default 0, 1, ….
        ids: their names, if they have any.
        name: what to call the set.

    Example:
        >>> found = read_smiles(["CCO", "C1CC", "[Na+].[Cl-]"])  # doctest: +SKIP
        >>> found.graphs, found.rows  # doctest: +SKIP
        (GraphSet('molecules', graphs=2, nodes=5, edges=2), (0, 2))
        >>> print(found.problems[0])  # doctest: +SKIP
        row 1: 'C1CC' is not valid SMILES
    """
    if isinstance(smiles, str):  # each letter would be a molecule
        raise GraphError(f"smiles={smiles!r} is one text; pass a list of them")
    chem, silence = rdkit()
    numbers = range(len(smiles)) if rows is None else rows
    names = [None] * len(smiles) if ids is None else ids
    good: list[tuple[int, str, str | None]] = []
    problems: list[BadMolecule] = []
    atoms, bonds, ends = [], [], []
    with silence():
        for row, text, own in zip(numbers, smiles, names, strict=True):
            molecule = _parsed(chem, text)
            if isinstance(molecule, str):
                problems.append(BadMolecule(row, str(text), molecule, own))
                continue
            good.append((row, text, own))
            bonded = molecule.GetBonds()
            joined = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonded]
            atoms.append(np.array([_atom(atom) for atom in molecule.GetAtoms()], np.uint8))
            bonds.append(np.array([_bond(bond) for bond in bonded], np.uint8).reshape(-1, 3))
            ends.append(np.array(joined, np.int32).reshape(-1, 2))
    if not good:
        first = f"; {problems[0]}" if problems else ""
        message = f"none of the {len(smiles)} molecules can be read{first}"
        raise NoMoleculeError(message, problems)
    kept, texts, named = zip(*good, strict=True)
    graphs = GraphSet(
        num_nodes=np.array(list(map(len, atoms))),
        num_edges=np.array(list(map(len, bonds))),
        edge_index=np.concatenate(ends).T,
        node_feat=np.concatenate(atoms),
        edge_feat=np.concatenate(bonds),
        smiles=texts,
        ids=None if ids is None else named,
        name=name,
    )
    return Molecules(graphs, kept, tuple(problems))


def rdkit(who: str = "reading SMILES") -> tuple[Any, Any]:
    """Return RDKit's module of molecules, and a context in which it prints nothing."""
    try:
        from rdkit import Chem
        from rdkit.rdBase import BlockLogs
    except ImportError:
        raise ConfigError(
            f"{who} needs RDKit; install it with pip install 'specformer[chem]'."
        ) from None
    return Chem, BlockLogs


def _parsed(chem: Any, smiles: object) -> Any:
    """Return RDKit's molecule, or a text that says what is wrong."""
    if not isinstance(smiles, str):  # None, or pandas' NaN
        return "is not text"
    molecule = chem.MolFromSmiles(smiles)
    if molecule is not None:
        return molecule if molecule.GetNumAtoms() else "is empty"
    unchecked = chem.MolFromSmiles(smiles, sanitize=False)
    if unchecked is None:
        return "is not valid SMILES"
    try:
        chem.SanitizeMol(unchecked)
    except ValueError as error:  # RDKit's chemistry errors are ValueErrors
        return f"is not a possible molecule: {str(error).strip().rstrip('.')}"
    return "is not a possible molecule"


def _atom(atom: Any) -> tuple[int, ...]:
    return (
        _place(atom.GetAtomicNum(), 1, 118),
        _CHIRALITY.get(str(atom.GetChiralTag()), len(_CHIRALITY)),
        _place(atom.GetTotalDegree(), 0, 10),
        _place(atom.GetFormalCharge(), -5, 5),
        _place(atom.GetTotalNumHs(), 0, 8),
        _place(atom.GetNumRadicalElectrons(), 0, 4),
        _HYBRIDISATION.get(str(atom.GetHybridization()), len(_HYBRIDISATION)),
        int(atom.GetIsAromatic()),
        int(atom.IsInRing()),
    )


def _bond(bond: Any) -> tuple[int, ...]:
    return (
        _BOND_TYPE.get(str(bond.GetBondType()), len(_BOND_TYPE)),
        _STEREO.get(str(bond.GetStereo()), len(_STEREO) - 1),
        int(bond.GetIsConjugated()),
    )


def _place(value: int, low: int, high: int) -> int:
    """Return the position of a number in ``low``..``high``; one past the end if it is outside."""
    return value - low if low <= value <= high else high - low + 1
