"""What ``torch.save`` wrote of PyTorch Geometric's graphs, loaded without running any code.

One ``Data``, a list of them, the ``data.pt`` of a data set in memory, or an ``edge_index`` alone.
``torch.load`` with ``weights_only`` builds tensors and the few classes of PyG that hold them, and
refuses all else that a pickle may ask for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specformer.errors import GraphError
from specformer.graphs.convert import as_graph, is_pyg
from specformer.graphs.formats.graph_set_pyg import graph_set_from_pyg
from specformer.graphs.formats.npz_archive import naming
from specformer.graphs.formats.table_file import bare_name
from specformer.graphs.graph import Graph
from specformer.graphs.graph_set import GraphSet

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
    """Return what a file holds: something that :func:`as_graph` takes, or a list of ``Data``."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    if not path.is_file():
        raise GraphError(f"{path}: there is no such file")
    # Those that PyG has allowed itself stay allowed: leaving the context would forbid them.
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
        reason = str(error).partition("\n")[0].rstrip(".")
        raise GraphError(f"{path}: cannot be read by torch.load: {reason}") from None
    with naming(path):
        return _graphs(found)


def _graphs(found: Any) -> Any:
    from torch_geometric.data import Data

    if isinstance(found, tuple) and len(found) in (2, 3):  # of a data set in memory
        data, slices = found[:2]
        data = Data.from_dict(data) if isinstance(data, dict) else data
        if is_pyg(data) and (slices is None or isinstance(slices, dict)):
            found = _separated(data, slices) if slices else data
    if isinstance(found, dict) and "edge_index" in found:
        found = Data.from_dict(found)
    if isinstance(found, list | tuple) and found and all(map(is_pyg, found)):
        return found[0] if len(found) == 1 else list(found)
    if is_pyg(found) or hasattr(found, "layout"):
        return found
    raise GraphError(f"holds no graph but {type(found).__name__}; {_HOLDS}")


def _separated(data: Any, slices: dict[str, Any]) -> list[Any]:
    from torch_geometric.data.separate import separate

    count = len(next(iter(slices.values()))) - 1
    return [
        separate(type(data), data, idx=number, slice_dict=slices, decrement=False)
        for number in range(count)
    ]
