"""A module reset after a seed is a module made after it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from specformer import GraphSpecformer, Specformer, SpectralConv, SpectralFilter
from specformer.nn.conv.bases import FeedForwardBases, LinearBases
from specformer.nn.conv.node_conv import NodeConv

MODULES = {
    "nodes": lambda: Specformer(3, 8, 4, norm="batch"),
    "filter": lambda: SpectralFilter(8, 2),
    "filter of heads": lambda: SpectralFilter(8, 2, 2, decoder="heads"),
    "layer of one's own": lambda: SpectralConv(4, 6, 2, norm="layer"),
    "convolution": lambda: NodeConv(LinearBases(2, 4, 0.0), 4, norm="layer"),
    "network of bases": lambda: NodeConv(
        FeedForwardBases(2, 4, 0.0), 4, transform=True, norm="batch"
    ),
    "small": lambda: GraphSpecformer([5, 3], [4], 8, 2, 2, 2),
    "medium": lambda: GraphSpecformer([5], [4, 2], 8, 2, 2, 2, "medium", init_std=0.02),
    "large": lambda: GraphSpecformer([5], [4], 8, 2, 2, 2, "large", bases_norm="batch"),
    "numbers": lambda: GraphSpecformer([5], [4], 8, 2, 2, 2, in_channels=3, decoder="heads"),
}


def numbers(module: nn.Module) -> dict[str, Tensor]:
    """What it holds, with what is no part of its state."""
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor.detach() for name, tensor in own.items()}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("origin", ["cpu", "meta"])
def test_the_numbers_are_those_of_a_fresh_module(name: str, origin: str) -> None:
    torch.manual_seed(3)
    expected = numbers(MODULES[name]())
    with torch.device(origin):
        module = MODULES[name]()
    if origin == "meta":
        module.to_empty(device="cpu")
    for tensor in numbers(module).values():
        tensor.fill_(5)
    torch.manual_seed(3)
    module.reset_parameters()
    torch.testing.assert_close(numbers(module), expected, rtol=0, atol=0)


def test_parameters_stay_the_same_objects() -> None:
    model = MODULES["large"]().double()
    before = list(model.parameters())
    model.reset_parameters()
    assert all(own is old for own, old in zip(model.parameters(), before, strict=True))
    assert {parameter.dtype for parameter in before} == {torch.float64}
