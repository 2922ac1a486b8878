r"""Decompositions whose eigenvectors are streamed to a device that cannot hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp
import torch

from specformer.graphs import as_adjacency
from specformer.spectrum.decompose import decompose
from specformer.spectrum.memory import available_bytes
from specformer.spectrum.spectrum import Spectrum
from specformer.spectrum.storage import cache as spectrum_cache
from specformer.spectrum.where import usable_device

#: Eigenvectors may take up this share of a GPU's free memory; models and signals need the rest.
_SHARE = 0.5


def vectors_fit(
    num_nodes: int,
    k: int | Sequence[int] | None,
    device: torch.device,
    storage: torch.dtype = torch.float32,
) -> bool:
    """Whether a device has room for the eigenvectors; a CPU always has, as it can map a file.

    Example:
        >>> vectors_fit(10**9, 5000, torch.device("cpu"))
        True
    """
    need = vector_bytes(num_nodes, k, storage)
    return device.type == "cpu" or need <= _SHARE * available_bytes(device)


def decompose_streamed(
    source: Any,
    *,
    k: int | tuple[int, int] | None = None,
    device: torch.device | str | None = None,
    storage: torch.dtype = torch.float32,
    cache: str | Path | None = None,
) -> Spectrum:
    """As :func:`specformer.decompose`, for a device that need not hold the eigenvectors.

    They stay in the cache's file, which is mapped, or in the host's memory where there is no cache
    or the CPU has just computed them (:meth:`Spectrum.streamed`). The solve runs on the device if
    the eigenvectors would fit there, else on the CPU; a spectrum that is in the cache is not solved
    again.

    Args:
        source: as in :func:`specformer.decompose`.
        k: likewise.
        device: where signals are filtered.
        storage: precision to keep eigenvectors in; with a cache, in a file of its own.
        cache: folder for spectra.

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> decompose_streamed(ring, storage=torch.bfloat16)
        Spectrum(num_nodes=3, eigenpairs=3 (complete), distinct=2, dtype=torch.float32, \
device=cpu, streamed from cpu in torch.bfloat16)
    """
    adjacency = as_adjacency(source)
    target = usable_device(device)
    if cache is None or storage == torch.float32:
        return _on_host(adjacency, k, target, cache).streamed(target, storage=storage)
    graph = spectrum_cache.content(adjacency)
    name = spectrum_cache.key(graph, {"k": k, "storage": str(storage)})
    spectrum = spectrum_cache.fetch(cache, name, graph)
    if spectrum is None:
        spectrum = _on_host(adjacency, k, target, cache).streamed(storage=storage)
        kept = spectrum_cache.keep(cache, name, spectrum)
        spectrum = spectrum if kept is None else Spectrum.load(kept)
    return spectrum.streamed(target)


def _on_host(
    adjacency: sp.csr_array,
    k: int | tuple[int, int] | None,
    target: torch.device,
    cache: str | Path | None,
) -> Spectrum:
    """The spectrum in the host's memory or the cache's file, solved where there is room."""
    fits = vectors_fit(adjacency.shape[0], k, target)
    solved = decompose(adjacency, k=k, device=target if fits else "cpu", cache=cache)
    if cache is None or solved.device.type == "cpu":
        return solved.cpu()
    del solved  # now in the cache: what comes back is its file
    return decompose(adjacency, k=k, cache=cache)


def vector_bytes(num_nodes: int, k: int | Sequence[int] | None, storage: torch.dtype) -> int:
    """What at least the eigenvectors take up.

    Example:
        >>> vector_bytes(1_000_000, (600, 400), torch.bfloat16)
        2000000000
    """
    pairs = num_nodes if k is None else k if isinstance(k, int) else sum(k)
    return num_nodes * min(pairs, num_nodes) * storage.itemsize
