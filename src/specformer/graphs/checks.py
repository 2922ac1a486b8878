"""Checks of graphs from any source.

Each returns its argument in the form the rest of the library relies on, or raises a
:class:`~specformer.errors.GraphError` that names the first wrong entry.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse

from specformer.errors import GraphError
from specformer.files.host_memory import free_bytes, gib, raised

logger = logging.getLogger(__name__)

#: Least memory of a graph: adjacency while it is symmetrised, Laplacian, degrees, one signal; names
#: and weights of features. Reading alone was measured at 34 bytes per node and 102 per edge.
_BYTES = {"nodes": 100, "edges": 150, "features": 100}
_REMEDIES = {
    "nodes": "number nodes from 0 on, without gaps",
    "edges": "take a part of the graph",
    "features": "leave out those that no node has",
}
#: Below this many bytes, free memory is not looked up.
_ALWAYS = 2**26
#: A column should be able to hold at least this many different numbers.
_STEPS = 1000
_KINDS = {"numbers": "biuf", "integers": "iu"}


def as_array(
    value: Any, name: str, of: Literal["numbers", "integers"] = "numbers", hint: str = ""
) -> NDArray[Any]:
    """Return an array, a tensor on any device or a nested list as a NumPy array.

    ``hint`` is the end of the error for other types.
    """
    try:
        array = np.asarray(as_host(value))
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise GraphError(f"{name} cannot be read as an array of {of}: {reason}") from None
    # NumPy gives an empty list the type float, so the type of an empty array says nothing.
    if array.size and array.dtype.kind not in _KINDS[of]:
        raise GraphError(f"{name} must hold {of}, not {array.dtype}{hint}")
    return array


def refuse(
    bad: NDArray[np.bool_],
    values: NDArray[Any],
    name: str,
    rule: str,
    of: csr_array[Any] | None = None,
) -> None:
    """Raise an error that names the first of ``values`` that ``bad`` marks, if there is one.

    ``of`` is the sparse array that ``values`` are the data of, to find their positions.
    """
    if not bad.any():
        return
    first = np.unravel_index(bad.argmax(), bad.shape)
    where = first if of is None else [axis[first] for axis in of.tocoo().coords]
    raise GraphError(f"{name}[{', '.join(map(str, where))}] is {values[first]}, {rule}")


def check_room(**claimed: int) -> None:
    """Refuse more nodes, edges or features than fit into memory: a file may claim any number."""
    needs = {what: count * _BYTES[what] for what, count in claimed.items()}
    need = sum(needs.values())
    if need > _ALWAYS and need > raised(free := free_bytes()):
        most = max(needs, key=lambda what: needs[what])
        raise GraphError(
            f"{claimed[most]:,} {most} need about {gib(need)} of memory, but {gib(free)} are free; "
            f"{_REMEDIES[most]}"
        )


def as_columns(array: NDArray[Any], name: str, rows: int, columns: str = "columns") -> NDArray[Any]:
    """Return an array [rows, columns]; a single column may be given as [rows].

    Without rows, no columns become one: their number says nothing then.
    """
    table = array[:, None] if array.ndim == 1 else array
    table = table.reshape(0, 1) if table.shape == (rows, 0) == (0, 0) else table
    if table.ndim != 2 or len(table) != rows or table.shape[1] == 0:
        raise GraphError(f"{name} must have shape [{rows}, {columns}], not {list(array.shape)}")
    return table


def check_index(value: Any, name: str, count: int) -> NDArray[np.int64]:
    """Return numbers of graphs as int64; refuse those outside ``count`` graphs."""
    numbers = as_array(value, name, of="integers").astype(np.int64)
    outside = (numbers < 0) | (numbers >= count)
    refuse(outside, numbers, name, f"but there are graphs 0..{count - 1}")
    return numbers


def graph_numbers(part: Any, name: str, count: int) -> NDArray[np.int64]:
    """Return the numbers of some of ``count`` graphs, given as numbers or as a mask."""
    array = as_array(part, name)
    if array.dtype == np.bool_ and array.shape == (count,):
        return np.flatnonzero(array)
    return check_index(array, name, count)


def check_weights(matrix: Any) -> csr_array[np.float64]:
    """Return a square sparse matrix of weights in canonical form: sorted, no repeats, no zeros.

    A boolean matrix is a pattern: its entries become 1, however often they are repeated.
    """
    if not _is_sparse(matrix):
        raise GraphError(f"adjacency must be a SciPy sparse array, not {type(matrix).__name__}")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"adjacency must be square, but its shape is {list(matrix.shape)}")
    if matrix.shape[0] == 0:
        raise GraphError("the graph has no nodes")
    if matrix.dtype.kind not in _KINDS["numbers"]:
        raise GraphError(f"adjacency must hold real numbers, not {matrix.dtype}")
    weights = _canonical(matrix, np.float64, "adjacency")
    if matrix.dtype == np.bool_:
        weights.data[:] = 1.0
    finite = np.isfinite(weights.data)
    rule = "but weights must be finite and not negative"
    refuse(~finite | (weights.data < 0), weights.data, "adjacency", rule, weights)
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.data.sum()):
            raise GraphError("adjacency has weights so large that their sum overflows float64")
    return weights


def check_adjacency(matrix: Any) -> csr_array[np.float64]:
    """Return an adjacency matrix [n, n] in canonical form, refusing one that is not symmetric."""
    weights = check_weights(matrix)
    mirror = weights.T.tocsr()
    same = np.array_equal(weights.indices, mirror.indices)
    if not (same and np.array_equal(weights.data, mirror.data)):
        row, column = (int(axis[0]) for axis in (weights - mirror).tocoo().coords)
        raise GraphError(
            f"adjacency is not symmetric: [{row}, {column}] is {weights[row, column]}, "
            f"[{column}, {row}] is {weights[column, row]}; as_graph() symmetrises it"
        )
    return weights


def check_features(
    x: Any,
    num_nodes: int,
    *,
    missing: bool = False,
    name: str = "x",
    columns: Sequence[str] | None = None,
    of: str = "",
) -> NDArray[np.float32] | csr_array[np.float32]:
    """Return features [n, channels] as float32, dense, or CSR if they are sparse.

    With ``missing``, NaN in a dense array is a missing value. ``columns`` and ``of`` name the
    columns and the graph in a warning of digits that float32 does not hold.
    """
    x = as_scipy(x)
    values = x if _is_sparse(x) else as_array(x, name)
    if values.ndim != 2 or values.shape[0] != num_nodes:
        raise GraphError(
            f"{name} must have shape [{num_nodes}, features], not {list(values.shape)}"
        )
    if values.dtype.kind not in _KINDS["numbers"]:
        raise GraphError(f"{name} must hold numbers, not {values.dtype}")
    rule = "but features must be finite in float32"
    with np.errstate(over="ignore"):  # what overflows is refused below
        if _is_sparse(values):
            check_room(features=values.shape[1])  # empty columns take no space in a file
            sparse = _canonical(values, np.float32, name)
            refuse(~np.isfinite(sparse.data), sparse.data, name, rule, sparse)
            return sparse
        dense: NDArray[np.float32] = values.astype(np.float32)
    refuse(np.isinf(dense) if missing else ~np.isfinite(dense), values, name, rule)
    called = columns or range(dense.shape[1])
    for column, step in _coarse(values, dense).items():
        logger.warning(
            "%s: float32 rounds the numbers of column %r to multiples of %.3g; "
            "subtract the smallest from all of them", of, called[column], step,
        )  # fmt: skip
    return dense


def _coarse(values: NDArray[Any], dense: NDArray[np.float32]) -> dict[int, float]:
    """The float32 step of columns that lose digits and span less than 1,000 steps."""
    if values.dtype == np.float32 or not values.size:
        return {}
    low, high = (reduce(dense, axis=0) for reduce in (np.fmin.reduce, np.fmax.reduce))
    with np.errstate(invalid="ignore"):  # of columns without any number
        step = np.spacing(np.fmax(abs(low), abs(high)))
        coarse = np.flatnonzero((high - low < _STEPS * step) & (high >= low)).tolist()
    return {
        column: float(step[column])
        for column in coarse
        if not np.array_equal(dense[:, column], values[:, column], equal_nan=True)
        and np.nanmin(values[:, column]) < np.nanmax(values[:, column])
    }


def check_labels(
    y: Any, num_nodes: int, names: tuple[str, ...] | None
) -> NDArray[np.int64] | NDArray[np.float32]:
    """Return classes [n] as int64, or several labels or numbers [n, targets] as float32.

    Integers [n] or [n, 1] are classes, and -1 is no label. Floats and several columns of integers
    are targets; NaN is unknown, and so is -1 among integers of 0 and 1.
    """
    hint = "; class_names, y = np.unique(words, return_inverse=True) numbers words"
    labels = as_array(y, "y", hint=hint)
    if labels.ndim not in (1, 2) or len(labels) != num_nodes or 0 in labels.shape[1:]:
        shapes = f"[{num_nodes}] or [{num_nodes}, targets]"
        raise GraphError(f"y must have shape {shapes}, not {list(labels.shape)}")
    if labels.dtype.kind == "f" or (labels.ndim == 2 and labels.shape[1] > 1):
        targets = finite_targets(labels.reshape(num_nodes, -1))
        if labels.dtype.kind != "f" and np.isin(labels, (-1, 0, 1)).all():
            targets[labels == -1] = np.nan
        if names is not None and len(names) != targets.shape[1]:
            raise GraphError(f"y has {targets.shape[1]} columns, but class_names has {len(names)}")
        return targets
    if labels.dtype.kind == "u":
        most = np.iinfo(labels.dtype).max
        wrapped = (labels == most) & ~(labels == most - 1).any()
        refuse(wrapped, labels, "y", f"which -1 becomes as {labels.dtype}; store y as int64")
    labels = labels.reshape(num_nodes).astype(np.int64)
    refuse(
        labels < -1,
        labels,
        "y",
        "but classes are 0, 1, …, and -1 means no label; numbers to predict are floats",
    )
    if names is not None:
        refuse(labels >= len(names), labels, "y", f"but there are {len(names)} class_names")
    return labels


def finite_targets(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return targets as float32; NaN is unknown."""
    with np.errstate(over="ignore"):  # what overflows is refused below
        targets: NDArray[np.float32] = values.astype(np.float32)
    refuse(np.isinf(targets), values, "y", "but targets must be finite in float32, or NaN")
    return targets


def check_mask(mask: Any, name: str, num_nodes: int) -> NDArray[np.bool_]:
    """Return a mask [n] or [n, splits], of booleans or 0 and 1, as booleans [n, splits]."""
    fix = f"numbers of nodes become a mask by np.isin(range({num_nodes}), numbers)"
    array = as_array(mask, name)
    if array.ndim not in (1, 2) or array.shape[0] != num_nodes:
        shapes = f"[{num_nodes}] or [{num_nodes}, splits]"
        raise GraphError(f"{name} must have shape {shapes}, not {list(array.shape)}; {fix}")
    if not np.isin(array, (0, 1)).all():
        raise GraphError(f"{name} must hold booleans, or 0 and 1; {fix}")
    return array.reshape(num_nodes, -1).astype(np.bool_)


def check_names(names: Sequence[str], name: str, count: int | None = None) -> tuple[str, ...]:
    """Return names as a tuple of ``count`` different strings."""
    checked = tuple(map(str, names))
    if count is not None and len(checked) != count:
        raise GraphError(f"{name} must have {count} entries, not {len(checked)}")
    if len(set(checked)) < len(checked):
        twice = Counter(checked).most_common(1)[0][0]
        raise GraphError(f"{name} has {twice!r} more than once")
    return checked


def check_words(
    words: Mapping[str, Sequence[str]], names: tuple[str, ...] | None, x: Any
) -> dict[str, tuple[str, ...]]:
    """Return the words of feature columns; every entry of such a column must number a word."""
    checked = {}
    for name, given in words.items():
        if names is None or name not in names or _is_sparse(x):
            raise GraphError(f"feature_words names {name!r}, which is not a dense column of x")
        checked[name] = check_names(given, f"feature_words[{name!r}]")
        column = x[:, names.index(name)]
        known = np.isnan(column) | np.isin(column, np.arange(len(given)))
        refuse(~known, column, f"x[:, {name!r}]", f"but there are words 0..{len(given) - 1}")
    return checked


def _is_sparse(value: Any) -> bool:
    # issparse alone would narrow the type to one without a shape.
    return bool(issparse(value))


def _canonical(matrix: Any, dtype: type[Any], name: str) -> csr_array[Any]:
    """Return a copy as CSR of ``dtype``, its indices checked, sorted and unique, without zeros."""
    try:
        copy: csr_array[Any] = csr_array(matrix, dtype=dtype, copy=True)
        copy.check_format(full_check=True)
    except ValueError as error:
        raise GraphError(f"{name} is not a valid sparse array: {error}") from None
    copy.sum_duplicates()
    copy.eliminate_zeros()
    return copy


def as_host(value: Any) -> Any:
    """Bring a dense tensor to the host in a type that NumPy has; anything else stays as it is."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return value.float() if str(value.dtype) == "torch.bfloat16" else value


def as_scipy(value: Any) -> Any:
    """Turn a sparse tensor of any layout into SciPy's COO; anything else stays as it is."""
    if not str(getattr(value, "layout", "")).startswith("torch.sparse"):
        return value
    entries = value.detach().cpu().to_sparse_coo().coalesce()
    places = tuple(entries.indices().numpy())
    values = as_host(entries.values()).numpy()
    if values.dtype == np.float16:  # SciPy has none
        values = values.astype(np.float32)
    return coo_array((values, places), shape=tuple(value.shape))
