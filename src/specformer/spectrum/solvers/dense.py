r"""Every eigenpair at once, by LAPACK on the CPU or cuSOLVER on a GPU, in float64."""

from __future__ import annotations

import os

import numpy as np
import scipy.sparse as sp
import torch

from specformer.errors import SpectrumError

#: LAPACK's 32-bit workspace sizes overflow in ``torch.linalg.eigh`` on the CPU above this.
CPU_LIMIT = 32_700


def required_bytes(num_nodes: int) -> int:
    """Peak memory of a dense solve: the matrix, its eigenvectors and twice that as workspace."""
    return 4 * 8 * num_nodes**2


def available_bytes(device: torch.device) -> int:
    """Memory free on a device now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _page_cache_bytes()


def _page_cache_bytes() -> int:
    """What Linux would free for a program that asks; 0 elsewhere."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        available, free = (int(fields[key].split()[0]) for key in ("MemAvailable", "MemFree"))
    except (OSError, KeyError, ValueError):
        return 0
    return max(0, (available - free) * 1024)


def refusal(num_nodes: int, device: torch.device) -> str | None:
    """Why a dense solve is out of the question here, or None if it is not."""
    if device.type == "cpu" and num_nodes > CPU_LIMIT:
        return f"LAPACK on the CPU takes at most {CPU_LIMIT:,} nodes, the graph has {num_nodes:,}"
    need, free = required_bytes(num_nodes), available_bytes(device)
    if need > free:
        return (
            f"a dense decomposition of {num_nodes:,} nodes needs about {need / 2**30:.1f} GiB "
            f"on {device}, {free / 2**30:.1f} GiB are free"
        )
    return None


def solve(laplacian: sp.csr_array, device: torch.device) -> tuple[np.ndarray, torch.Tensor]:
    """All eigenvalues ``[n]`` ascending and eigenvectors ``[n, n]`` on ``device``, in float64."""
    reason = refusal(laplacian.shape[0], device)
    if reason:
        raise SpectrumError(f"{reason}; ask for fewer eigenpairs, k=…, with solver='lanczos'.")
    matrix = torch.as_tensor(laplacian.toarray()).to(device)
    values, vectors = torch.linalg.eigh(matrix)
    return values.cpu().numpy(), vectors
