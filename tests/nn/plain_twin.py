"""Compare a fast path with its plain twin in specformer.reference, forward and gradients."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import pytest
import torch
from tests.drawn import random
from tests.spectrum.known_graphs import SMALL, adjacency, union
from torch import Tensor, nn

from specformer import Spectrum, decompose
from specformer.kernels import segments
from specformer.spectrum import PackedGraphs

BOTH_DTYPES = [torch.float32, torch.float64]

#: Repeated eigenvalues, several components, an isolated node, weights, and cut spectra.
SPECTRA: dict[str, Spectrum] = {
    "star": decompose(SMALL["star"], dtype=torch.float64),
    "complete": decompose(SMALL["complete"], dtype=torch.float64),
    "two triangles": decompose(SMALL["two triangles"], dtype=torch.float64),
    "isolated": decompose(SMALL["isolated"], dtype=torch.float64),
    "weighted": decompose(SMALL["weighted"], dtype=torch.float64),
    "cut": decompose(SMALL["ring"], k=(2, 2), dtype=torch.float64),
    "union cut": decompose(
        adjacency(union(nx.path_graph(3), nx.path_graph(3), nx.star_graph(3))),
        k=4,
        dtype=torch.float64,
    ),
}


def scrambled(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module in float64 with no parameter at 0 or 1, where mistakes hide."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise)
    return module


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers under every name they have, connected to the module's graph."""
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}


def assert_twins(
    module: nn.Module,
    fast: Callable[[], Tensor],
    plain: Callable[[], Tensor],
    *inputs: Tensor,
    atol: float = 1e-11,
) -> None:
    """Both give the same output, and the same gradient in every parameter and input."""
    leaves = [*module.parameters(), *inputs]
    results = []
    for compute in (fast, plain):
        output = compute()
        cotangent = random(*output.shape, seed=1)
        gradients = torch.autograd.grad((output * cotangent).sum(), leaves, allow_unused=True)
        results.append((output, gradients))
    (output, gradients), (expected, expected_gradients) = results
    torch.testing.assert_close(output, expected, rtol=0, atol=atol)
    for leaf, one, other in zip(leaves, gradients, expected_gradients, strict=True):
        assert (one is None) == (other is None), leaf.shape
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=10 * atol)


def assert_sums_of_a_gpu(
    model: nn.Module, batch: PackedGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over segments as a GPU takes them are those of a CPU."""

    def on_gpu() -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(segments, "sum_by_index", segments.sum_by_offsets)
            return model(batch)

    assert_twins(model, on_gpu, lambda: model(batch))
