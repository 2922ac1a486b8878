r"""Triton's language, and functions that kernels share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # kernels can still be imported, for documentation, but not run
    triton = tl = None

__all__ = ["tl"]  # a re-export; names defined here need none

#: Channels per program: 32 floats are the 128 bytes that a GPU reads at once.
COLUMNS = 32
#: :math:`\log_2 e` for :math:`e^x = 2^{x \log_2 e}`: a GPU has an instruction for 2 to a power.
LOG2_E = tl.constexpr(1.4426950408889634) if tl else 1.4426950408889634
#: Arguments that change between calls, so that Triton does not compile for each value.
_VARYING = (
    "all_rows",
    "chunk",
    "graphs",
    "lines",
    "pairs",
    "parts",
    "rows",
    "size",
    "sources",
    "targets",
)


def jit(function: Callable[..., Any]) -> Any:
    """``triton.jit``, or the plain function without Triton."""
    if triton is None:
        return function
    named = inspect.signature(function).parameters
    return triton.jit(function, do_not_specialize=[name for name in _VARYING if name in named])


def blocks(length: int, size: int) -> int:
    """Number of blocks of ``size`` that cover ``length``."""
    return -(-length // size)


def power_of_two(number: int, least: int = 1) -> int:
    """The smallest power of two that is at least ``number`` and ``least``: a block size."""
    return max(least, 1 << max(number - 1, 0).bit_length())


def dot_precision(exact: str) -> str:
    """TF32 if PyTorch's own products may use it, else the given exact precision."""
    return exact if torch.get_float32_matmul_precision() == "highest" else "tf32"


@jit
def normal(x):
    r"""The normal distribution's Φ(x), and :math:`e^{-x^2/2}`.

    Φ to 3e-7, by a polynomial times that exponential (Abramowitz and Stegun, 7.1.26): a third of
    the instructions of an error function, which would slow passes over all pairs down.
    """
    root = tl.rsqrt(1.0 + 0.23164189 * tl.abs(x))
    t = root * root  # one instruction and a product; a division takes seven
    power = tl.exp2(-0.7213475204444817 * x * x)
    tail = 0.5307027145 * t - 0.7265760135
    tail = tail * t + 0.7107068705
    tail = tail * t - 0.142248368
    tail = tail * t + 0.127414796
    tail = tail * t * power
    return tl.where(x < 0.0, tail, 1.0 - tail), power


@jit
def gelu(x):
    """GELU, x Φ(x)."""
    share, _ = normal(x)
    return x * share


@jit
def gelu_slope(x):
    """GELU's derivative, Φ(x) + x φ(x)."""
    share, power = normal(x)
    return share + x * 0.3989422804014327 * power


@jit
def messages(node, kind, k, source, column, mask, channels):
    """GELU(node[s] + kind[k]) for sources s and kinds k ``[rows]``, and these columns."""
    at_source = tl.load(node + source[:, None] * channels + column[None, :], mask=mask, other=0.0)
    of_kind = tl.load(kind + k[:, None] * channels + column[None, :], mask=mask, other=0.0)
    return gelu(at_source + of_kind)


@jit
def clear_padding(out, offsets, target, targets, pairs, column, width, ROWS: tl.constexpr):
    """Write zeros after the last pair; each target's program writes some of them."""
    last = tl.load(offsets + targets)
    for start in range(last + target * ROWS, pairs, targets * ROWS):
        pair = start + tl.arange(0, ROWS)
        mask = (pair < pairs)[:, None] & (column < width)[None, :]
        place = out + pair[:, None] * width + column[None, :]
        tl.store(place, 0.0, mask=mask)


@jit
def tile(x, start, end, stride, width: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Rows from ``start`` to before ``end``, ``stride`` apart, zeros beyond."""
    row, lane = start + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask = (row < end)[:, None] & (lane < width)[None, :]
    return tl.load(x + row[:, None] * stride + lane[None, :], mask=mask, other=0.0)


@jit
def store_tile(
    x, values, start, end, stride, width: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Write the rows that :func:`tile` reads."""
    row, lane = start + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask = (row < end)[:, None] & (lane < width)[None, :]
    tl.store(x + row[:, None] * stride + lane[None, :], values, mask=mask)


@jit
def _write(out):
    tl.store(out, 1.0)


def probe() -> None:
    """Compile and run the smallest kernel; raises an error if that fails."""
    out = torch.zeros(1, device="cuda")
    _write[(1,)](out)
    torch.cuda.synchronize()
    if float(out) != 1.0:
        raise RuntimeError("a test kernel gave a wrong number")
