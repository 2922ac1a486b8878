r"""Batch normalisation that knows padding and stacked runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BatchNorm(nn.Module):
    r"""Each channel to zero mean and unit variance over the tokens of a batch.

    In training the statistics are the batch's own and a running average of them is kept; in
    evaluation that average is used. Unlike ``torch.nn.BatchNorm1d`` it can leave padding rows out
    of the statistics, and its parameters and averages may carry a leading run axis
    (:mod:`specformer.nn.linear`).

    Args:
        channels: width.
        momentum: share of the newest batch in the running averages.
        eps: added to the variance.

    Shapes:
        - input ``[..., tokens, channels]``; mask ``[tokens]``, true for rows that count
        - parameters and averages ``[channels]`` or ``[runs, channels]``

    Example:
        >>> BatchNorm(1)(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([True, True, False]))
        tensor([[-1.0000],
                [ 1.0000],
                [ 7.0000]], grad_fn=<AddBackward0>)
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.channels = channels
        self.momentum = momentum
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.running_mean)
        nn.init.ones_(self.running_var)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if not self.training:
            mean, var = self.running_mean, self.running_var
        elif mask is None:
            var, mean = torch.var_mean(x, dim=-2, correction=0)
            self._average(mean, var, x.new_tensor(float(x.shape[-2])))
        else:
            share = mask.to(x.dtype).unsqueeze(-1)
            count = share.sum().clamp_min(1.0)
            mean = (x * share).sum(dim=-2) / count
            var = ((x - mean.unsqueeze(-2)).square() * share).sum(dim=-2) / count
            self._average(mean, var, count)
        scale = self.weight * (var + self.eps).rsqrt()
        return x * scale.unsqueeze(-2) + (self.bias - mean * scale).unsqueeze(-2)

    @torch.no_grad()
    def _average(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        """Blend a batch's mean and unbiased variance into the averages."""
        unbiased = var * (count / (count - 1.0).clamp_min(1.0))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)

    def extra_repr(self) -> str:
        return f"{self.channels}, momentum={self.momentum}, eps={self.eps}"
