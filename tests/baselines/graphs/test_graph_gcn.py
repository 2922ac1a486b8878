from __future__ import annotations

import torch
import torch_geometric.nn as pyg
from tests.baselines.graphs.small_models import edge_index
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import assert_twins, scrambled

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.graph_gcn import GraphGCNConv


def test_layer_against_pyg() -> None:
    batch = pack(MOLECULES)
    conv = scrambled(GraphGCNConv(5))
    oracle = pyg.GCNConv(5, 5).double()
    oracle.load_state_dict(conv.state_dict())
    oracle.lin.weight, oracle.bias = conv.lin.weight, conv.bias
    x = random(len(batch.graph), 5).requires_grad_()
    bonds = Bonds.of(batch, torch.float64)
    assert_twins(conv, lambda: conv(x, None, bonds), lambda: oracle(x, edge_index(batch)), x)
