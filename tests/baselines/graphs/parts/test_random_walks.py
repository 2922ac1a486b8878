from __future__ import annotations

import torch
from tests.baselines.graphs.small_models import edge_index
from tests.nn.molecules import MOLECULES, pack
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE

from specformer.baselines.graphs.parts.bonds import Bonds
from specformer.baselines.graphs.parts.random_walks import return_probabilities


def test_return_probabilities_against_pyg() -> None:
    batch = pack(MOLECULES, spare_nodes=2, spare_pairs=9, max_nodes=8)
    found = return_probabilities(Bonds.of(batch, torch.float64), 6)
    data = Data(edge_index=edge_index(batch), num_nodes=len(batch.graph))
    expected = AddRandomWalkPE(6, attr_name="walks")(data).walks.double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # theirs is in float32
