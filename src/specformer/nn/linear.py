r"""Layers whose parameters may carry a leading *run* axis.

Many independent models of one shape (ten splits, fifty images) train as one: stack their
parameters along a new first axis (:func:`specformer.training.stacking.stack`) and the same module
maps ``[runs, tokens, in]`` to ``[runs, tokens, out]``, each run with weights of its own. With plain
parameters they are the ordinary layers. ``torch.func.vmap`` is not used: under it attention
kernels fall back or fail, and shared matrices are read once per run.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    r"""Affine map :math:`x W^\top + b` over the last axis, with an optional run axis.

    Shapes:
        - weight: ``[out, in]`` or ``[runs, out, in]``; bias: ``[out]`` or ``[runs, out]``
        - input: ``[..., tokens, in]`` or, stacked, ``[runs, tokens, in]`` or ``[tokens, in]``
        - output: ``[..., tokens, out]``

    Example:
        >>> Linear(3, 5)(torch.zeros(2, 3)).shape
        torch.Size([2, 5])
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self, std: float | None = None) -> None:
        """PyTorch's own initialisation, or weights from N(0, ``std``²) and zero biases."""
        if std is not None:
            nn.init.normal_(self.weight, std=std)
            if self.bias is not None:
                nn.init.zeros_(self.bias)
            return
        bound = 1.0 / math.sqrt(self.in_channels)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        out = x @ self.weight.mT
        return out if self.bias is None else out + self.bias.unsqueeze(-2)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, bias={self.bias is not None}"


class LayerNorm(nn.Module):
    r"""Layer normalisation over the last axis, with an optional run axis on scale and shift."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.channels = channels
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        normal = nn.functional.layer_norm(x, (self.channels,), eps=self.eps)
        return normal * self.weight.unsqueeze(-2) + self.bias.unsqueeze(-2)

    def extra_repr(self) -> str:
        return f"{self.channels}, eps={self.eps}"
