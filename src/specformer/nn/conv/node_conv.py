r"""Learnable bases (paper §4.2) and the convolution with them (Eq. 6), for a single graph."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from specformer.nn.argument_checks import check_explicit_bases
from specformer.nn.layers.batch_norm import Activation, Norm, activation_module, norm_module
from specformer.nn.layers.linear import Linear, Resettable, feed_forward, weighted_sum
from specformer.spectrum import AnySpectrum

BasesKind = Literal["linear", "ffn"]


class LinearBases(nn.Module):
    r"""Combine the identity and M bases with one weight per basis and channel.

    .. math::
        \hat x_c = w_{0c}\, x_c + \sum_m w_{mc}\, U\,\mathrm{diag}(\lambda_m)\,U^\top x_c

    No basis is ever built. Weights and new eigenvalues are combined first, so that all heads and
    channels need two products with U, or K products with L without eigenvectors. All weights start
    at one.

    Shapes: x ``[..., n, channels]``, response ``[..., q, heads]`` (λ), output as x.
    """

    def __init__(self, num_heads: int, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.channels = channels
        self.dropout = dropout
        self.weight = nn.Parameter(torch.empty(num_heads + 1, channels))
        self.reset_parameters()

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
    r"""The paper's feed-forward network on the entries of the bases, for small graphs.

    .. math::
        \hat S = \mathrm{FFN}([I \,\Vert\, S_1 \,\Vert \dots \Vert\, S_M]), \quad
        \hat x_c = \hat S_{:,:,c}\, x_c

    Shapes: as :class:`LinearBases`. It stores ``n * n * channels`` numbers.
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
        return self.dropout(torch.einsum("...ijc,...jc->...ic", S_hat, x))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, channels={self.channels}"


class NodeConv(Resettable):
    r"""Filter every channel, then optionally map, normalise, activate and add the input.

    .. math::
        \hat X_{:,c} = \hat S_{:,:,c} X_{:,c}, \qquad X' = \sigma(\mathrm{norm}(\hat X W)) + X

    By default it is the filter alone, as on the paper's six small data sets.

    Args:
        bases: the bases Ŝ, which layers may share.
        channels: width of X.
        transform: whether there is a linear map W.
        norm: ``"batch"``, ``"layer"`` or None.
        activation: σ: ``"relu"``, ``"gelu"``, ``"tanh"`` or None.
        residual: whether X is added.
        bias: whether the linear map has a bias.
    """

    def __init__(
        self,
        bases: LinearBases | FeedForwardBases,
        channels: int,
        *,
        transform: bool = False,
        norm: Norm = None,
        activation: Activation = None,
        residual: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.bases = bases
        self.transform = Linear(channels, channels, bias) if transform else nn.Identity()
        self.norm = norm_module(norm, channels)
        self.activation = activation_module(activation)
        self.residual = residual

    def forward(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        filtered = self.bases(x, response, spectrum)
        out: Tensor = self.activation(self.norm(self.transform(filtered)))
        return out + x if self.residual else out
