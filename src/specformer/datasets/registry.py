r"""Names of data sets, where their files are, and graphs from whatever a user types."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from specformer.datasets.csbm import csbm
from specformer.datasets.download import SOURCES, search, set_file
from specformer.datasets.parts import AllRows, GraphPart, is_in_parts, read_parts
from specformer.datasets.signals import EMBEDDED, SIGNAL_SETS, grid_graph, grid_mirrors
from specformer.datasets.structural_features import with_features, with_structural_features
from specformer.errors import ConfigError, DataNotFoundError, GraphError, nearest
from specformer.files.host_memory import raised
from specformer.graphs import Columns, Graph, GraphSet, read_graph, read_graph_set, read_molecules
from specformer.graphs.formats.graph_set_pyg import read_pyg_graphs
from specformer.graphs.formats.smiles import ATOM_CARDINALITIES, BOND_CARDINALITIES
from specformer.graphs.formats.table_file import is_of_molecules
from specformer.graphs.node_targets import TargetKind, with_targets
from specformer.spectrum.sparse import Parts

logger = logging.getLogger(__name__)

_GRID = re.compile(r"(\d+)x(\d+)")
#: More nodes than can be decomposed: a typing error must not fill the memory.
_MOST_NODES = 10_000_000
#: Most unreadable rows of a file that are logged one by one.
_NAMED = 10


@dataclass(frozen=True)
class NodeSet:
    """A graph known by name, kept as ``NAME.npz``; each edge counts once, without self-loops."""

    name: str
    about: str
    nodes: int
    edges: int
    features: int
    classes: int


_LEAKS = "web pages, heterophilic; duplicates leak from train to test"
NODE_SETS: dict[str, NodeSet] = {
    entry.name: entry
    for entry in (
        NodeSet("cora", "citations, homophilic", 2_708, 5_278, 1_433, 7),
        NodeSet("citeseer", "citations, homophilic", 3_327, 4_552, 3_703, 6),
        NodeSet("pubmed", "citations, homophilic", 19_717, 44_324, 500, 3),
        NodeSet("photo", "bought together, homophilic", 7_650, 119_081, 745, 8),
        NodeSet("computers", "bought together, homophilic", 13_752, 245_861, 767, 10),
        NodeSet("chameleon", _LEAKS, 2_277, 31_371, 2_325, 5),
        NodeSet("squirrel", _LEAKS, 5_201, 198_353, 2_089, 5),
        NodeSet("chameleon-filtered", "chameleon without its duplicates", 890, 8_854, 2_325, 5),
        NodeSet("squirrel-filtered", "squirrel without its duplicates", 2_223, 46_998, 2_089, 5),
        NodeSet("actor", "acted together, heterophilic", 7_600, 26_659, 932, 5),
        NodeSet("penn94", "friendships, heterophilic", 41_554, 1_362_229, 4_814, 2),
        NodeSet("cornell5", "friendships, heterophilic", 18_660, 790_777, 4_735, 2),
        NodeSet("minesweeper", "a grid of fields with mines", 10_000, 39_402, 7, 2),
        NodeSet("blogcatalog", "bloggers who follow another", 5_196, 171_743, 8_189, 7),
        NodeSet("dblp", "citations, homophilic", 17_716, 52_867, 1_639, 4),
        NodeSet("acm", "papers with an author in common", 3_025, 13_128, 1_870, 3),
        NodeSet("wordnet", "synsets and their relations", 117_659, 183_789, 2_739, 45),
        NodeSet("ogbn-arxiv", "citations, homophilic", 169_343, 1_157_799, 128, 40),
        NodeSet("csbm", "generated: two classes, heterophilic", 1_000, 4_060, 200, 2),
    )
}

#: The named set that is generated and not read from a file.
GENERATED = "csbm"


@dataclass(frozen=True)
class MoleculeSet:
    """A set of graphs known by name, kept as ``NAME.npz``; ``about`` says what is learned.

    Cardinalities say how many values each column of ``node_feat`` and ``edge_feat`` may take.
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


def graph_source(
    source: str, data: str | Path | None = None, columns: Columns | None = None
) -> tuple[Graph, tuple[np.ndarray, ...]]:
    """A graph by name, path or size of a grid, and its known mirror symmetries."""
    size = _GRID.fullmatch(source)
    if size is None:
        return _one_graph(source, data, columns), ()
    height, width = int(size[1]), int(size[2])
    if height * width > (most := raised(_MOST_NODES)):
        raise GraphError(f"{source}: a grid may have at most {most:,} nodes.")
    if not height * width:
        raise GraphError(f"{source}: the grid has no nodes.")
    return grid_graph(height, width), grid_mirrors(height, width)


def node_graph(
    source: str,
    data: str | Path | None = None,
    columns: Columns | None = None,
    *,
    labels: bool = True,
    task: TargetKind | None = None,
    share: Callable[[int], Parts] = AllRows,
    device: torch.device | str = "cpu",
) -> Graph:
    """A labelled graph with features: a data set by name, or a path that ``read_graph`` takes.

    A graph without features, or with labels and columns of a single value, is given those of its
    structure (:func:`~specformer.datasets.structural_features.with_structural_features`).

    Args:
        source: a name of ``NODE_SETS``, or a path.
        data: folder searched first for named sets.
        columns: the meaning of columns whose names do not tell it.
        labels: whether it must have labels to learn.
        task: what they are learned as, see :func:`~specformer.graphs.node_targets.with_targets`.
        share: how processes share nodes, see :func:`~specformer.datasets.parts.read_parts`.
        device: the device of messages between processes.
    """
    graph = _one_graph(source, data, columns, labels=labels, share=share, device=device)
    if labels:
        graph = with_targets(graph, task, source)
    if isinstance(graph, GraphPart):
        if graph.x is None:
            raise GraphError(f"{source}: has no features; add x to its parts, or use one process.")
        return graph
    if labels:
        graph = with_features(graph, source)
    return graph if graph.x is not None else with_structural_features(graph)


def _one_graph(
    source: str,
    data: str | Path | None,
    columns: Columns | None,
    *,
    labels: bool = True,
    share: Callable[[int], Parts] = AllRows,
    device: torch.device | str = "cpu",
) -> Graph:
    if source in NODE_SETS:
        _refuse_columns(source, columns)
        return named_graph(source, data)
    if not Path(source).exists():
        raise DataNotFoundError(unknown_set(source))
    if is_in_parts(source):
        _refuse_columns(source, columns)
        return read_parts(source, share, device)
    return read_graph(source, columns, labels=labels)


def named_graph(name: str, data: str | Path | None = None) -> Graph:
    """The graph of a named set: generated, read from its file, or downloaded first."""
    if name == GENERATED:
        return replace(csbm(homophily=-0.5), name=name)
    return read_graph(set_file(name, data))


def graph_set(
    source: str | Path, data: str | Path | None = None, columns: Columns | None = None
) -> GraphSet:
    """Many graphs: a data set by name, an npz or ``.pt`` file, or a file of molecules.

    A named set is looked for as ``NAME.npz`` and downloaded if it is not found. Molecules of a file
    that cannot be read are left out; the first ten and their number are logged.

    Args:
        source: a name of ``GRAPH_SETS``, or a path.
        data: folder searched first for named sets.
        columns: the meaning of columns of a file of molecules whose names do not tell it.
    """
    if str(source) in GRAPH_SETS:
        _refuse_columns(str(source), columns)
        return read_graph_set(set_file(str(source), data))
    path = Path(source)
    if not path.is_file():
        known = ", ".join(GRAPH_SETS)
        raise DataNotFoundError(f"{source}: neither a file nor a set of graphs ({known}).")
    if not is_of_molecules(path):
        _refuse_columns(str(source), columns)
        return read_pyg_graphs(path) if path.suffix.lower() == ".pt" else read_graph_set(path)
    found = read_molecules(path, columns)
    for problem in found.problems[:_NAMED]:
        logger.warning("%s, %s", path, problem)
    if len(found.problems) > _NAMED:
        rows = len(found.problems) + len(found.graphs)
        logger.warning(
            "%s: %s of %s rows are not molecules and are left out; above are the first %d.",
            path, f"{len(found.problems):,}", f"{rows:,}", _NAMED,
        )  # fmt: skip
    return found.graphs


def _refuse_columns(source: str, columns: Columns | None) -> None:
    """Refuse options for columns where there are none; any set may have its targets chosen."""
    if said := [name for name in (columns or Columns()).options if name != "targets"]:
        raise ConfigError(
            f"--{said[0]}: applies to a table of your own; {source} has no columns with names."
        )


def unknown_set(source: str, names: Sequence[str] = tuple(NODE_SETS)) -> str:
    """The error message for a source that is neither a path nor one of the names."""
    if source in GRAPH_SETS:
        return f"{source}: a set of many graphs, where a single graph is needed."
    path = Path(source)
    if path.suffix or path.name != source:
        return f"{source}: there is no such file or folder."
    close = nearest(source, names)
    hint = f"did you mean {close!r}?" if close else f"those are {', '.join(names)}."
    return f"{source}: neither a file, a folder nor a data set; {hint}"


def survey(data: str | Path | None = None) -> list[dict[str, Any]]:
    """What is known of every named set, one row each, without opening or fetching any file.

    ``name``, ``about``, ``path`` (None without a file), ``state`` (``"found"``, ``"generated"``,
    ``"embedded"``, ``"downloads"`` when it is first used, ``"not found"``), and sizes: ``nodes``,
    ``edges``, ``features`` and ``classes`` of a single graph, ``graphs`` of many, ``signals``,
    ``nodes`` and ``edges`` of images.
    """
    known: dict[str, dict[str, Any]] = {name: asdict(each) for name, each in NODE_SETS.items()}
    for name, molecules in GRAPH_SETS.items():
        known[name] = {"about": molecules.about, "graphs": molecules.graphs}
    own = {GENERATED: "generated", EMBEDDED: "embedded"}
    rows = []
    for name, told in (known | SIGNAL_SETS).items():
        path = None if name in own else search(f"{name}.npz", data)
        state = "found" if path else own.get(name, "downloads" if name in SOURCES else "not found")
        file = str(path) if path else None
        rows.append({"name": name, "about": told["about"], "path": file, "state": state, **told})
    return rows
