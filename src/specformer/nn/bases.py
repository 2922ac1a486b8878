r"""Learnable bases: M new eigenvalue sets combined into one filter a channel (paper §4.2)."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.linear import Linear, column_sums
from specformer.spectrum import AnySpectrum, Spectrum

BasesKind = Literal["linear", "ffn"]
#: The entry-wise network holds n·n·channels numbers; beyond this many it is refused.
_ENTRY_LIMIT = 2**28


class LinearBases(nn.Module):
    r"""Per-channel weights of the identity and of every basis, initialised to ones.

    .. math::
        \hat x_c = w_{0c}\, x_c + \sum_m w_{mc}\, U\,\mathrm{diag}(\lambda_m)\,U^\top x_c

    No basis is ever built: weights and responses are combined first, so that all heads and
    channels go through two products with U, or K with L where there is no U.

    Shapes: x ``[..., n, channels]``, response ``[..., q, heads]``, output as x.
    """

    def __init__(self, num_heads: int, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.channels = channels
        self.dropout = dropout
        self.weight = nn.Parameter(torch.ones(num_heads + 1, channels))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        if self.training and self.dropout > 0:
            return self._with_dropout(x, response, spectrum)
        return torch.addcmul(spectrum.filter(x, self.gains(response)), self.identity, x)

    @property
    def identity(self) -> Tensor:
        """The weights of the identity, ``[..., 1, channels]``."""
        return self.weight[..., :1, :]

    def gains(self, response: Tensor) -> Tensor:
        """The combined response of the bases, ``[..., q, channels]``, without the identity."""
        return response @ self.weight[..., 1:, :]

    def _with_dropout(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        """Each of the M + 1 filtered copies loses entries of its own, then they are combined."""
        filtered = spectrum.filter_bank(x, response)
        identity = x.unsqueeze(-2).expand(*filtered.shape[:-2], 1, -1)
        copies = nn.functional.dropout(torch.cat([identity, filtered], dim=-2), self.dropout)
        return cast(Tensor, _Combined.apply(copies, self.weight))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, channels={self.channels}, dropout={self.dropout}"


class _Combined(torch.autograd.Function):
    """Copies ``[..., n, M + 1, channels]`` times weights ``[..., M + 1, channels]``, summed."""

    @staticmethod
    def forward(ctx: Any, copies: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(copies, weight)
        return (copies * weight.unsqueeze(-3)).sum(dim=-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gradient, (copies, weight) = gradients[0].unsqueeze(-2), ctx.saved_tensors
        sums = column_sums((gradient * copies).flatten(-2))
        # One weight of many signals collects all their gradients.
        to_weight = sums.unflatten(-1, weight.shape[-2:]).squeeze(-3).sum_to_size(weight.shape)
        return gradient * weight.unsqueeze(-3), to_weight


class FeedForwardBases(nn.Module):
    r"""The paper's entry-wise network on explicit bases, for graphs small enough to hold them.

    .. math::
        \hat S = \mathrm{FFN}([I \,\Vert\, S_1 \,\Vert \dots \Vert\, S_M]), \quad
        \hat x_c = \hat S_{:,:,c}\, x_c

    Shapes: as :class:`LinearBases`; holds ``n * n * channels`` numbers.
    """

    def __init__(self, num_heads: int, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.channels = channels
        self.network = nn.Sequential(
            Linear(num_heads + 1, channels), nn.GELU(), Linear(channels, channels)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        if not isinstance(spectrum, Spectrum):
            raise ConfigError("bases='ffn' needs eigenvectors; decompose the graph.")
        n = spectrum.num_nodes
        entries = n * n * self.channels
        if entries > _ENTRY_LIMIT:
            raise ConfigError(
                f"bases='ffn' would hold {entries * 4 / 2**30:.1f} GiB for {n:,} nodes and "
                f"{self.channels} channels; use bases='linear'."
            )
        vectors = spectrum.eigenvectors.to(x)  # streamed ones may be elsewhere
        built = torch.einsum("iq,...qm,jq->...ijm", vectors, response, vectors)
        identity = torch.eye(n, dtype=x.dtype, device=x.device).unsqueeze(-1)
        identity = identity.expand(*built.shape[:-1], 1)
        pairs = torch.cat([identity, built], dim=-1)
        bases = self.network(pairs.flatten(-3, -2)).unflatten(-2, (n, n))
        return cast(Tensor, self.dropout(torch.einsum("...ijc,...jc->...ic", bases, x)))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, channels={self.channels}"


def make_bases(
    kind: BasesKind, num_heads: int, channels: int, dropout: float
) -> LinearBases | FeedForwardBases:
    """The bases of that name."""
    if kind == "linear":
        return LinearBases(num_heads, channels, dropout)
    if kind == "ffn":
        return FeedForwardBases(num_heads, channels, dropout)
    raise ConfigError(f"bases={kind!r}: choose 'linear' or 'ffn'.")
