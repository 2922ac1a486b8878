r"""Every eigenpair at once, by LAPACK on the CPU or cuSOLVER on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
import torch

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import refined
from specformer.spectrum.solvers.problem import Problem
from specformer.spectrum.sparse import to_torch

#: Above this many nodes, 32-bit workspace sizes of LAPACK overflow in ``torch.linalg.eigh``.
CPU_LIMIT = 32_700
#: Matrices in memory at the peak of a solve: the Laplacian, its eigenvectors and LAPACK's workspace
#: of two. A GPU needs two more in either precision.
_MATRICES = {"cpu": 4, "cuda": 6}
#: A need of less is not compared with the free memory: to find that takes as long as the solve.
_LITTLE = 2**24


def required_bytes(num_nodes: int, device: torch.device, dtype: torch.dtype = torch.float64) -> int:
    """Peak memory of a dense solve."""
    return _MATRICES.get(device.type, 4) * dtype.itemsize * num_nodes**2


def refusal(num_nodes: int, device: torch.device, dtype: torch.dtype = torch.float64) -> str | None:
    """Why a dense solve is not possible here, or None if it is."""
    need = required_bytes(num_nodes, device, dtype)
    if device.type == "cpu" and num_nodes > CPU_LIMIT:
        return (
            f"LAPACK on the CPU takes at most {CPU_LIMIT:,} nodes, the graph has {num_nodes:,} and "
            f"would need about {devices.gib(need)}"
        )
    if need > _LITTLE and need > (free := devices.available_bytes(device)):
        return (
            f"a dense decomposition of {num_nodes:,} nodes needs about {devices.gib(need)} "
            f"on {device}, {devices.gib(free)} are free"
        )
    return None


def solve(problem: Problem) -> tuple[np.ndarray, torch.Tensor]:
    """All eigenvalues ``[n]`` ascending in float64 and eigenvectors ``[n, n]`` on the device.

    Mirrors split the problem, see :func:`symmetric_bases`. In float32 a GPU takes little more than
    half the time; eigenvalues are then refined in float64.
    """
    laplacian, device, dtype = problem.laplacian, problem.device, problem.dense_dtype
    reason = refusal(problem.num_nodes, device, dtype)
    if reason:
        raise SpectrumError(f"{reason}; ask for fewer eigenpairs, k=…, with solver='chebyshev'.")
    if not problem.mirrors:
        # Made dense on the device: faster, and needs no memory on the host.
        values, vectors = torch.linalg.eigh(to_torch(laplacian, device, dtype).to_dense())
        if dtype != torch.float64:
            values, vectors = refined(laplacian, vectors)
        return values.cpu().numpy(), vectors
    parts = []
    for basis in symmetric_bases(laplacian, problem.mirrors):
        block = torch.as_tensor((basis.T @ laplacian @ basis).toarray()).to(device)
        values, vectors = torch.linalg.eigh(block)
        parts.append((values, to_torch(basis, device, torch.float64) @ vectors))
    values = torch.cat([part[0] for part in parts])
    order = values.argsort()
    vectors = torch.cat([part[1] for part in parts], dim=1)[:, order]
    return values[order].cpu().numpy(), vectors


def symmetric_bases(laplacian: sp.csr_array, mirrors: Sequence[np.ndarray]) -> list[sp.csr_array]:
    """Orthonormal bases ``[n, m]`` of the joint even and odd subspaces, together ``[n, n]``.

    A Laplacian commutes with every automorphism of its graph. Commuting mirror symmetries (each its
    own inverse) split L into one independent block for each choice of signs: two mirrors turn one
    problem of size n into four of about n/4, a sixteenth of the work.
    """
    n = laplacian.shape[0]
    elements = [np.arange(n)]  # all products of mirrors, in the order of `product` below
    for number, mirror in enumerate(mirrors):
        _check(laplacian, mirror)
        if any(not np.array_equal(mirror[other], other[mirror]) for other in mirrors[:number]):
            raise SpectrumError("mirrors must commute: their order must not matter.")
        elements = [element[step] for element in elements for step in (np.arange(n), mirror)]
    orbits = np.stack(elements)
    first = np.flatnonzero(orbits.min(axis=0) == np.arange(n))
    bases = []
    for signs in product((1.0, -1.0), repeat=len(mirrors)):
        character: np.ndarray = np.ones(1)
        for sign in signs:
            character = np.kron(character, [1.0, sign])
        rows = orbits[:, first].ravel()
        columns = np.tile(np.arange(first.size), len(character))
        entries = np.repeat(character, first.size)
        basis = sp.csc_array((entries, (rows, columns)), shape=(n, first.size))
        length = spla.norm(basis, axis=0)
        keep = length > 0.5  # an orbit fixed by a mirror has no odd part
        if keep.any():
            bases.append(sp.csr_array(basis[:, keep] @ sp.diags_array(1.0 / length[keep])))
    return bases


def _check(laplacian: sp.csr_array, mirror: np.ndarray) -> None:
    n = laplacian.shape[0]
    if mirror.dtype.kind not in "iu":
        raise SpectrumError(f"a mirror must hold node numbers as integers, not {mirror.dtype}.")
    permutes = mirror.shape == (n,) and np.array_equal(np.sort(mirror), np.arange(n))
    if not permutes or not np.array_equal(mirror[mirror], np.arange(n)):
        raise SpectrumError(f"a mirror must be a permutation of the {n} nodes and its own inverse.")
    if abs(laplacian[mirror][:, mirror] - laplacian).max() > 1e-12:
        raise SpectrumError("a mirror changes the graph; pass symmetries of the graph only.")
