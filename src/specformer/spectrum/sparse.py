r"""Sparse matrices in PyTorch, whole or by rows over several processes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def to_torch(matrix: sp.csr_array, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The same matrix as a PyTorch CSR tensor."""
    return compressed_rows(
        torch.as_tensor(matrix.indptr.astype(np.int64)).to(device),
        torch.as_tensor(matrix.indices.astype(np.int64)).to(device),
        torch.as_tensor(matrix.data).to(device, dtype),
        (int(matrix.shape[0]), int(matrix.shape[1])),
    )


def compressed_rows(
    starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """A CSR tensor of valid parts; skips the check, which would wait for the device."""
    with warnings.catch_warnings():  # "in beta" since 2021, "invariants": not the user's concern
        warnings.filterwarnings("ignore", message="Sparse (CSR|invariant)")
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


class Parts(Protocol):
    """How rows of nodes are distributed over processes; all processes make the same calls."""

    @property
    def bounds(self) -> Sequence[int]:
        """The first row of every process, and the number of all rows."""

    @property
    def rows(self) -> slice:
        """The rows of this process."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over all processes, in place."""

    def swap(
        self, rows: Tensor, counts: Sequence[int], back: Sequence[int]
    ) -> Callable[[], Tensor]:
        """Send ``counts`` consecutive rows to each process; the result waits for ``back`` rows."""


@dataclass(frozen=True, eq=False)
class RowShard:
    r"""The rows :math:`M_r` of one process of a symmetric sparse matrix.

    ``shard @ x`` takes and returns the rows of this process. Other processes send those of their
    rows of x that edges lead to, during the product with the process's own rows:
    :math:`(M x)_r = M_{rr} x_r + \sum_{s \ne r} M_{rs} x_s`. Who sends what is decided when the
    shard is made.

    Shapes: own ``[m, m]``, beyond ``[m, h]`` with one column per received row, in the order of
    nodes; ``sent`` are the rows to send, grouped by process.
    """

    own: Tensor
    beyond: Tensor
    sent: Tensor
    counts: Sequence[int]
    back: Sequence[int]
    parts: Parts

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows here, and of all rows."""
        return self.own.shape[0], self.parts.bounds[-1]

    @property
    def device(self) -> torch.device:
        return self.own.device

    @property
    def dtype(self) -> torch.dtype:
        return self.own.dtype

    def to(self, device: Any = None, dtype: Any = None, non_blocking: bool = False) -> RowShard:
        """The same on another device or in another precision."""
        own, beyond = (
            part.to(device=device, dtype=dtype, non_blocking=non_blocking)
            for part in (self.own, self.beyond)
        )
        return replace(self, own=own, beyond=beyond, sent=self.sent.to(device=device))

    def clone(self) -> RowShard:
        return replace(self, own=self.own.clone(), beyond=self.beyond.clone())

    def fetched(self, x: Tensor) -> Callable[[], Tensor]:
        """Send rows of ``[m, c]``; the result waits for those of other processes, ``[h, c]``."""
        return self.parts.swap(x.index_select(0, self.sent), self.counts, self.back)

    def __matmul__(self, x: Tensor) -> Tensor:
        coming = self.fetched(x)
        out = self.own @ x
        others = coming()
        return torch.addmm(out, self.beyond, others) if len(others) else out


#: A symmetric matrix, or this process's rows of one.
Operator: TypeAlias = Tensor | RowShard


def row_shard(
    rows: sp.csr_array, parts: Parts, device: torch.device, dtype: torch.dtype
) -> RowShard:
    """Make a shard of this process's rows ``[m, n]``; all processes agree who sends what."""
    bounds, first = np.asarray(parts.bounds), parts.rows.start
    inside = (rows.indices >= first) & (rows.indices < parts.rows.stop)
    needed = np.unique(rows.indices[~inside])
    back = np.diff(np.searchsorted(needed, bounds))

    def exchanged(numbers: np.ndarray, counts: Sequence[int], back: Sequence[int]) -> Tensor:
        return parts.swap(torch.as_tensor(numbers.astype(np.int64)).to(device), counts, back)()

    ones = [1] * len(back)
    counts = exchanged(back, ones, ones).tolist()
    sent = exchanged(needed, back.tolist(), counts) - first
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    halves = []
    for chosen, columns, width in (
        (inside, rows.indices[inside] - first, rows.shape[0]),
        (~inside, np.searchsorted(needed, rows.indices[~inside]), len(needed)),
    ):
        starts = np.append(0, np.cumsum(np.bincount(row[chosen], minlength=rows.shape[0])))
        part = sp.csr_array((rows.data[chosen], columns, starts), shape=(rows.shape[0], width))
        halves.append(to_torch(part, device, dtype))
    return RowShard(halves[0], halves[1], sent, counts, back.tolist(), parts)


def most_rows(matrix: Operator) -> int:
    """Rows of the largest process: decisions that must be the same everywhere depend on it."""
    if isinstance(matrix, Tensor):
        return matrix.shape[0]
    return int(np.diff(matrix.parts.bounds).max())


def summed_over(matrix: Operator, tensor: Tensor) -> Tensor:
    """Extend a sum over this process's rows to all rows, in place."""
    return tensor if isinstance(matrix, Tensor) else matrix.parts.sum(tensor)


def sparse_product(matrix: Operator, dense: Tensor) -> Tensor:
    """``matrix @ dense`` in the matrix's precision, also under autocast: CPUs need it."""
    kind = dense.device.type
    if not torch.is_autocast_enabled(kind):
        return matrix @ dense
    with torch.autocast(kind, enabled=False):
        return matrix @ dense.to(matrix.dtype)
