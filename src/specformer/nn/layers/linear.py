r"""Layers whose parameters may have a leading *run* axis, and resetting of parameters.

Many independent models of one shape (ten splits, fifty images) can train as one model:
:func:`specformer.training.engine.stacking.stack` stacks their parameters along a new first axis.
The same module then maps ``[runs, tokens, in]`` to ``[runs, tokens, out]``, with separate weights
for each run. Without that axis these are PyTorch's layers. ``torch.func.vmap`` is not used, because
attention kernels fall back or fail under it, and it reads shared matrices once per run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.kernels.norms import column_sums, layer_norm
from specformer.kernels.tracing import transforming


class Linear(nn.Linear):
    r"""PyTorch's affine map :math:`x W^\top + b` over the last axis, with an optional run axis.

    Shapes:
        - weight: ``[out, in]`` or ``[runs, out, in]``; bias: ``[out]`` or ``[runs, out]``
        - input: ``[..., tokens, in]`` or, stacked, ``[runs, tokens, in]`` or ``[tokens, in]``
        - output: ``[..., tokens, out]``
    """

    def reset_parameters(self, std: float | None = None) -> None:
        """PyTorch's own initialisation, or weights from N(0, ``std``²) and zero biases."""
        if std is not None:
            nn.init.normal_(self.weight, std=std)
            if self.bias is not None:
                nn.init.zeros_(self.bias)
            return
        bound = 1.0 / math.sqrt(self.in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return affine(x, self.weight, self.bias)


class LayerNorm(nn.LayerNorm):
    r"""PyTorch's layer normalisation over the last axis, with an optional run axis.

    Shapes: weight, bias ``[channels]`` or ``[runs, channels]``; input ``[..., tokens, channels]``
    or, stacked, ``[runs, tokens, channels]`` or ``[tokens, channels]``; output as input.
    """

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)


def feed_forward(in_channels: int, channels: int) -> nn.Sequential:
    """Two linear maps with a GELU between them."""
    return nn.Sequential(Linear(in_channels, channels), nn.GELU(), Linear(channels, channels))


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The map of :class:`Linear`, with gradients that take one kernel each."""
    # Under autocast PyTorch chooses the precision of every operation.
    if torch.is_autocast_enabled(x.device.type) or transforming():
        out = x @ weight.mT
        return out if bias is None else out + bias.unsqueeze(-2)
    return _Affine.apply(x, weight, bias)


class _Affine(torch.autograd.Function):
    r""":math:`x W^\top + b`; for one run a plain matrix product, however many axes x has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias_shape = None if bias is None else bias.shape
        rows, own = _aligned(x, weight)
        if own.dim() > 2:
            out = rows @ own.mT
            return out if bias is None else out.add_(bias.unsqueeze(-2))
        out = rows @ own.mT if bias is None else torch.addmm(bias.view(-1), rows, own.mT)
        lead = (1,) if x.dim() == 2 and weight.dim() == 3 else ()
        return out.view(*lead, *x.shape[:-1], len(own))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows, own = _aligned(x, weight)
        gradient = gradients[0]
        if own.dim() == 2:
            gradient = gradient.reshape(-1, gradient.shape[-1])
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = _summed(gradient @ own, x.shape)
        if ctx.needs_input_grad[1]:
            to_weight = _summed(_row_product(gradient, rows), weight.shape)
        if ctx.needs_input_grad[2]:
            to_bias = _summed(column_sums(gradient).squeeze(-2), ctx.bias_shape)
        return to_x, to_weight, to_bias


def is_plain(linear: nn.Module) -> bool:
    """Whether a map is its weight and bias alone: not, for example, an adapter such as LoRA's."""
    return type(linear).forward in (nn.Linear.forward, Linear.forward)


def has_hooks(module: nn.Module) -> bool:
    """Whether somebody else's function has to run when a module is called."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def weight_and_bias(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Those of a map that is not called; refuse a map that is more than these two."""
    if not is_plain(linear):
        kind = type(linear).__name__
        raise ConfigError(
            f"a {kind} in place of a linear layer would have no effect here; leave message, first "
            "and, with SparseFeatures, lift as they are."
        )
    return linear.weight, linear.bias


def joint_linear(inputs: Tensor, maps: Sequence[Linear]) -> Tensor:
    """Concatenated outputs of several linear maps of one input, by one product."""
    if len(maps) == 1:
        return maps[0](inputs)
    if not all(is_plain(each) and not has_hooks(each) for each in maps):
        return torch.cat([each(inputs) for each in maps], dim=-1)
    weight = torch.cat([each.weight for each in maps], dim=-2)
    bias = torch.cat([cast(Tensor, each.bias) for each in maps], dim=-1)
    return affine(inputs, weight, bias)


def _aligned(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both with two axes if there is one run, else both with a run axis.

    PyTorch's product of a matrix with a tensor of three axes may fold the wrong axes and copy.
    """
    if weight.dim() == 2 or len(weight) == 1:
        return x.reshape(-1, x.shape[-1]), weight.view(weight.shape[-2:])
    return x if x.dim() > 2 else x.expand(len(weight), -1, -1), weight


def _row_product(left: Tensor, right: Tensor) -> Tensor:
    """``leftᵀ @ right``, from ``[..., n, a]`` and ``[..., n, b]`` to ``[..., a, b]``."""
    if not left.is_cuda or left.dim() == 2:
        return left.mT @ right
    return pieced_product(left, right)


def pieced_product(left: Tensor, right: Tensor) -> Tensor:
    """``leftᵀ @ right`` as a sum over blocks of rows, which is faster on a GPU for stacked runs.

    Libraries split the long sum of a single product, but not those of a batch of small products:
    without blocks, each took 25 to 30 µs for ten runs of 2,708 rows on an H200.
    """
    rows = left.shape[-2]
    pieces = max(number for number in range(1, 17) if rows % number == 0)
    if pieces == 1:
        return left.mT @ right
    some, others = (each.unflatten(-2, (pieces, -1)) for each in (left, right))
    products: Tensor = some.mT @ others
    return products.sum(dim=-3)


def _summed(gradient: Tensor, shape: torch.Size) -> Tensor:
    """Sum a gradient over broadcast axes, so that it gets the given shape."""
    if gradient.numel() == shape.numel():
        return gradient.view(shape)
    return gradient.sum_to_size(shape)


def weighted_sum(copies: Tensor, weight: Tensor) -> Tensor:
    """Copies ``[..., n, M, channels]`` times weights ``[..., M, channels]``, summed over M."""
    if transforming():
        return (copies * weight.unsqueeze(-3)).sum(dim=-2)
    return _WeightedSum.apply(copies, weight)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, copies: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(copies, weight)
        return (copies * weight.unsqueeze(-3)).sum(dim=-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gradient, (copies, weight) = gradients[0].unsqueeze(-2), ctx.saved_tensors
        sums = column_sums((gradient * copies).flatten(-2))
        # A weight that several signals share gets the sum of their gradients.
        to_weight = sums.unflatten(-1, weight.shape[-2:]).squeeze(-3).sum_to_size(weight.shape)
        return gradient * weight.unsqueeze(-3), to_weight


def reset_parts(module: nn.Module) -> None:
    """Reset all submodules that hold parameters or buffers, each once and in construction order.

    With the same seed, the parameters are then those of a new module.
    """
    for part in list(module.modules())[1:]:
        reset = getattr(part, "reset_parameters", None)
        if reset is not None and (part._parameters or part._buffers):
            reset()


class Resettable(nn.Module):
    """A module whose parameters are all in its submodules."""

    def reset_parameters(self) -> None:
        """Initialise all parameters again, as the constructor does."""
        reset_parts(self)
