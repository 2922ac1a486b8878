"""The question that every solver answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.spectrum.eigenpairs import EQUAL

#: Called during a solve with the number of converged and of wanted pairs.
Progress = Callable[[int, int], None]
#: Up to this many numbers in all eigenvectors, ``chebyshev`` always works in float64: it takes
#: seconds, and repeated eigenvalues agree to twelve digits.
_PRECISE = 2**23
#: Above this many nodes a GPU's dense solve runs in float32, unless float64 is asked for.
_LARGE = 25_000
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Problem:
    """At least the ``lowest`` smallest and ``highest`` largest pairs of a Laplacian ``[n, n]``.

    Attributes:
        degrees: of the nodes, for exact null spaces; by default neighbours are counted, which is
            right for a graph without weights.
        dtype: precision of the result.
        mirrors: for ``dense``, see :func:`specformer.spectrum.solvers.dense.symmetric_bases`.
        start: for ``chebyshev``, pairs of a similar graph.
        state: for ``chebyshev``, path stem of files that keep an unfinished solve.
        ranks: for ``slepc``, MPI processes; by default one per core, or as many as the scheduler
            grants.
        hostfile: for ``slepc``, the machines; they must share the folder for temporary files.
    """

    laplacian: sp.csr_array
    lowest: int
    highest: int
    degrees: np.ndarray | None = None
    device: torch.device = _CPU
    dtype: torch.dtype = torch.float32
    mirrors: Sequence[np.ndarray] = ()
    start: tuple[np.ndarray, Tensor] | None = None
    state: Path | None = None
    ranks: int | None = None
    hostfile: str | Path | None = None
    progress: Progress | None = None

    @property
    def num_nodes(self) -> int:
        return int(self.laplacian.shape[0])

    @property
    def num_pairs(self) -> int:
        return self.lowest + self.highest

    @property
    def working_dtype(self) -> torch.dtype:
        """Precision that ``chebyshev`` multiplies in."""
        small = self.num_nodes * self.num_pairs <= _PRECISE
        return torch.float64 if small or self.dtype == torch.float64 else torch.float32

    @property
    def dense_dtype(self) -> torch.dtype:
        """Precision of a dense solve: float32 only where that saves half a minute and is enough."""
        large = self.device.type == "cuda" and self.num_nodes > _LARGE and not self.mirrors
        return torch.float32 if large and self.dtype != torch.float64 else torch.float64

    def equal(self, solver: str) -> float:
        """Largest distance of two eigenvalues that count as equal."""
        worked_in = {"chebyshev": self.working_dtype, "dense": self.dense_dtype}
        return EQUAL[worked_in.get(solver, torch.float64)]
