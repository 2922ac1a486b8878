"""A model beside the formula it should compute."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines import Propagation
from specformer.nn.layers.linear import LayerNorm, Linear


def assert_computes(
    model: nn.Module, x: Tensor, propagation: Propagation, expected: Tensor
) -> None:
    """Its outputs, and the gradients of all its parameters, are those of what is expected."""
    out = model(x, propagation)
    torch.testing.assert_close(out, expected)
    probe, parameters = torch.randn_like(out), list(model.parameters())
    found, wanted = (
        torch.autograd.grad((each * probe).sum(), parameters, retain_graph=True)
        for each in (out, expected)
    )
    torch.testing.assert_close(found, wanted)


def affine(x: Tensor, lin: Linear) -> Tensor:
    """``x Wᵀ + b``."""
    assert lin.bias is not None
    return x @ lin.weight.T + lin.bias


def norm(x: Tensor, layer: LayerNorm) -> Tensor:
    """Each row with mean 0 and variance 1, then scaled and shifted."""
    return nn.functional.layer_norm(x, x.shape[-1:], layer.weight, layer.bias)
