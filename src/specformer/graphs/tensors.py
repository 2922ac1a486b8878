"""Tensors as NumPy and SciPy hold them, known without importing torch."""

from __future__ import annotations

from typing import Any

from scipy.sparse import coo_array


def as_host(value: Any) -> Any:
    """A dense tensor on the host in a type that NumPy has; anything else as it is."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return value.float() if str(value.dtype) == "torch.bfloat16" else value


def as_scipy(value: Any) -> Any:
    """A sparse tensor of any layout as SciPy's coordinates; anything else as it is.

    Example:
        >>> import torch
        >>> as_scipy(torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse_csr()).toarray()
        array([[0., 2.],
               [0., 0.]], dtype=float32)
    """
    if not str(getattr(value, "layout", "")).startswith("torch.sparse"):
        return value
    entries = value.detach().cpu().to_sparse_coo().coalesce()
    places = tuple(entries.indices().numpy())
    return coo_array((as_host(entries.values()).numpy(), places), shape=tuple(value.shape))
