"""A model beside the formula it should compute."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines import Propagation


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
