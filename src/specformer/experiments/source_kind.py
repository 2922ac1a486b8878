r"""What a user's source is: signals to filter, a graph with labelled nodes, or many graphs."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Literal

from specformer.datasets import GRAPH_SETS
from specformer.datasets.registry import NODE_SETS, unknown_set
from specformer.datasets.signal_registry import SIGNAL_SETS
from specformer.errors import DataNotFoundError, GraphError
from specformer.experiments.train_filter import is_signal_source
from specformer.graphs.csv_table import csv_name, is_csv

#: As results name them.
Kind = Literal["filters", "nodes", "molecules"]

#: What a source of each kind is, in words.
KINDS: dict[Kind, str] = {
    "filters": "a set of signals",
    "nodes": "a single graph",
    "molecules": "a set of many graphs",
}

_NAMES = (*NODE_SETS, *GRAPH_SETS, *SIGNAL_SETS)


def source_kind(source: str) -> Kind:
    """Which kind of training a source asks for.

    What is neither there nor known by name is refused, and so is a file of a kind nobody reads.

    Example:
        >>> source_kind("photographs"), source_kind("cora"), source_kind("zinc")
        ('filters', 'nodes', 'molecules')
    """
    if is_signal_source(source):
        return "filters"
    path = Path(source)
    if source not in _NAMES and not path.exists():
        raise DataNotFoundError(unknown_set(source, _NAMES))
    many = holds_many(source)
    if not many and path.is_file() and path.suffix.lower() not in ("", ".npz"):
        raise GraphError(
            f"{source}: {path.suffix} files are not read; pass a .csv file of molecules, an .npz "
            "file, a folder with edges.csv or an image."
        )
    return "molecules" if many else "nodes"


def holds_many(source: str) -> bool:
    """Whether a source is a set of many graphs: by name, a CSV file, or an npz with their keys.

    Example:
        >>> holds_many("zinc"), holds_many("mine.csv"), holds_many("cora")
        (True, True, False)
    """
    if source in GRAPH_SETS or is_csv(source):
        return True
    path = Path(source)
    if path.suffix.lower() != ".npz" or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return "num_nodes_list.npy" in archive.namelist()


def source_name(source: str) -> str:
    """What to call a run on a source: a set's name, a folder's, or a file's without its ending.

    Example:
        >>> source_name("zinc"), source_name("folder/mine.csv.gz"), source_name("photo.png")
        ('zinc', 'mine', 'photo')
    """
    path = Path(source)
    return path.resolve().name if path.is_dir() else csv_name(path)
