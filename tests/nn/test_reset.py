"""A module reset after a seed is a module made after it."""

from __future__ import annotations

import pytest
import torch

from specformer import GraphSpecformer, SpectralConv, SpectralFilter
from specformer.nn.bases import make_bases

MODULES = {
    "filter": lambda: SpectralFilter(8, 2),
    "filter of heads": lambda: SpectralFilter(8, 2, 2, decoder="heads"),
    "convolution": lambda: SpectralConv(make_bases("linear", 2, 4, 0.0), 4, norm="layer"),
    "network of bases": lambda: SpectralConv(
        make_bases("ffn", 2, 4, 0.0), 4, transform=True, norm="batch"
    ),
    "small": lambda: GraphSpecformer([5, 3], [4], 8, 2, 2, 2),
    "medium": lambda: GraphSpecformer([5], [4, 2], 8, 2, 2, 2, "medium", init_std=0.02),
    "large": lambda: GraphSpecformer([5], [4], 8, 2, 2, 2, "large", bases_norm="batch"),
    "numbers": lambda: GraphSpecformer([5], [4], 8, 2, 2, 2, in_channels=3, decoder="heads"),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_numbers_are_those_of_a_fresh_module(name: str) -> None:
    torch.manual_seed(3)
    expected = MODULES[name]().state_dict()
    module = MODULES[name]()
    given = {"atoms.mean", "atoms.std"}  # the data's, not drawn
    for key, tensor in module.state_dict().items():
        if key not in given:
            tensor.fill_(5.0)
    torch.manual_seed(3)
    module.reset_parameters()
    torch.testing.assert_close(module.state_dict(), expected, rtol=0, atol=0)


def test_what_was_taken_from_the_data_stays() -> None:
    model = MODULES["numbers"]()
    model.atoms.standardise(torch.tensor([[0.0, 1.0, 2.0], [4.0, 1.0, 0.0]]))
    model.reset_parameters()
    assert model.atoms.mean.tolist() == [2.0, 1.0, 1.0]
    assert model.atoms.std.tolist() == [2.0, 1.0, 1.0]


def test_parameters_stay_the_same_objects() -> None:
    model = MODULES["large"]().double()
    before = list(model.parameters())
    model.reset_parameters()
    assert all(own is old for own, old in zip(model.parameters(), before, strict=True))
    assert {parameter.dtype for parameter in before} == {torch.float64}
