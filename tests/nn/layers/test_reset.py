"""A module reset after a seed is a module made after it."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import pytest
import torch
from tests.baselines.graphs.small_models import SMALL
from tests.drawn import random
from tests.nn.molecules import MAX_RING
from tests.training.small_graphs import small_set
from tests.undropped import undropped
from torch import Tensor, nn

from specformer import GraphSpecformer, Specformer, SpectralConv, SpectralFilter, decompose
from specformer.baselines import BASELINES, Propagation
from specformer.baselines.graphs import GRAPH_BASELINES
from specformer.datasets import pack
from specformer.nn.conv.node_conv import FeedForwardBases, LinearBases, NodeConv

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


STAR = nx.star_graph(4)
MOLECULES = small_set(8)


def on_nodes(name: str) -> tuple[Callable[[], nn.Module], Callable[[nn.Module], Tensor]]:
    x = random(5, 3, dtype=torch.float32)
    if name == "specformer":
        return lambda: undropped(3, 8, 2), lambda model: model(x, decompose(STAR))
    graph = Propagation(nx.to_scipy_sparse_array(STAR, dtype=float))
    return lambda: BASELINES[name](3, 8, 2), lambda model: model(x, graph)


def on_molecules(name: str) -> tuple[Callable[[], nn.Module], Callable[[nn.Module], Tensor]]:
    batch = pack(MOLECULES, max_ring=MAX_RING)
    kind, options = GRAPH_BASELINES.get(name, GraphSpecformer), SMALL.get(name, {"num_heads": 2})
    return lambda: kind([3], [2], 8, 1, 2, **options), lambda model: model(batch)


@pytest.mark.parametrize("assign", [False, True], ids=["filled", "assigned"])
@pytest.mark.parametrize(
    ("task", "name"),
    [(on_nodes, name) for name in ("specformer", *BASELINES)]
    + [(on_molecules, name) for name in ("specformer", *GRAPH_BASELINES)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_model_from_the_meta_device_is_its_state(task, name: str, assign: bool) -> None:
    make, apply = task(name)
    model = make().eval()
    with torch.device("meta"):
        empty = make().eval()
    assert all(tensor.is_meta for tensor in empty.state_dict().values())
    if not assign:
        empty.to_empty(device="cpu")
        for buffer in empty.buffers():
            buffer.fill_(77)  # whatever the memory held
    empty.load_state_dict(model.state_dict(), assign=assign)
    torch.testing.assert_close(apply(empty), apply(model), rtol=1e-6, atol=1e-6)
