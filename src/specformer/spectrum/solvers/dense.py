r"""Every eigenpair at once, by LAPACK on the CPU or cuSOLVER on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch

from specformer.errors import SpectrumError
from specformer.spectrum import memory
from specformer.spectrum.eigenpairs import refined
from specformer.spectrum.sparse import to_torch
from specformer.spectrum.symmetry import symmetric_bases

#: LAPACK's 32-bit workspace sizes overflow in ``torch.linalg.eigh`` on the CPU above this.
CPU_LIMIT = 32_700
#: Matrices in memory at the peak of a solve: the Laplacian, its eigenvectors and LAPACK's workspace
#: of two. A GPU needs two more in either precision.
_MATRICES = {"cpu": 4, "cuda": 6}


def required_bytes(num_nodes: int, device: torch.device, dtype: torch.dtype = torch.float64) -> int:
    """Peak memory of a dense solve."""
    return _MATRICES.get(device.type, 4) * dtype.itemsize * num_nodes**2


def refusal(num_nodes: int, device: torch.device, dtype: torch.dtype = torch.float64) -> str | None:
    """Why a dense solve is not possible here, or None if it is."""
    need, free = required_bytes(num_nodes, device, dtype), memory.available_bytes(device)
    if device.type == "cpu" and num_nodes > CPU_LIMIT:
        return (
            f"LAPACK on the CPU takes at most {CPU_LIMIT:,} nodes, the graph has {num_nodes:,} and "
            f"would need about {memory.gib(need)}"
        )
    if need > free:
        return (
            f"a dense decomposition of {num_nodes:,} nodes needs about {memory.gib(need)} "
            f"on {device}, {memory.gib(free)} are free"
        )
    return None


def solve(
    laplacian: sp.csr_array,
    device: torch.device,
    mirrors: Sequence[np.ndarray] = (),
    dtype: torch.dtype = torch.float64,
) -> tuple[np.ndarray, torch.Tensor]:
    """All eigenvalues ``[n]`` ascending in float64 and eigenvectors ``[n, n]`` on ``device``.

    ``mirrors`` split the problem, see :mod:`specformer.spectrum.symmetry`. In float32 a GPU takes
    little more than half as long; eigenvalues are then refined in float64.
    """
    reason = refusal(laplacian.shape[0], device, dtype)
    if reason:
        raise SpectrumError(f"{reason}; ask for fewer eigenpairs, k=…, with solver='chebyshev'.")
    if not mirrors:
        # Made dense on the device, which is faster and needs no memory on the host.
        values, vectors = torch.linalg.eigh(to_torch(laplacian, device, dtype).to_dense())
        if dtype != torch.float64:
            values, vectors = refined(laplacian, vectors)
        return values.cpu().numpy(), vectors
    parts = []
    for basis in symmetric_bases(laplacian, mirrors):
        block = torch.as_tensor((basis.T @ laplacian @ basis).toarray()).to(device)
        values, vectors = torch.linalg.eigh(block)
        parts.append((values, _expand(basis, vectors)))
    values = torch.cat([part[0] for part in parts])
    order = values.argsort()
    vectors = torch.cat([part[1] for part in parts], dim=1)[:, order]
    return values[order].cpu().numpy(), vectors


def _expand(basis: sp.csr_array, vectors: torch.Tensor) -> torch.Tensor:
    """``basis @ vectors`` for a basis with at most one entry per row: gather and scale rows."""
    rows, columns = basis.tocoo().coords
    source = np.zeros(basis.shape[0], dtype=np.int64)
    scale = np.zeros(basis.shape[0])
    source[rows], scale[rows] = columns, basis.tocoo().data
    device = vectors.device
    gathered = vectors[torch.as_tensor(source).to(device)]
    return gathered * torch.as_tensor(scale).to(device).unsqueeze(-1)
