r"""Fast products with the eigenvectors, :math:`U^\top x` and :math:`U x`.

On a GPU such a product takes as long as reading U. If PyTorch's level of precision allows it
(``torch.set_float32_matmul_precision``), a large U is read in bfloat16, and our own kernel
multiplies with few columns.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from specformer.errors import SpectrumError
from specformer.kernels import runs_on
from specformer.kernels.tracing import transforming


def as_columns(x: Any) -> Any:
    """Turn a vector ``[n]`` into one channel, ``[n, 1]``; anything else stays as it is."""
    return x.unsqueeze(-1) if isinstance(x, Tensor) and x.dim() == 1 else x


def check_signal(
    x: Any, count: int, dtype: torch.dtype | None, name: str = "x", of: str = "nodes"
) -> None:
    """Refuse a signal that is not ``[..., count, channels]`` in this precision; None for any."""
    if not isinstance(x, Tensor):
        raise SpectrumError(f"{name} must be a tensor, not {type(x).__name__}.")
    if x.layout != torch.strided:
        raise SpectrumError(f"{name} is sparse; pass {name}.to_dense().")
    # Under autocast, products convert their factors to one precision.
    if dtype not in (None, x.dtype) and not torch.is_autocast_enabled(x.device.type):
        raise SpectrumError(
            f"{name} is {x.dtype}, but the spectrum {dtype}; pass {name}.to(spectrum.dtype), "
            f"or convert the spectrum."
        )
    shape = list(x.shape)
    if len(shape) < 2:
        raise SpectrumError(f"{name} has shape {shape}, but [..., {count}, channels] is needed.")
    if shape[-2] != count:
        has = f"{shape[-2]} values" if name == "response" else f"shape {shape}"
        raise SpectrumError(f"{name} has {has}, but the spectrum has {count} {of}.")


class Filtering(ABC):
    """Base of both kinds of spectra: filters signals."""

    @property
    @abstractmethod
    def _takes(self) -> tuple[int, torch.dtype, int, str]:
        """Number of nodes, precision, length of a response, and what its entries belong to."""

    def filter(self, x: Tensor, response: Tensor) -> Tensor:
        r"""Filter a signal in the spectral domain, :math:`U\,\mathrm{diag}(g)\,U^\top x`.

        Args:
            x: signal, ``[n]`` or ``[..., n, channels]``.
            response: g at every eigenvalue, or at the points of an implicit spectrum, ``[q]``; or
                one per channel, ``[..., q, channels]``.
        """
        columns, gains = as_columns(x), as_columns(response)
        count, dtype, values, at = self._takes
        check_signal(columns, count, dtype)
        check_signal(gains, values, dtype, "response", at)
        channels, given = columns.shape[-1], gains.shape[-1]
        if 1 not in (channels, given) and given != channels:
            raise SpectrumError(f"response has {given} channels, but x has {channels}.")
        out = self._filtered(columns, gains.unsqueeze(-2)).squeeze(-2)
        return out if columns is x or gains is response else out.squeeze(-1)

    def filter_bank(self, x: Tensor, responses: Tensor) -> Tensor:
        """Filter every channel with each of M filters.

        Shapes: x ``[..., n, channels]``, responses ``[..., q, M]``; ``[..., n, M, channels]``.
        """
        count, dtype, values, at = self._takes
        check_signal(x, count, dtype)
        check_signal(responses, values, dtype, "response", at)
        return self._filtered(x, responses.unsqueeze(-1))

    @abstractmethod
    def _filtered(self, x: Tensor, gains: Tensor) -> Tensor:
        """Filter ``[..., n, c]`` with gains ``[..., q, M, c]``; returns ``[..., n, M, c]``."""


def check_precision(dtype: Any) -> None:
    """Refuse a precision other than float32 and float64."""
    if dtype not in (torch.float32, torch.float64):
        raise SpectrumError(f"dtype={dtype}: choose torch.float32 or torch.float64.")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse a value that is not a whole number, or less than the least one."""
    if not (isinstance(value, numbers.Integral) and int(value) >= least):
        raise SpectrumError(f"{name}={value!r} must be a whole number, at least {least}.")


#: Bytes per chunk; two are in transfer at once, each in the host's memory and on the device.
CHUNK = 2**27
#: Takes columns ``[n or q, c]`` and whether to transform forward; returns ``[q or n, c]``.
Product = Callable[[Tensor, bool], Tensor]
#: From this many entries of U on, bfloat16 pays: fewer fit into a GPU's cache in any precision.
_MANY = 2**24
#: Our own kernel is for at least so many entries of U and at most so many columns of a signal. With
#: fewer entries, the launch takes most of the time.
_ENOUGH, _FEW = 2**20, 32


def rows_at_once(matrix: Tensor) -> int:
    """Number of rows in a chunk, at least one."""
    width = matrix[:1].numel() * matrix.element_size()
    return max(1, CHUNK // max(1, width))


class RowStream:
    """Chunks of a matrix's rows on a device, in the precision of the work there.

    The matrix stays where it is: in the host's memory, in a memory-mapped file or on the device.
    To a GPU, rows go through two pinned buffers and two on the device: while one chunk is in use,
    the next is copied on a separate stream. A chunk has at most ``most`` rows.
    """

    def __init__(self, matrix: Tensor, device: torch.device, dtype: torch.dtype, most: int) -> None:
        self.matrix, self.device, self.dtype, self.most = matrix, device, dtype, most
        self._lane: _Lane | None = None

    def __call__(self, places: Iterable[slice | Tensor]) -> Iterator[Tensor]:
        """Yield the rows at each of these places; a chunk is valid until the next is asked for."""
        if self.device.type == "cuda" and self.matrix.device != self.device:
            if self._lane is None:
                self._lane = _Lane(self.matrix, self.device, self.most)
            chunks = self._lane.send(places)
        else:
            chunks = (_taken(self.matrix, place) for place in places)
        for chunk in chunks:
            yield chunk.to(self.device, self.dtype)

    def slices(self) -> list[slice]:
        """Consecutive places that cover all rows."""
        count = len(self.matrix)
        return [slice(first, min(first + self.most, count)) for first in range(0, count, self.most)]


class _Lane:
    """Two pairs of buffers, on the host and on the device, used in turn on a separate stream."""

    def __init__(self, matrix: Tensor, device: torch.device, most: int) -> None:
        self._matrix, self._device = matrix, device
        shape = (min(most, len(matrix)), *matrix.shape[1:])
        self._buffers = []
        for _ in range(2):
            pinned = torch.empty(shape, dtype=matrix.dtype, pin_memory=True)
            there = torch.empty(shape, dtype=matrix.dtype, device=device)
            sent, used = torch.cuda.Event(), torch.cuda.Event()
            # Its memory may have belonged to a tensor that queued work still uses.
            used.record(torch.cuda.current_stream(device))
            self._buffers.append((pinned, there, sent, used))
        self._stream = torch.cuda.Stream(device)

    def send(self, places: Iterable[slice | Tensor]) -> Iterator[Tensor]:
        current = torch.cuda.current_stream(self._device)
        for number, place in enumerate(places):
            pinned, there, sent, used = self._buffers[number % 2]
            sent.synchronize()  # the host is about to overwrite what was sent
            filled = _taken(self._matrix, place, pinned)
            chunk = there[: len(filled)]
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(used)
                chunk.copy_(filled, non_blocking=True)
                sent.record(self._stream)
            current.wait_event(sent)
            try:
                yield chunk
            finally:
                used.record(current)


def _taken(matrix: Tensor, place: slice | Tensor, out: Tensor | None = None) -> Tensor:
    """The rows at a place, written to the beginning of ``out`` if it is given."""
    if isinstance(place, slice):
        rows = matrix[place]
        return rows if out is None else out[: len(rows)].copy_(rows)
    place = place.to(matrix.device)
    if out is None:
        return matrix.index_select(0, place)
    room = out[: len(place)]
    torch.index_select(matrix, 0, place, out=room)
    return room


class ResidentProduct:
    """``Uᵀ x`` or ``U x`` of columns, if all of U is on their device.

    Copies of U that are faster to read are made at their first use, and kept. U may be stored in
    less precision than ``dtype``, that of the columns.
    """

    def __init__(self, vectors: Tensor, dtype: torch.dtype) -> None:
        self.vectors = vectors
        self._plain: Product = partial(_multiplied, vectors)
        if vectors.dtype != dtype:
            stream = RowStream(vectors, vectors.device, dtype, rows_at_once(vectors))
            self._plain = partial(streamed_product, stream)
        self._brief: Tensor | None = None
        self._lined: Tensor | None = None

    def __call__(self, x: Tensor, forward: bool) -> Tensor:
        brief = self._is_brief(x)
        if self._is_skinny(x, forward, brief):
            # Imported here because importing Triton is slow and only helps on a GPU.
            from specformer.kernels.triton.skinny import skinny_product

            return skinny_product(self._brief_copy() if brief else self._lined_copy(), x, forward)
        if brief:
            return _multiplied_briefly(self._brief_copy(), x, forward)
        return self._plain(x, forward)

    def _is_brief(self, x: Tensor) -> bool:
        # The level is asked for last, because compilers cannot trace that call.
        return (
            x.is_cuda
            and x.dtype == torch.float32
            and read_briefly(self.vectors.numel(), x.device, torch.get_float32_matmul_precision())
        )

    def _is_skinny(self, x: Tensor, forward: bool, brief: bool) -> bool:
        """Whether our own kernel (``skinny``) multiplies, in bfloat16 if ``brief``, else TF32."""
        return (
            1 <= x.shape[1] <= _FEW
            and len(x) == self.vectors.shape[0 if forward else 1]
            and (brief or _ENOUGH <= self.vectors.numel() < _MANY)
            and x.dtype == torch.float32
            and (brief or self.vectors.dtype == torch.float32)
            and x.device == self.vectors.device
            and torch.get_float32_matmul_precision() != "highest"
            and runs_on(x.device, "skinny")
            and (not x.is_cuda or torch.cuda.get_device_capability(x.device) >= (8, 0))
            and not torch.is_autocast_enabled(x.device.type)
            and not torch.compiler.is_compiling()
        )

    def _brief_copy(self) -> Tensor:
        """U in bfloat16, with rows aligned for tensor cores."""
        if self._brief is None:
            brief, pairs = torch.bfloat16, self.vectors.shape[1]
            kept_so = (self.vectors.dtype, self.vectors.stride()) == (brief, (_padded(pairs), 1))
            self._brief = self.vectors if kept_so else aligned(self.vectors, brief)
        return self._brief

    def _lined_copy(self) -> Tensor:
        """U with aligned rows; copied only if they are not aligned."""
        if self.vectors.is_contiguous() and self.vectors.shape[1] % 4 == 0:
            return self.vectors
        if self._lined is None:
            self._lined = aligned(self.vectors, torch.float32)
        return self._lined


def streamed_product(stream: RowStream, x: Tensor, forward: bool) -> Tensor:
    """``Uᵀ x`` or ``U x`` of columns; U is copied to their device a few rows at a time."""
    nodes, pairs = stream.matrix.shape
    places = stream.slices()
    chunks = stream(places)
    if forward:
        total = x.new_zeros(pairs, x.shape[-1])
        for chunk, place in zip(chunks, places, strict=True):
            total += _multiplied(chunk, x[place], forward)
        return total
    out = x.new_empty(nodes, x.shape[-1])
    for chunk, place in zip(chunks, places, strict=True):
        out[place] = _multiplied(chunk, x, forward)
    return out


def transformed(product: Product, x: Tensor, *, forward: bool) -> Tensor:
    """``Uᵀ x`` or ``U x`` with a gradient; reads U once for any number of runs and channels.

    Every leading axis of ``x`` is folded into columns.
    """
    if x.dim() == 2:
        return product(x, forward) if transforming() else _Transform.apply(product, x, forward)
    lead, (rows, channels) = x.shape[:-2], x.shape[-2:]
    runs = lead.numel()
    columns = x.reshape(runs, rows, channels).transpose(0, 1).reshape(rows, runs * channels)
    out = transformed(product, columns, forward=forward)
    apart = out.reshape(out.shape[0], runs, channels).transpose(0, 1)
    return apart.reshape(*lead, out.shape[0], channels)


class _Transform(torch.autograd.Function):
    """``Uᵀ x`` or ``U x`` for constant U; the gradient of either is the other."""

    @staticmethod
    def forward(ctx: Any, product: Product, x: Tensor, forward: bool) -> Tensor:
        ctx.product, ctx.forward = product, forward
        return product(x, forward)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        return None, _Transform.apply(ctx.product, gradients[0], not ctx.forward), None


def read_briefly(entries: int, device: torch.device, level: str) -> bool:
    """Whether the level of precision allows bfloat16, and it pays for so many entries of U."""
    return device.type == "cuda" and entries >= _MANY and level == "medium"


def aligned(
    vectors: Tensor,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str | None = None,
) -> Tensor:
    """A copy whose rows start at multiples of 16 bytes, padded with zeros."""
    n, q = vectors.shape
    rows = vectors.new_zeros(n, _padded(q, dtype), dtype=dtype, device=device)
    rows[:, :q] = vectors
    return rows[:, :q]


def _padded(pairs: int, dtype: torch.dtype = torch.bfloat16) -> int:
    """The distance between the starts of rows of this length, in numbers."""
    return pairs + -pairs % (16 // dtype.itemsize)


def _multiplied(vectors: Tensor, x: Tensor, forward: bool) -> Tensor:
    """``Uᵀ x`` or ``U x``.

    With few columns, the product with a transposed matrix is slow on a CPU. Rows times matrix takes
    a quarter of the time.
    """
    x = x.to(vectors.dtype)  # a gradient may have autocast's precision
    if not forward:
        return vectors @ x.contiguous()
    if x.is_cuda:
        return vectors.mT @ x
    return (x.mT.contiguous() @ vectors).mT.contiguous()


def _multiplied_briefly(vectors: Tensor, x: Tensor, forward: bool) -> Tensor:
    """``Uᵀ x`` or ``U x`` from bfloat16 factors, summed in float32."""
    columns = x.shape[1]
    factor = nn.functional.pad(x.to(vectors.dtype), (0, -columns % 8))
    matrix = vectors.mT if forward else vectors
    if hasattr(torch.ops.aten.mm, "dtype"):
        return torch.mm(matrix, factor, out_dtype=x.dtype)[:, :columns]
    return (matrix @ factor)[:, :columns].to(x.dtype)  # before PyTorch 2.8; rounded once more
