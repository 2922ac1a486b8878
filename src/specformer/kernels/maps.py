r"""Linear maps of very many rows, of which a batch of graphs has one per pair of nodes."""

from __future__ import annotations

from torch import Tensor, nn

from specformer.kernels import usable


def gelu_lift(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r""":math:`\mathrm{GELU}(x W^\top + b)` for x much narrower than the output.

    Shapes: x ``[rows, in]``, weight ``[out, in]``, bias ``[out]``, output ``[rows, out]``.
    """
    if usable("gelu_lift", x, weight):
        from specformer.kernels.triton.rows import lift

        return lift.gelu_lift(x, weight, bias)
    return nn.functional.gelu(nn.functional.linear(x, weight, bias))


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r""":math:`x W^\top + b`, shapes as above; on a GPU with a fast gradient of the bias."""
    if usable("linear", x, weight):
        from specformer.kernels.triton.rows import affine

        return affine.linear(x, weight, bias)
    return nn.functional.linear(x, weight, bias)
