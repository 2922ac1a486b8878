r"""Labels as people hand them over, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from specformer.errors import GraphError


def encoded(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Class numbers ``[n]``, -1 where there is no label, and the labels of 0, 1, ….

    None, NaN and, among whole numbers, -1 are no label.

    Example:
        >>> numbers, classes = encoded(["cat", "dog", None, "cat"])
        >>> numbers.tolist(), classes.tolist()
        ([0, 1, -1, 0], ['cat', 'dog'])
    """
    labels = np.asarray(y)
    if labels.dtype.kind == "O":
        known = np.array([label is not None and label == label for label in labels.tolist()])
    elif labels.dtype.kind == "f":
        known = ~np.isnan(labels)
    elif labels.dtype.kind == "i":
        known = labels != -1
    else:
        known = np.ones(len(labels), dtype=bool)
    if not known.any():
        raise GraphError("y has no label to learn")
    classes, numbers = np.unique(np.array(labels[known].tolist()), return_inverse=True)
    found = np.full(len(labels), -1, dtype=np.int64)
    found[known] = numbers.reshape(-1)
    return found, classes


def as_labels(names: Any) -> np.ndarray:
    """Names of classes as labels: whole numbers where all of them are.

    Example:
        >>> as_labels(["0", "1"]).tolist(), as_labels(["cat", "dog"]).tolist()
        ([0, 1], ['cat', 'dog'])
    """
    try:
        return np.array([int(name) for name in names])
    except ValueError:
        return np.array(names)


def as_columns(y: Any, count: int) -> np.ndarray:
    """Numbers or labels ``[n, targets]`` in float64, of as many rows as there are.

    Example:
        >>> as_columns([1, 2], 2).tolist()
        [[1.0], [2.0]]
    """
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"y must hold numbers: {error}") from None
    if values.ndim not in (1, 2) or len(values) != count:
        raise GraphError(f"y must have {count} rows, not shape {list(values.shape)}")
    return values.reshape(count, -1)
