r"""Chebyshev terms of a signal, computed once, so that batches of nodes can be filtered."""

from __future__ import annotations

import copy
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.files import make_folder, reserve
from specformer.spectrum.devices import available_bytes, gib
from specformer.spectrum.implicit.implicit import ImplicitSpectrum, chebyshev_basis
from specformer.spectrum.products import RowStream
from specformer.spectrum.sparse import most_rows

logger = logging.getLogger(__name__)

#: Terms may take this share of the free memory.
_SHARE = 0.5
#: How many numbers of a signal are processed together and held before they are written.
_HELD = 2**26


@dataclass(frozen=True, eq=False)
class ChebyshevRows(ImplicitSpectrum):
    r"""A spectrum for a batch of nodes; it filters only one signal, whose terms it holds.

    .. math::
        (g(L)\,x)_i \approx \sum_{k=0}^{K} c_k\, (T_k(L - I)\, x)_i

    Shapes: terms ``[..., b, K + 1, channels]``; x ``[..., b, channels]``, the first of them.
    """

    terms: Tensor | None = None
    x: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes in the batch."""
        assert self.terms is not None
        return self.terms.shape[-3]

    def at(self, terms: Tensor) -> ChebyshevRows:
        """The same for the terms of other nodes; constants are not computed again."""
        rows = copy.copy(self)
        object.__setattr__(rows, "terms", terms)
        object.__setattr__(rows, "x", terms[..., 0, :])
        return rows

    def _filtered(self, x: Tensor, gains: Tensor) -> Tensor:
        if x is not self.x or self.terms is None:
            raise SpectrumError(
                "a batch of nodes can filter only the signal whose terms it holds; a model needs "
                "space='input' and one filter."
            )
        coefficients = torch.einsum("kj,...jmc->...kmc", self._transform, gains)
        if coefficients.shape[-1] == 1:  # one response for all channels: a product of matrices
            return torch.einsum("...bkc,...km->...bmc", self.terms, coefficients.squeeze(-1))
        return torch.einsum("...bkc,...kmc->...bmc", self.terms, coefficients)


class ChebyshevTerms:
    r"""The terms T_k(L − I) x of every node, given out in batches of nodes.

    ``values`` are ``[n, K + 1, channels]``, on the spectrum's device, in the host's memory or in a
    mapped file. The channels are those of ``runs`` signals, one after the other; None for one
    signal.
    """

    def __init__(
        self,
        spectrum: ImplicitSpectrum,
        values: Tensor,
        batch_size: int,
        runs: int | None = None,
    ) -> None:
        self.spectrum, self.values, self._runs = spectrum, values, runs
        self._stream = RowStream(values, spectrum.device, spectrum.dtype, batch_size)
        self._rows = ChebyshevRows(
            spectrum.operator, spectrum.tokens, spectrum.degree, spectrum.report
        )

    @property
    def is_resident(self) -> bool:
        """Whether the terms are on the device where signals are filtered."""
        return self.values.device == self.spectrum.device

    def rows(self, nodes: Tensor) -> ChebyshevRows:
        """A batch of nodes; their numbers and all terms must be on one device."""
        return self._at(self.values.index_select(0, nodes).to(self.spectrum.dtype))

    def batches(self, places: Iterable[Tensor]) -> Iterator[ChebyshevRows]:
        """Yield each batch of nodes, wherever terms are; valid until the next is asked for."""
        for terms in self._stream(places):
            yield self._at(terms)

    def _at(self, terms: Tensor) -> ChebyshevRows:
        """Split a batch's terms, ``[b, K + 1, channels]``, by run."""
        if self._runs is None:
            return self._rows.at(terms)
        return self._rows.at(terms.unflatten(-1, (self._runs, -1)).movedim(-2, 0))


def chebyshev_terms(
    spectrum: ImplicitSpectrum,
    x: Tensor,
    batch_size: int,
    *,
    storage: torch.dtype = torch.float32,
    folder: str | Path | None = None,
) -> ChebyshevTerms:
    """Compute the terms of a signal with K sparse products and store them where they fit.

    They go to the spectrum's device if they take at most half of its free memory, else to the
    host's memory under the same condition, else to a mapped file, which is removed when the process
    ends.

    Args:
        spectrum: spectrum of the graph.
        x: signal, ``[n, channels]``, or one per run, ``[runs, n, channels]``.
        batch_size: most nodes in a batch.
        storage: precision to store terms in; they are computed in the spectrum's precision.
        folder: where a file may be written.

    Example:
        >>> from specformer.spectrum import approximate
        >>> path = approximate(torch.tensor([[0], [1]]), degree=2)
        >>> terms = chebyshev_terms(path, torch.tensor([[1.0], [0.0]]), batch_size=1)
        >>> for rows in terms.batches([torch.tensor([1])]):
        ...     print(rows.terms)  # of node 1: x, (L − I) x, x again
        tensor([[[ 0.],
                 [-1.],
                 [ 0.]]])
    """
    runs = len(x) if x.dim() == 3 else None
    if runs is not None:
        x = x.movedim(0, 1).flatten(1)
    shape = (spectrum.num_nodes, spectrum.degree + 1, x.shape[-1])
    values = _room(shape, storage, spectrum.device, folder)
    width = max(1, _HELD // max(1, most_rows(spectrum.operator)))
    for first in range(0, x.shape[-1], width):
        columns = slice(first, first + width)
        part = x[:, columns].to(spectrum.device, spectrum.dtype).contiguous()
        # Several orders are written at once, because rows are far apart in a file.
        together = max(1, _HELD // max(1, part.numel()))
        held: list[Tensor] = []
        for order, term in enumerate(chebyshev_basis(spectrum.operator, part, shape[1])):
            held.append(term)
            if len(held) == together or order == spectrum.degree:
                values[:, order + 1 - len(held) : order + 1, columns] = torch.stack(held, dim=1)
                held = []
    return ChebyshevTerms(spectrum, values, batch_size, runs)


def _room(
    shape: tuple[int, int, int],
    storage: torch.dtype,
    device: torch.device,
    folder: str | Path | None,
) -> Tensor:
    """Allocate memory or a file for the terms; refused if neither has space."""
    nodes, orders, channels = shape
    count = math.prod(shape)
    need, host = count * storage.itemsize, torch.device("cpu")
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # processes of torchrun on this machine
    for place in dict.fromkeys((device, host)):
        share = _SHARE / beside if place == host else _SHARE
        if need <= share * available_bytes(place):
            logger.info("terms of %s are stored on %s", gib(need), place)
            return torch.empty(shape, dtype=storage, device=place)
    told = (
        f"T_k(L) x of {nodes:,} nodes with {channels:,} features takes {gib(need)} at degree "
        f"{orders - 1}, but {gib(available_bytes(host))} of memory are free"
    )
    if folder is None:
        raise SpectrumError(
            f"{told}; lower degree, use storage=bfloat16, or give a cache folder for a file."
        )
    make_folder(folder)
    disk = shutil.disk_usage(folder).free
    if need > disk:
        raise SpectrumError(
            f"{told}, and {gib(disk)} on the disk of {folder}; lower degree, use storage=bfloat16, "
            "or give a cache folder on a larger disk."
        )
    logger.info("terms of %s are stored in a file in %s", gib(need), folder)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="terms-", suffix=".part") as file:
        reserve(file, need)
        # The mapping stays valid when the file is unlinked; the file goes when the process ends.
        return torch.from_file(file.name, shared=True, size=count, dtype=storage).view(shape)
