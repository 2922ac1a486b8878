r"""Names of data sets of many graphs, and where their files are."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specformer.datasets.download import set_file
from specformer.datasets.graph_download import download_graphs
from specformer.datasets.locate import search
from specformer.errors import ConfigError, DataNotFoundError
from specformer.graphs import Columns, GraphSet, read_graph_set, read_molecules
from specformer.graphs.formats.molecule_table import is_of_molecules
from specformer.graphs.formats.npz_archive import DAMAGE, opened
from specformer.graphs.formats.pyg_file import read_pyg_graphs
from specformer.graphs.formats.smiles import ATOM_CARDINALITIES, BOND_CARDINALITIES

logger = logging.getLogger(__name__)

#: Rows of a file that are named one by one; of more, their number is.
_NAMED = 10


@dataclass(frozen=True)
class MoleculeSet:
    """A data set people know by name, kept as ``NAME.npz``.

    Args:
        name: its name.
        about: what is learned.
        graphs: how many there are.
        task: regression, or classification of one or several yes-or-no questions.
        metric: ``"mae"``, ``"rocauc"`` or ``"ap"``.
        atom_cardinalities: how many values each column of ``node_feat`` may take.
        bond_cardinalities: the same of ``edge_feat``.
    """

    name: str
    about: str
    graphs: int
    task: Literal["regression", "classification"]
    metric: Literal["mae", "rocauc", "ap"]
    atom_cardinalities: tuple[int, ...] = ATOM_CARDINALITIES
    bond_cardinalities: tuple[int, ...] = BOND_CARDINALITIES


GRAPH_SETS: dict[str, MoleculeSet] = {
    entry.name: entry
    for entry in (
        MoleculeSet("zinc", "constrained solubility", 12_000, "regression", "mae", (28,), (4,)),
        MoleculeSet("molhiv", "inhibition of HIV replication", 41_127, "classification", "rocauc"),
        MoleculeSet("molpcba", "128 biological assays", 437_929, "classification", "ap"),
        MoleculeSet("pcqm4mv2", "HOMO–LUMO gap in eV", 3_746_620, "regression", "mae"),
    )
}


def graph_set(
    source: str | Path,
    data: str | Path | None = None,
    columns: Columns | None = None,
) -> GraphSet:
    """Many graphs: a data set by name, an npz or ``.pt`` file, or a file of molecules.

    A named set is looked for as ``NAME.npz`` and downloaded if it is nowhere. Molecules of a file
    that cannot be read are left out; the first ten are logged, and how many there are.

    Args:
        source: a name of ``GRAPH_SETS``, or a path.
        data: folder searched first for named sets.
        columns: which column of a file of molecules is what, where their names do not tell.
    """
    if str(source) in GRAPH_SETS:
        refuse_columns(str(source), columns)
        return read_graph_set(set_file(str(source), data, download_graphs))
    path = Path(source)
    if not path.is_file():
        known = ", ".join(GRAPH_SETS)
        raise DataNotFoundError(f"{source}: neither a file nor a set of graphs ({known}).")
    if not is_of_molecules(path):
        refuse_columns(str(source), columns)
        return read_pyg_graphs(path) if path.suffix.lower() == ".pt" else read_graph_set(path)
    found = read_molecules(path, columns)
    for problem in found.problems[:_NAMED]:
        logger.warning("%s, %s", path, problem)
    if len(found.problems) > _NAMED:
        rows = len(found.problems) + len(found.graphs)
        logger.warning(
            "%s: %s of %s rows are no molecules and are left out; above are the first %d.",
            path, f"{len(found.problems):,}", f"{rows:,}", _NAMED,
        )  # fmt: skip
    return found.graphs


def refuse_columns(source: str, columns: Columns | None) -> None:
    """Refuse to be told the columns of what has none; targets are chosen of any set."""
    said = [name for name in (columns or Columns()).options if name != "targets"]
    if said:
        raise ConfigError(
            f"--{said[0]}: applies to a table of your own; {source} has no columns with names."
        )


def survey_graph_sets(data: str | Path | None = None) -> list[dict[str, Any]]:
    """What is known of every named set without fetching any, a row each.

    ``name``, ``about``, ``state`` (``found``, ``damaged`` or ``downloads``), ``path``, the number
    of ``graphs`` and, if found, of ``nodes`` in all of them.
    """
    return [_survey_one(entry, data) for entry in GRAPH_SETS.values()]


def _survey_one(entry: MoleculeSet, data: str | Path | None) -> dict[str, Any]:
    path = search(f"{entry.name}.npz", data)
    row: dict[str, Any] = {"name": entry.name, "about": entry.about, "path": None}
    row["graphs"] = entry.graphs
    if path is None:
        return row | {"state": "downloads"}
    row["path"] = str(path)
    try:
        with opened(path) as file:
            sizes = file["num_nodes_list"]
        return row | {"state": "found", "graphs": len(sizes), "nodes": int(sizes.sum())}
    except DAMAGE:
        return row | {"state": "damaged"}
