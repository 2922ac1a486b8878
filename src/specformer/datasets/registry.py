r"""Names of node-level data sets, and where their files are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specformer.datasets.csbm import csbm
from specformer.datasets.download import SOURCES, download, set_file
from specformer.datasets.graph_registry import GRAPH_SETS, refuse_columns
from specformer.datasets.locate import search
from specformer.datasets.node_targets import TargetKind, with_targets
from specformer.datasets.structural_features import STRUCTURAL, with_structural_features
from specformer.errors import DataNotFoundError, GraphError, nearest
from specformer.graphs import Columns, Graph, read_graph
from specformer.graphs.formats.npz_archive import DAMAGE, NpzArchive, opened

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sizes:
    """How large a graph is; each edge counts once, without self-loops."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class NodeSet:
    """A data set people know by name, kept as ``NAME.npz``; its sizes are known without it."""

    name: str
    about: str
    sizes: Sizes


NODE_SETS: dict[str, NodeSet] = {
    entry.name: entry
    for entry in (
        NodeSet("cora", "citations, homophilic", Sizes(2_708, 5_278, 1_433, 7)),
        NodeSet("citeseer", "citations, homophilic", Sizes(3_327, 4_552, 3_703, 6)),
        NodeSet("pubmed", "citations, homophilic", Sizes(19_717, 44_324, 500, 3)),
        NodeSet("photo", "bought together, homophilic", Sizes(7_650, 119_081, 745, 8)),
        NodeSet("computers", "bought together, homophilic", Sizes(13_752, 245_861, 767, 10)),
        NodeSet(
            "chameleon",
            "web pages, heterophilic; duplicates leak from train to test",
            Sizes(2_277, 31_371, 2_325, 5),
        ),
        NodeSet(
            "squirrel",
            "web pages, heterophilic; duplicates leak from train to test",
            Sizes(5_201, 198_353, 2_089, 5),
        ),
        NodeSet(
            "chameleon-filtered", "chameleon without its duplicates", Sizes(890, 8_854, 2_325, 5)
        ),
        NodeSet(
            "squirrel-filtered", "squirrel without its duplicates", Sizes(2_223, 46_998, 2_089, 5)
        ),
        NodeSet("actor", "acted together, heterophilic", Sizes(7_600, 26_659, 932, 5)),
        NodeSet("penn94", "friendships, heterophilic", Sizes(41_554, 1_362_229, 4_814, 2)),
        NodeSet("cornell5", "friendships, heterophilic", Sizes(18_660, 790_777, 4_735, 2)),
        NodeSet("minesweeper", "a grid of fields with mines", Sizes(10_000, 39_402, 7, 2)),
        NodeSet("blogcatalog", "bloggers who follow another", Sizes(5_196, 171_743, 8_189, 7)),
        NodeSet("dblp", "citations, homophilic", Sizes(17_716, 52_867, 1_639, 4)),
        NodeSet("acm", "papers with an author in common", Sizes(3_025, 13_128, 1_870, 3)),
        NodeSet("wordnet", "synsets and their relations", Sizes(117_659, 183_789, 2_739, 45)),
        NodeSet("ogbn-arxiv", "citations, homophilic", Sizes(169_343, 1_157_799, 128, 40)),
        NodeSet("csbm", "generated: two classes, heterophilic", Sizes(1_000, 4_060, 200, 2)),
    )
}

#: The named set that is made, not read.
GENERATED = "csbm"


def named_graph(name: str, data: str | Path | None = None) -> Graph:
    """The graph of a named set: generated, read from its file, or downloaded first.

    Args:
        name: one of ``NODE_SETS``.
        data: folder searched first.

    Example:
        >>> named_graph("csbm")
        Graph('csbm', nodes=1000, edges=..., features=200, classes=2)
    """
    if name == GENERATED:
        return replace(csbm(homophily=-0.5), name=name)
    return read_graph(set_file(name, data, download))


def node_graph(
    source: str,
    data: str | Path | None = None,
    columns: Columns | None = None,
    *,
    labels: bool = True,
    task: TargetKind | None = None,
) -> Graph:
    """A labelled graph with features: a data set by name, or a path that ``read_graph`` takes.

    A graph without features is given those of its structure
    (:func:`~specformer.datasets.structural_features.with_structural_features`).

    Args:
        source: a name of ``NODE_SETS``, or a path.
        data: folder searched first for named sets.
        columns: which column of a file is what, where their names do not tell.
        labels: whether it must have labels to learn, see
            :func:`~specformer.datasets.node_targets.with_targets`.
        task: what they are learned as; None to let them say.
    """
    if source in NODE_SETS:
        refuse_columns(source, columns)
        graph = named_graph(source, data)
    elif Path(source).exists():
        graph = read_graph(source, columns, labels=labels)
    else:
        raise DataNotFoundError(unknown_set(source))
    if labels:
        graph = with_targets(graph, task, source)
    if graph.x is None:
        logger.info("%s: has no node features; used are %s", source, ", ".join(STRUCTURAL))
        return with_structural_features(graph)
    return graph


def unknown_set(source: str, names: Sequence[str] = tuple(NODE_SETS)) -> str:
    """What to say of a source that is neither a path nor one of the names.

    Example:
        >>> unknown_set("crao")
        "crao: neither a file or folder nor a data set; did you mean 'cora'?"
        >>> unknown_set("crao.npz")
        'crao.npz: there is no such file or folder.'
    """
    if source in GRAPH_SETS:
        return f"{source}: a set of many graphs, where a single graph is needed."
    path = Path(source)
    if path.suffix or path.name != source:
        return f"{source}: there is no such file or folder."
    close = nearest(source, names)
    hint = f"did you mean {close!r}?" if close else f"those are {', '.join(names)}."
    return f"{source}: neither a file or folder nor a data set; {hint}"


def survey(data: str | Path | None = None) -> list[dict[str, Any]]:
    """What is known of every named set without fetching any, a row each.

    ``name``, ``about``, ``path`` (None without a file), ``state`` (``"found"``, ``"damaged"``,
    ``"generated"``, ``"downloads"`` when it is first used, ``"not found"``), and ``nodes``,
    ``edges``, ``features`` and ``classes``: of its file, else as they are known.

    Example:
        >>> {row["name"]: row["state"] for row in survey()}["csbm"]
        'generated'
    """
    return [_survey_one(entry, data) for entry in NODE_SETS.values()]


def _survey_one(entry: NodeSet, data: str | Path | None) -> dict[str, Any]:
    path = search(f"{entry.name}.npz", data)
    row: dict[str, Any] = {"name": entry.name, "about": entry.about, "path": None}
    known = asdict(entry.sizes)
    if entry.name == GENERATED:
        return row | {"state": "generated"} | known
    if path is None:
        return row | {"state": "downloads" if entry.name in SOURCES else "not found"} | known
    row["path"] = str(path)
    try:
        return row | {"state": "found"} | asdict(file_sizes(path))
    except GraphError:
        return row | {"state": "damaged"} | known


def file_sizes(path: str | Path) -> Sizes:
    """The sizes of the graph in an npz file; of its features only the shape is read.

    Edges are counted once, without self-loops, as :attr:`specformer.graphs.Graph.num_edges` does.
    """
    try:
        with opened(Path(path)) as file:
            nodes = int(file["num_nodes"])
            ends = np.sort(file["edge_index"].astype(np.int64), axis=0)
            ends = ends[:, ends[0] != ends[1]]
            names = [key for key in ("class_names", "y") if key in file.files]
            found = {key: file[key] for key in names}
            features = _columns(file)
    except DAMAGE as error:
        raise GraphError(f"{path}: is damaged, or holds no graph.") from error
    classes = len(found["class_names"]) if "class_names" in found else 0
    if not classes and "y" in found and found["y"].size:
        classes = int(found["y"].max()) + 1
    return Sizes(nodes, np.unique(ends[0] * nodes + ends[1]).size, features, classes)


def _columns(file: NpzArchive) -> int:
    """How many features an open npz file holds, from the header of dense ones."""
    if "x_shape" in file.files:
        return int(file["x_shape"][1])
    if "x" not in file.files:
        return 0
    return file.shape("x")[1]
