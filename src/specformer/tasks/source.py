r"""What a user's source is: signals to filter, a graph with labelled nodes, or many graphs."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Literal

from specformer.datasets import GRAPH_SETS
from specformer.datasets.registry import NODE_SETS, unknown_set
from specformer.datasets.signals import SIGNAL_SETS
from specformer.errors import DataNotFoundError, GraphError
from specformer.graphs import Columns
from specformer.graphs.formats.graph_set_pyg import holds_many_data
from specformer.graphs.formats.molecule_table import is_of_molecules, smiles_column
from specformer.graphs.formats.read import GRAPH_FILES, file_ending
from specformer.graphs.formats.table import Table
from specformer.graphs.formats.table_file import bare_name, is_table, table_header

#: As results name them.
Kind = Literal["filters", "nodes", "links", "molecules"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif")
_NAMES = (*NODE_SETS, *GRAPH_SETS, *SIGNAL_SETS)


def source_kind(source: str, columns: Columns | None = None) -> Kind:
    """Which kind of training a source asks for; a table's by the columns that someone names.

    What is neither there nor known by name is refused, and so is a file that nobody reads.
    """
    if source in SIGNAL_SETS or source.lower().endswith(IMAGE_SUFFIXES):
        return "filters"
    path = Path(source)
    if source not in _NAMES and not path.exists():
        raise DataNotFoundError(unknown_set(source, _NAMES))
    said = (columns or Columns()).said
    many = "smiles" in said or (holds_many(source) and "source" not in said)
    known = is_table(path) or not path.suffix or file_ending(path) in GRAPH_FILES
    if not many and path.is_file() and not known:
        raise GraphError(
            f"{source}: {path.suffix} files are not read; pass a folder with edges.csv, a .csv, "
            f".smi or .sdf file of molecules, an image, or one of {', '.join(GRAPH_FILES)}."
        )
    return "molecules" if many else "nodes"


def holds_many(source: str) -> bool:
    """Whether a source is a set of many graphs: by name, molecules, or a file that holds many."""
    path = Path(source)
    if source in GRAPH_SETS:
        return True
    if is_of_molecules(source):
        return not (is_table(source) and path.is_file() and _is_of_edges(path))
    if path.suffix.lower() == ".pt" and path.is_file():
        return holds_many_data(path)
    if path.suffix.lower() != ".npz" or not (path.is_file() and zipfile.is_zipfile(path)):
        return False
    with zipfile.ZipFile(path) as archive:
        return "num_nodes_list.npy" in archive.namelist()


def _is_of_edges(path: Path) -> bool:
    """Whether a table has the columns of an edge's ends, and none of SMILES."""
    header = table_header(path)
    if smiles_column(header):
        return False
    numbers = len(header) > 1 and all(name.isdigit() for name in header[:2])
    return numbers or Table(path, {name: [] for name in header}, []).endpoints() is not None


def source_name(source: str) -> str:
    """What to call a run on a source: a set's name, a folder's, or a file's without its ending."""
    path = Path(source)
    return path.resolve().name if path.is_dir() else bare_name(path)
