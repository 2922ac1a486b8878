r"""A graph from what a user types: a data set's name, a file, a folder, or the size of a grid."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from specformer.datasets import NODE_SETS, grid_graph, grid_mirrors
from specformer.datasets.graph_registry import refuse_columns
from specformer.datasets.registry import named_graph, unknown_set
from specformer.errors import GraphError
from specformer.graphs import Columns, Graph, read_graph

_GRID = re.compile(r"(\d+)x(\d+)")
#: Far beyond what can be decomposed; a typing error should not fill the memory.
_MOST_NODES = 10_000_000


def graph_source(
    source: str, data: str | Path | None = None, columns: Columns | None = None
) -> tuple[Graph, tuple[np.ndarray, ...]]:
    """The graph, and the mirror symmetries known of it; ``data`` holds the named sets.

    ``columns`` says which column of a file is what, where their names do not tell.

    Example:
        >>> graph_source("3x4")[0].num_nodes
        12
    """
    size = _GRID.fullmatch(source)
    if size:
        height, width = int(size[1]), int(size[2])
        if height * width > _MOST_NODES:
            raise GraphError(f"{source}: a grid may have at most {_MOST_NODES:,} nodes.")
        if not height * width:
            raise GraphError(f"{source}: the grid has no nodes.")
        return grid_graph(height, width), grid_mirrors(height, width)
    if source in NODE_SETS:
        refuse_columns(source, columns)
        return named_graph(source, data), ()
    if not Path(source).exists():
        raise GraphError(unknown_set(source))
    return read_graph(source, columns), ()
