"""Models without memory of their own, filled from a state alone: as good as where it is from."""

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

from specformer import GraphSpecformer, decompose
from specformer.baselines import BASELINES, Propagation
from specformer.baselines.graphs import GRAPH_BASELINES
from specformer.datasets import pack

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
