"""Whether two values are the same to the bit, whatever they are made of."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from torch import Tensor

from specformer.graphs import Graph


def same(one: Any, other: Any) -> bool:
    """Compare graphs, tensors, arrays, and lists and dictionaries of them."""
    if isinstance(one, Graph):
        names = [each.name for each in fields(Graph) if each.name != "name"]
        return isinstance(other, Graph) and all(
            same(getattr(one, name), getattr(other, name)) for name in names
        )
    if issparse(one):
        parts = ("indptr", "indices", "data", "shape")
        return issparse(other) and all(same(getattr(one, p), getattr(other, p)) for p in parts)
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and same(one.detach().numpy(), other.detach().numpy())
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and (one.dtype, one.shape) == (other.dtype, other.shape)
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(one[key], other[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, type(one)) and len(one) == len(other) and all(map(same, one, other))
        )
    if is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one)
        )
    return type(one) is type(other) and bool(one == other)


def copied(value: Any) -> Any:
    """The value without ties to a file: tensors may be mapped from one that is about to change."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(copied, value))
    return value
