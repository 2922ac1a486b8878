r"""The first layer over the entries of all pairs of nodes: a few numbers to many channels."""

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
