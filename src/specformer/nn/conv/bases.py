r"""Learnable bases: M sets of new eigenvalues make one filter for each channel (paper §4.2)."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

from specformer.nn.layers.linear import feed_forward, weighted_sum
from specformer.nn.model_checks import check_explicit_bases
from specformer.spectrum import AnySpectrum

BasesKind = Literal["linear", "ffn"]


class LinearBases(nn.Module):
    r"""Weights of the identity and of every basis, one per channel, initialised to ones.

    .. math::
        \hat x_c = w_{0c}\, x_c + \sum_m w_{mc}\, U\,\mathrm{diag}(\lambda_m)\,U^\top x_c

    No basis is ever built: weights and new eigenvalues are combined first, so that all heads and
    channels go through two products with U, or K with L where there is no U.

    Shapes: x ``[..., n, channels]``, response ``[..., q, heads]`` (λ), output as x.
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
            filtered = spectrum.filter_bank(x, response)
            identity = x.unsqueeze(-2).expand(*filtered.shape[:-2], 1, -1)
            copies = nn.functional.dropout(torch.cat([identity, filtered], dim=-2), self.dropout)
            return weighted_sum(copies, self.weight)
        return torch.addcmul(spectrum.filter(x, self.gains(response)), self.identity, x)

    @property
    def identity(self) -> Tensor:
        """The weights of the identity, ``[..., 1, channels]``."""
        return self.weight[..., :1, :]

    def gains(self, response: Tensor) -> Tensor:
        """The combined response of the bases, ``[..., q, channels]``, without the identity."""
        return response @ self.weight[..., 1:, :]

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, channels={self.channels}, dropout={self.dropout}"


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
        self.network = feed_forward(num_heads + 1, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        U = check_explicit_bases(spectrum, self.channels).eigenvectors.to(x)
        n = len(U)
        S = torch.einsum("iq,...qm,jq->...ijm", U, response, U)
        identity = torch.eye(n, dtype=x.dtype, device=x.device).unsqueeze(-1)
        entries = torch.cat([identity.expand(*S.shape[:-1], 1), S], dim=-1)
        S_hat = self.network(entries.flatten(-3, -2)).unflatten(-2, (n, n))
        return cast(Tensor, self.dropout(torch.einsum("...ijc,...jc->...ic", S_hat, x)))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, channels={self.channels}"
