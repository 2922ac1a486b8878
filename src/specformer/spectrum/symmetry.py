r"""Smaller problems from a graph's mirror symmetries.

A Laplacian commutes with every automorphism of its graph. Commuting mirror symmetries (each its
own inverse) split the space into joint even and odd parts, one for each choice of signs, and L into
as many independent blocks: two mirrors turn one problem of size n into four of about n/4, a
sixteenth of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import scipy.sparse as sp

from specformer.errors import SpectrumError


def symmetric_bases(laplacian: sp.csr_array, mirrors: Sequence[np.ndarray]) -> list[sp.csr_array]:
    r"""Orthonormal bases ``[n, m]`` of the joint even and odd subspaces, together ``[n, n]``.

    Args:
        laplacian: ``[n, n]``.
        mirrors: permutations ``[n]`` of the nodes, commuting, each its own inverse, each leaving
            the graph as it is.

    Example:
        >>> path = sp.csr_array(np.array([[1.0, -1.0], [-1.0, 1.0]]))
        >>> [basis.shape for basis in symmetric_bases(path, [np.array([1, 0])])]
        [(2, 1), (2, 1)]
    """
    n = laplacian.shape[0]
    if not mirrors:
        return [sp.csr_array(sp.eye_array(n, format="csr"))]
    elements = [np.arange(n)]  # every product of mirrors, in the order of `product` below
    for number, mirror in enumerate(mirrors):
        _check(laplacian, mirror)
        if any(not np.array_equal(mirror[other], other[mirror]) for other in mirrors[:number]):
            raise SpectrumError("mirrors must commute: their order must not matter.")
        elements = [element[step] for element in elements for step in (np.arange(n), mirror)]
    orbits = np.stack(elements)
    first = np.flatnonzero(orbits.min(axis=0) == np.arange(n))
    bases = []
    for signs in product((1.0, -1.0), repeat=len(mirrors)):
        character = np.array([1.0])
        for sign in signs:
            character = np.outer(character, [1.0, sign]).ravel()
        rows = orbits[:, first].ravel()
        columns = np.tile(np.arange(first.size), len(character))
        entries = np.repeat(character, first.size)
        basis = sp.csc_array(sp.coo_array((entries, (rows, columns)), shape=(n, first.size)))
        length = np.sqrt(np.asarray(basis.multiply(basis).sum(axis=0)).ravel())
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
