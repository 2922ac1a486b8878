r"""GPS from PyG's own layers, the way PyG's documentation builds it; compared for its speed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool

#: Steps of the random walks whose returns tell nodes apart (PyG's ``AddRandomWalkPE``).
WALK_STEPS = 20


class PyGGPS(nn.Module):
    """GINE beside attention in every layer, with the sizes of GPS's authors for ZINC.

    Args:
        atoms, bonds: how many values each column of atoms and bonds may take.

    Shapes: a batch of B graphs with ``random_walk_pe``; output ``[B, out_channels]``.
    """

    def __init__(
        self,
        atoms: Sequence[int],
        bonds: Sequence[int],
        out_channels: int = 1,
        channels: int = 64,
        num_layers: int = 10,
        heads: int = 4,
        walk_channels: int = 28,
    ) -> None:
        super().__init__()
        self.atoms = nn.ModuleList(nn.Embedding(count, channels - walk_channels) for count in atoms)
        self.bonds = nn.ModuleList(nn.Embedding(count, channels) for count in bonds)
        self.walk_norm = nn.BatchNorm1d(WALK_STEPS)
        self.walk = nn.Linear(WALK_STEPS, walk_channels)

        def layer() -> GPSConv:
            mlp = nn.Sequential(
                nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels)
            )
            return GPSConv(channels, GINEConv(mlp), heads, attn_kwargs={"dropout": 0.5})

        self.layers = nn.ModuleList(layer() for _ in range(num_layers))
        self.head = nn.Sequential(
            nn.Linear(channels, channels // 2),
            nn.ReLU(),
            nn.Linear(channels // 2, channels // 4),
            nn.ReLU(),
            nn.Linear(channels // 4, out_channels),
        )

    def forward(self, batch: Data) -> Tensor:
        kinds = sum(table(batch.x[:, n]) for n, table in enumerate(self.atoms))
        nodes = torch.cat([kinds, self.walk(self.walk_norm(batch.random_walk_pe))], dim=1)
        bonds = sum(table(batch.edge_attr[:, n]) for n, table in enumerate(self.bonds))
        for layer in self.layers:
            nodes = layer(nodes, batch.edge_index, batch.batch, edge_attr=bonds)
        return self.head(global_add_pool(nodes, batch.batch))
