r"""Batch normalisation that knows padding and stacked runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from specformer.nn import kernels
from specformer.nn.first_order import first_order
from specformer.nn.kernels.statistics import Averages
from specformer.nn.segments import widened


@dataclass(frozen=True)
class CountedRows:
    """Which rows count, in the forms that normalisation needs: worked out once for many layers.

    Args:
        share: ``[tokens, 1]`` one for a row that counts and zero for padding.
        number: ``[]`` how many count; there may be none.
    """

    share: Tensor
    number: Tensor

    @classmethod
    def of(cls, mask: Tensor, dtype: torch.dtype) -> CountedRows:
        """From a mask ``[tokens]``, true for rows that count."""
        return cls(mask.to(dtype).unsqueeze(-1), mask.sum().to(dtype))

    @cached_property
    def sample(self) -> Sample:
        """What averages take of them."""
        return Sample.of(self.number)

    @cached_property
    def ratio(self) -> Tensor:
        """``[]`` all rows over those that count."""
        return len(self.share) / self.number.clamp_min(1.0)

    @cached_property
    def surplus(self) -> Tensor:
        """``[]`` the ratio less one."""
        return self.ratio - 1.0


class Sample(NamedTuple):
    """How running averages take the statistics of n rows.

    Args:
        unbiased: ``[]`` the variance's factor, n / (n − 1).
        counts: ``[]`` one, or zero for fewer rows than two, which have no variance.
    """

    unbiased: Tensor
    counts: Tensor

    @classmethod
    def of(cls, number: Tensor) -> Sample:
        """That of so many rows."""
        return cls(number / (number - 1.0).clamp_min(1.0), (number > 1.0).to(number.dtype))


class Moments(NamedTuple):
    """Mean ``[channels]`` and covariance ``[channels, channels]`` of so many rows."""

    mean: Tensor
    covariance: Tensor
    number: Tensor


class BatchNorm(nn.Module):
    r"""Each channel to zero mean and unit variance over the tokens of a batch.

    In training the statistics are the batch's own and a running average of them is kept; in
    evaluation that average is used. Unlike ``torch.nn.BatchNorm1d`` it can leave padding rows out
    of the statistics, and its parameters and averages may carry a leading run axis
    (:mod:`specformer.nn.linear`). Fewer rows than two leave the averages as they are: a batch of
    molecules may have no ring.

    Args:
        channels: width.
        momentum: share of the newest batch in the running averages.
        eps: added to the variance.

    Shapes:
        - input ``[..., tokens, channels]``; mask ``[tokens]``, true for rows that count, or
          :class:`CountedRows`
        - parameters and averages ``[channels]`` or ``[runs, channels]``

    Example:
        >>> BatchNorm(1)(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([True, True, False]))
        tensor([[-1.0000],
                [ 1.0000],
                [ 7.0000]], grad_fn=<_MaskedBackward>)
    """

    running_mean: Tensor
    running_var: Tensor
    #: Adds a tensor up over all workers that share a batch, in place; None for a worker alone.
    #: Statistics of rows given with a mask are then those of the whole batch.
    across: Callable[[Tensor], Tensor] | None = None

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

    def forward(self, x: Tensor, mask: Tensor | CountedRows | None = None) -> Tensor:
        if not self.training:
            mean, var = self.running_mean, self.running_var
        elif mask is None:
            tokens = x if self.weight.dim() > 1 else x.flatten(0, -2)  # no axis is one of runs
            var, mean = torch.var_mean(tokens, dim=-2, correction=0)
            if (number := tokens.shape[-2]) > 1:
                self._average(mean, var * (number / (number - 1)), self.momentum)
        else:
            rows = CountedRows.of(mask, x.dtype) if isinstance(mask, Tensor) else mask
            out, mean, var, number = _Masked.apply(
                x, rows, self.weight, self.bias, self.eps, self.across
            )
            sample = rows.sample if self.across is None else Sample.of(number)
            self._average(mean, var * sample.unbiased, self.momentum * sample.counts)
            return cast(Tensor, out)
        scale = self.weight * (var + self.eps).rsqrt()
        return x * scale.unsqueeze(-2) + (self.bias - mean * scale).unsqueeze(-2)

    def activated(
        self,
        linear: nn.Linear,
        x: Tensor,
        rows: CountedRows,
        activation: Literal["relu", "gelu"] = "relu",
    ) -> Tensor:
        """``activation(self(linear(x), rows))``, on a GPU by fused kernels after the product."""
        if self.is_fused and kernels.usable(x, linear.weight):
            return kernels.normalised(
                nn.functional.linear(x, linear.weight),
                rows.share,
                rows.number,
                self.weight,
                self.bias,
                self._averages(linear.bias),
                self.eps,
                activation,
            )
        out = cast(Tensor, self(widened(linear(x)), rows))
        return out.relu() if activation == "relu" else nn.functional.gelu(out)

    def moments(self, x: Tensor, rows: CountedRows) -> Moments:
        """Mean and covariance of the rows that count, of all workers."""
        with torch.autocast(x.device.type, enabled=False):
            number = self._whole(rows.number)
            some = number.clamp_min(1.0)
            mean = self._whole((x * rows.share).sum(dim=0)) / some
            centred = (x - mean) * rows.share
            return Moments(mean, self._whole(centred.mT @ centred) / some, number)

    def folded(self, linear: nn.Linear, moments: Moments | None) -> tuple[Tensor, Tensor]:
        r"""Weight and bias of the linear map that is ``linear`` and then this normalisation.

        The statistics of :math:`y = Wx + b` follow from those of x: its mean is
        :math:`W\bar x + b`, its variance the diagonal of :math:`W \mathrm{Cov}(x) W^\top`. Scale
        and shift then go into W and b, and no pass over y is needed. Worth it for an input much
        narrower than the output. In evaluation ``moments`` are not looked at.
        """
        with torch.autocast(linear.weight.device.type, enabled=False):
            if self.is_fused and moments is not None and kernels.usable(linear.weight):
                return kernels.folded_norm(
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
        """Whether kernels may take the statistics: of a batch that is not split over workers."""
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
        """A sum over this worker's rows as the sum over all workers'."""
        return part if self.across is None else cast(Tensor, _Sum.apply(part, self.across))

    @torch.no_grad()
    def _average(self, mean: Tensor, var: Tensor, share: Tensor | float) -> None:
        """Blend a batch's mean and unbiased variance into the averages, so much of them."""
        for average, newest in ((self.running_mean, mean), (self.running_var, var)):
            weight: Any = share.to(average.dtype) if isinstance(share, Tensor) else share
            average.lerp_(newest.to(average.dtype), weight)

    def extra_repr(self) -> str:
        return f"{self.channels}, momentum={self.momentum}, eps={self.eps}"


class _Sum(torch.autograd.Function):
    """The sum over workers; each takes the gradients of all."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, across: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.across = across
        return across(part.clone())

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.across(gradients[0].clone()), None


class _Masked(torch.autograd.Function):
    r"""Normalise by the statistics of some rows: four passes over x forward, seven backward.

    With zeros for the other rows, one kernel gives mean :math:`\mu_0` and variance :math:`v_0` of
    all; those of the rows that count are :math:`r\mu_0` and :math:`r(v_0 - (r-1)\mu_0^2)`, where r
    is the ratio of all to those. The first row is taken off before, so that a large mean costs no
    digits. Autograd alone takes 30 passes and keeps five copies of x.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        rows: CountedRows,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        across: Callable[[Tensor], Tensor] | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        first = x[..., :1, :]
        shifted = (x - first).mul_(rows.share)
        var, mean = torch.var_mean(shifted, dim=-2, correction=0, keepdim=True)
        var = torch.addcmul(var, mean * rows.surplus, mean, value=-1.0).mul_(rows.ratio)
        var = var.clamp_min_(0.0)
        mean = torch.addcmul(first, mean, rows.ratio)
        number = rows.number
        if across is not None:
            number, mean, var = _Masked._joined(number, mean, var, across)
        inverse = (var + eps).rsqrt_()
        scale = weight.unsqueeze(-2) * inverse
        shift = torch.addcmul(bias.unsqueeze(-2), mean, scale, value=-1.0)
        ctx.save_for_backward(x, mean, inverse, scale, rows.share, number)
        ctx.across = across
        mean, var = mean.squeeze(-2), var.squeeze(-2)
        ctx.mark_non_differentiable(mean, var, number)
        ctx.set_materialize_grads(False)
        return torch.addcmul(shift, x, scale), mean, var, number

    @staticmethod
    def _joined(
        number: Tensor, mean: Tensor, var: Tensor, across: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Number, mean and variance of all workers' rows from those of each one's own."""
        total = across(number.clone())
        some = total.clamp_min(1.0)
        overall = across(number * mean) / some
        return total, overall, across(number * (var + (mean - overall).square())) / some

    @staticmethod
    @first_order
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None, None, None
        x, mean, inverse, scale, share, number = ctx.saved_tensors
        centred = x - mean
        total = gradient.sum(dim=-2, keepdim=True)
        of_weight = (gradient * centred).sum(dim=-2, keepdim=True).mul_(inverse)
        # What every row that counts adds through the mean, and through the variance.
        part = scale / number.clamp_min(1.0)
        sums = (total, of_weight)
        if ctx.across is not None:
            sums = ctx.across(torch.stack(sums)).unbind()
        indirect = torch.addcmul(part * sums[0], centred, part * inverse * sums[1])
        of_x = (gradient * scale).addcmul_(share, indirect, value=-1.0)
        # One input of many stacked runs collects all their gradients.
        of_x = of_x.sum_to_size(x.shape)
        return of_x, None, of_weight.squeeze(-2), total.squeeze(-2), None, None
