r"""Batch normalisation with padding and with a run axis; norms and activations by name."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from specformer.kernels import usable
from specformer.kernels.norms import (
    Across,
    Averages,
    CountedRows,
    Sample,
    masked_norm,
    sum_over_workers,
)
from specformer.kernels.segments import at_least_float32
from specformer.nn.layers.linear import LayerNorm, is_plain

Norm = Literal["batch", "layer"] | None


class Moments(NamedTuple):
    """Mean ``[channels]`` and covariance ``[channels, channels]`` of a number of rows."""

    mean: Tensor
    covariance: Tensor
    number: Tensor


class BatchNorm(nn.Module):
    r"""Batch normalisation that can ignore padding rows and may have a run axis.

    As in ``torch.nn.BatchNorm1d``, training uses the statistics of the batch and updates running
    averages, which evaluation uses; ``momentum`` is the weight of the newest batch. Unlike there,
    padding can be left out of the statistics, parameters and averages may have a leading run axis
    (:mod:`specformer.nn.layers.linear`), and a batch of fewer than two rows does not change the
    averages, because a batch of molecules may have no ring.

    Shapes: input ``[..., tokens, channels]``; mask ``[tokens]``, true for rows that count, or
    :class:`CountedRows`; parameters and averages ``[channels]`` or ``[runs, channels]``.
    """

    running_mean: Tensor
    running_var: Tensor
    #: An all-reduce over the workers that share a batch, so that statistics are those of all their
    #: rows; None for a single worker.
    across: Across | None = None

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

    def forward(
        self,
        x: Tensor,
        mask: Tensor | CountedRows | None = None,
        activation: Literal["relu", "gelu"] | None = None,
    ) -> Tensor:
        """The normalised rows, of a batch with padding in float32 at least.

        A GPU also fuses the activation that follows.
        """
        x = x if mask is None else at_least_float32(x)
        if isinstance(mask, CountedRows) and self._fuses(x):
            return self._fused(x, mask, torch.zeros_like(self.bias), activation)
        return _activated(self._normalised(x, mask), activation)

    def _normalised(self, x: Tensor, mask: Tensor | CountedRows | None) -> Tensor:
        if self.training and mask is None and self.across is not None:
            mask = x.new_ones(x.shape[-2], dtype=torch.bool)
        if not self.training:
            mean, var = self.running_mean, self.running_var
        elif mask is None:
            tokens = x if self.weight.dim() > 1 else x.flatten(0, -2)  # there is no run axis
            var, mean = torch.var_mean(tokens, dim=-2, correction=0)
            if (number := tokens.shape[-2]) > 1:
                self._average(mean, var * (number / (number - 1)), self.momentum)
        else:
            rows = CountedRows.of(mask, x.dtype) if isinstance(mask, Tensor) else mask
            out, mean, var, total = masked_norm(
                x, rows, self.weight, self.bias, self.eps, self.across
            )
            sample = rows.sample if self.across is None else Sample.of(total)
            self._average(mean, var * sample.unbiased, self.momentum * sample.counts)
            return out
        scale = self.weight * (var + self.eps).rsqrt()
        return x * scale.unsqueeze(-2) + (self.bias - mean * scale).unsqueeze(-2)

    def activated(
        self,
        linear: nn.Linear,
        x: Tensor,
        rows: CountedRows,
        activation: Literal["relu", "gelu"] = "relu",
    ) -> Tensor:
        """``activation(self(linear(x), rows))``; a GPU fuses all that follows the product."""
        if self._fuses(x) and is_plain(linear) and usable("batch_norm", linear.weight):
            product = nn.functional.linear(x, linear.weight)
            return self._fused(product, rows, linear.bias, activation)
        return _activated(self._normalised(at_least_float32(linear(x)), rows), activation)

    def _fuses(self, x: Tensor) -> bool:
        has_run_axis = self.weight.dim() > 1
        return self.is_fused and not has_run_axis and x.dim() == 2 and usable("batch_norm", x)

    def _fused(
        self,
        x: Tensor,
        rows: CountedRows,
        shift: Tensor,
        activation: Literal["relu", "gelu"] | None,
    ) -> Tensor:
        from specformer.kernels.triton.normalise import normalised

        averages = self._averages(shift)
        counted = (rows.share, rows.number)
        return normalised(x, *counted, self.weight, self.bias, averages, self.eps, activation)

    def moments(self, x: Tensor, rows: CountedRows) -> Moments:
        """Mean and covariance of the rows that count, over all workers."""
        with torch.autocast(x.device.type, enabled=False):
            number = self._whole(rows.number)
            some = number.clamp_min(1.0)
            mean = self._whole((x * rows.share).sum(dim=0)) / some
            centred = (x - mean) * rows.share
            return Moments(mean, self._whole(centred.mT @ centred) / some, number)

    def folded(self, linear: nn.Linear, moments: Moments | None) -> tuple[Tensor, Tensor]:
        r"""Weight and bias of the linear map that equals ``linear`` followed by this normalisation.

        The statistics of :math:`y = Wx + b` follow from those of x: its mean is
        :math:`W\bar x + b`, its variance is the diagonal of :math:`W \mathrm{Cov}(x) W^\top`. Scale
        and shift are folded into W and b, so that y is never normalised in a separate pass. This is
        faster if the input is much narrower than the output. Evaluation ignores ``moments``.
        """
        with torch.autocast(linear.weight.device.type, enabled=False):
            if self.is_fused and moments is not None and usable("folded_norm", linear.weight):
                from specformer.kernels.triton.folding import folded_norm

                return folded_norm(
                    linear.weight,
                    moments.mean,
                    moments.covariance,
                    self.weight,
                    self.bias,
                    moments.number,
                    self._averages(linear.bias),
                    self.eps,
                )
            mean, var = self._projected(linear, moments)
            scale = self.weight * (var + self.eps).rsqrt()
            bias = self.bias + (linear.bias - mean) * scale
            return linear.weight * scale.unsqueeze(-1), bias

    @property
    def is_fused(self) -> bool:
        """Whether kernels may be used: in training, and if workers do not share the batch."""
        return self.training and self.across is None

    def _projected(self, linear: nn.Linear, moments: Moments | None) -> tuple[Tensor, Tensor]:
        """The mean and variance of ``linear(x)``."""
        if not self.training or moments is None:
            return self.running_mean, self.running_var
        mean = linear.weight @ moments.mean + linear.bias
        product = linear.weight @ moments.covariance
        var = (product * linear.weight).sum(dim=-1).clamp_min(0.0)
        sample = Sample.of(moments.number)
        self._average(mean, var * sample.unbiased, self.momentum * sample.counts)
        return mean, var

    def _averages(self, shift: Tensor) -> Averages:
        return Averages(self.running_mean, self.running_var, self.momentum, shift)

    def _whole(self, part: Tensor) -> Tensor:
        """The sum over all workers of a sum over this worker's rows."""
        return part if self.across is None else sum_over_workers(part, self.across)

    @torch.no_grad()
    def _average(self, mean: Tensor, var: Tensor, share: Tensor | float) -> None:
        """Update the running averages with weight ``share`` for this mean and unbiased variance."""
        for average, newest in ((self.running_mean, mean), (self.running_var, var)):
            weight: Any = share.to(average.dtype) if isinstance(share, Tensor) else share
            average.lerp_(newest.to(average.dtype), weight)

    def extra_repr(self) -> str:
        return f"{self.channels}, momentum={self.momentum}, eps={self.eps}"


def _activated(x: Tensor, activation: Literal["relu", "gelu"] | None) -> Tensor:
    if activation is None:
        return x
    return x.relu() if activation == "relu" else nn.functional.gelu(x)


def norm_module(name: Norm, channels: int) -> nn.Module:
    """The normalisation of that name; None is the identity."""
    if name is None:
        return nn.Identity()
    return LayerNorm(channels) if name == "layer" else BatchNorm(channels)


Activation = Literal["relu", "gelu", "tanh"] | None


def activation_module(name: Activation) -> nn.Module:
    """The activation of that name; None is the identity."""
    if name is None:
        return nn.Identity()
    return {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}[name]()
