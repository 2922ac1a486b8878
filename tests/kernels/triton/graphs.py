"""Graphs of odd sizes and what kernels are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specformer.kernels.segments import PairIndex
from specformer.spectrum.many.packed_graphs import PackedGraphs

#: Files of tests that run the kernels.
COMPARED = (
    "test_block_attention.py",
    "test_cutting.py",
    "test_distance_attention.py",
    "test_entries.py",
    "test_gating.py",
    "test_row_norm.py",
    "test_model.py",
    "test_pair_sum.py",
    "test_rows.py",
    "test_segment_rows.py",
    "test_skinny.py",
)
#: One atom, none, a few, more than one block of pairs.
SIZES = [3, 1, 0, 17]
KINDS = 3


def batch_of(
    sizes: Sequence[int] = SIZES,
    spare_nodes: int = 2,
    spare_pairs: int = 40,
    kinds: int = KINDS,
    seed: int = 0,
) -> PackedGraphs:
    """Random bonds and random orthogonal eigenvectors; padding would show if it were used."""
    generator = torch.Generator().manual_seed(seed)
    rows, pairs = sum(sizes) + spare_nodes, sum(n * n for n in sizes) + spare_pairs
    vectors = [
        torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q.flatten()
        for n in sizes
    ]
    bond = torch.randint(kinds, (pairs,), generator=generator)
    bond[torch.rand(pairs, generator=generator) < 0.5] = 0
    return PackedGraphs(
        nodes=torch.zeros(rows, 1, dtype=torch.long),
        bond=bond,
        bond_table=torch.arange(kinds).unsqueeze(-1),
        eigenvalues=torch.rand(rows, generator=generator),
        eigenvectors=torch.cat([*vectors, torch.full((spare_pairs,), 30.0)]).float(),
        sizes=torch.tensor(sizes),
        max_nodes=max(sizes) + 2,
    )


def index_of(batch: PackedGraphs, device: torch.device) -> PairIndex:
    return PairIndex(*(x.to(device) for x in (batch.offsets, batch.first, batch.bond)))


def random(*shape: int, seed: int) -> Tensor:
    """In float64, but of numbers that float32 holds."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).double()


def assert_same(
    kernel: Callable[..., Tensor],
    plain: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    device: torch.device,
    atol: float = 2e-5,
) -> None:
    """Outputs and all gradients, the kernel's in float32 and the plain ones in float64."""
    results = []
    for function, dtype, place in (
        (kernel, torch.float32, device),
        (plain, torch.float64, torch.device("cpu")),
    ):
        leaves = [x.detach().to(place, dtype).requires_grad_() for x in inputs]
        out = function(*leaves)
        cotangent = random(*out.shape, seed=99).to(place, dtype)
        gradients = torch.autograd.grad(out, leaves, cotangent, allow_unused=True)
        results.append([out.detach(), *gradients])
    for one, other in zip(*results, strict=True):
        assert one is not None
        expected = torch.zeros_like(one) if other is None else other
        largest = max([1.0, *expected[~expected.isnan()].abs().flatten().tolist()])
        torch.testing.assert_close(
            one.cpu().double(), expected.cpu().double(), rtol=0, atol=atol * largest, equal_nan=True
        )
