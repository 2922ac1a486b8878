"""Many graphs from PyTorch Geometric's objects and files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.files.npz_archive import naming
from specformer.graphs.checks import as_array, as_columns, refuse
from specformer.graphs.convert import as_graph, is_pyg
from specformer.graphs.formats.table_file import bare_name, unreadable
from specformer.graphs.graph import Graph
from specformer.graphs.graph_set import GraphSet


def graph_set_from_pyg(source: Any, name: str = "graphs") -> GraphSet:
    """Return the graphs of a PyG ``Batch``, or of a list or data set of ``Data``.

    Integers in ``x`` and ``edge_attr`` are categories, floats are numbers. If these hold numbers or
    are missing, ``z`` and ``edge_type`` may hold categories. Of the rest only ``y`` is used.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> ends = torch.tensor([[0, 1], [1, 0]])
        >>> graph_set_from_pyg([Data(x=torch.tensor([[6], [8]]), edge_index=ends)])
        GraphSet('graphs', graphs=1, nodes=2, edges=1)
    """
    if not is_pyg(source):
        try:
            each = iter(source)
        except TypeError:
            raise GraphError(
                f"cannot read graphs from {type(source).__name__}; pass a PyG Batch, a list or "
                "data set of Data, or a GraphSet, such as the graphs of Molecules"
            ) from None
        fields = _of_list(each)
    elif hasattr(source, "ptr"):
        fields = _of_batch(source)
    else:
        fields = _of_list([source])
    return GraphSet(**fields, name=name)


def _of_batch(batch: Any) -> dict[str, Any]:
    if getattr(batch, "edge_index", None) is None:
        raise GraphError("the batch has no edge_index")
    first = as_array(batch.ptr, "ptr", of="integers")
    count, last = len(first) - 1, int(first[-1]) - 1
    fields = _of_one(batch, last + 1, "")
    edges = fields["edge_index"].astype(np.int64)
    refuse((edges < 0) | (edges > last), edges, "edge_index", f"but the nodes are 0..{last}")
    graph = np.searchsorted(first, edges[0], side="right") - 1
    # A batch keeps the bonds of a graph together, unless they were shuffled.
    order = np.argsort(graph, kind="stable")
    fields["edge_index"] = (edges - first[graph])[:, order]
    for key in fields.keys() & {"edge_feat", "edge_x"}:
        fields[key] = fields[key][order]
    if (y := fields.get("y")) is not None:  # targets of shape [k] were joined to one row
        if y.size % count:
            raise GraphError(f"y must have shape [{count}, tasks], not {list(y.shape)}")
        fields["y"] = y.reshape(count, -1)
    counts = {"num_nodes": np.diff(first), "num_edges": np.bincount(graph, minlength=count)}
    return {**counts, **fields}


def _of_list(source: Iterable[Any]) -> dict[str, Any]:
    keys = ("edge_index", "node_feat", "x", "edge_feat", "edge_x", "y")
    parts: dict[str, list[NDArray[Any]]] = {key: [] for key in keys}
    num_nodes: list[int] = []
    # By field: a graph in which it holds numbers, and one in which it holds categories.
    holders: dict[str, dict[str, int]] = {"x": {}, "edge_attr": {}}
    for number, data in enumerate(source):
        if getattr(data, "edge_index", None) is None or data.num_nodes is None:
            raise GraphError(f"graph {number} is not a PyG Data with nodes and an edge_index")
        num_nodes.append(int(data.num_nodes))
        fields = _of_one(data, num_nodes[-1], f"graph {number}: ")
        if getattr(data, "x", None) is not None:
            holders["x"]["numbers" if "x" in fields else "categories"] = number
        if fields["edge_index"].size and getattr(data, "edge_attr", None) is not None:
            holders["edge_attr"]["numbers" if "edge_x" in fields else "categories"] = number
        for key, array in fields.items():
            parts[key].append(array.reshape(1, -1) if key == "y" else array)
    count = len(num_nodes)
    if count == 0:
        raise GraphError("the set has no graphs")
    for name, held in holders.items():
        if len(held) > 1:
            (kind, first), (other, then) = sorted(held.items(), key=lambda each: each[1])
            raise GraphError(
                f"{name} holds {kind} in graph {first} and {other} in graph {then}; make all "
                "integers or all floats"
            )
    targets = [each.size for each in parts["y"]]
    if targets == num_nodes and len({*targets}) > 1:
        raise GraphError(
            "y has one entry per node, but graphs have a target each; to learn about nodes, join "
            "the graphs into one Data"
        )
    num_edges = np.array([each.shape[1] for each in parts["edge_index"]])
    counts = dict.fromkeys(keys, count)
    if linked := int(np.count_nonzero(num_edges)):  # without edges, features may have any type
        for key in ("edge_feat", "edge_x"):
            parts[key], counts[key] = [each for each in parts[key] if len(each)], linked
    names = {
        "node_feat": "z" if parts["x"] else "x or z",
        "edge_feat": "edge_type" if parts["edge_x"] else "edge_attr",
        "edge_x": "edge_attr",
    }
    joined = {key: _joined(parts[key], names.get(key, key), counts[key]) for key in keys}
    return {"num_nodes": np.array(num_nodes), "num_edges": num_edges, **joined}


def _of_one(data: Any, nodes: int, where: str) -> dict[str, NDArray[Any]]:
    """Return the arrays that a ``Data`` or ``Batch`` has; all but ``y`` are checked.

    Nodes and edges may have categories, numbers, or both.
    """
    name = f"{where}edge_index"
    edges = as_array(data.edge_index, name, of="integers")
    if edges.ndim != 2 or len(edges) != 2:
        raise GraphError(f"{name} must have shape [2, edges], not {list(edges.shape)}")
    found = {"edge_index": edges}
    for first, second, rows, numbers, kinds in (
        ("x", "z", nodes, "x", "node_feat"),
        ("edge_attr", "edge_type", edges.shape[1], "edge_x", "edge_feat"),
    ):
        key, categories = second, getattr(data, second, None)
        if getattr(data, first, None) is not None:
            array = as_array(getattr(data, first), f"{where}{first}")
            if array.dtype.kind == "f":
                found[numbers] = as_columns(array, f"{where}{first}", rows)
                rule = "but features must be finite"
                refuse(~np.isfinite(array), array, f"{where}{first}", rule)
            else:
                key, categories = first, array
        if categories is not None:
            found[kinds] = _kinds(categories, f"{where}{key}", rows)
    if getattr(data, "y", None) is not None:
        found["y"] = as_array(data.y, f"{where}y")
    return found


def _kinds(value: Any, name: str, rows: int) -> NDArray[Any]:
    """Return categories, one row per node or edge."""
    array = as_array(value, name)
    if array.size and array.dtype.kind not in "iu":
        raise GraphError(
            f"{name} must hold categories 0, 1, 2, … as integers, not {array.dtype}; if it is "
            "one-hot, pass its argmax(dim=-1, keepdim=True)"
        )
    refuse(array < 0, array, name, "but categories are 0, 1, 2, …")
    return as_columns(array, name, rows)


def _joined(column: list[NDArray[Any]], name: str, count: int) -> NDArray[Any] | None:
    if not column:
        return None
    if len(column) < count:
        raise GraphError(f"only {len(column)} of {count} graphs have {name!r}")
    widths = {each.shape[1:] for each in column} if name != "edge_index" else set()
    if len(widths) > 1:
        raise GraphError(f"{name} has a different number of columns in different graphs")
    return np.concatenate(column, axis=1 if name == "edge_index" else 0)


_HOLDS = "pass a Data, a list of them, or the data.pt of a data set in memory"


def holds_many_data(path: Path) -> bool:
    """Whether a file holds a list of graphs rather than one."""
    return isinstance(_load(path), list)


def read_pyg_graph(path: Path) -> Graph:
    """Read the one graph of a file."""
    found = _load(path)
    with naming(path):
        if isinstance(found, list):
            raise GraphError(f"holds {len(found)} graphs, where a single graph is needed")
        return as_graph(found, name=bare_name(path))


def read_pyg_graphs(path: Path) -> GraphSet:
    """Read the many graphs of a file."""
    with naming(path):
        return graph_set_from_pyg(_load(path), name=bare_name(path))


def _load(path: Path) -> Any:
    """Read a file of ``torch.save``: something that :func:`as_graph` takes, or several ``Data``.

    ``torch.load`` with ``weights_only`` builds only tensors and the few classes of PyG that hold
    them, so that no code of a pickle is run.
    """
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    if not path.is_file():
        raise GraphError(f"{path}: there is no such file")
    # Leave out what PyG has already allowed: leaving the context would forbid it.
    known = set(torch.serialization.get_safe_globals())
    allowed = [
        kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known
    ]
    try:
        with torch.serialization.safe_globals(allowed):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file, or a pickle: any kind of error
        if "weights_only" in str(error) or "Weights only" in str(error):
            raise GraphError(
                f"{path}: holds Python objects other than tensors and PyG's Data, which are not "
                f"loaded, as they may run code; {_HOLDS}"
            ) from None
        raise unreadable(path, "a file of torch.save", error) from None
    with naming(path):
        return _graphs(found)


def _graphs(found: Any) -> Any:
    from torch_geometric.data import Data
    from torch_geometric.data.separate import separate

    if isinstance(found, tuple) and len(found) in (2, 3):  # of a data set in memory
        data, slices = found[:2]
        data = Data.from_dict(data) if isinstance(data, dict) else data
        if is_pyg(data) and (slices is None or isinstance(slices, dict)):
            try:
                found = data
                if slices:
                    numbers = range(len(next(iter(slices.values()))) - 1)
                    found = [
                        separate(type(data), data, number, slices, decrement=False)
                        for number in numbers
                    ]
            except (TypeError, ValueError, LookupError, AttributeError):
                raise GraphError(
                    f"its second part does not cut the first into graphs; {_HOLDS}"
                ) from None
    if isinstance(found, dict) and "edge_index" in found:
        found = Data.from_dict(found)
    if isinstance(found, list | tuple) and found and all(map(is_pyg, found)):
        return found[0] if len(found) == 1 else list(found)
    if is_pyg(found) or hasattr(found, "layout"):
        return found
    raise GraphError(f"is not a graph but {type(found).__name__}; {_HOLDS}")
