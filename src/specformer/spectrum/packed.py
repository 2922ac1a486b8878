r"""Many small graphs with their spectra as one batch of flat arrays.

A graph of n nodes takes n rows and n² pairs of nodes, row by row: pair (i, j) follows (i, j − 1).
Nothing is padded to a rectangle; only the tail of a batch may be padded, so that batches of
different graphs have one shape and a captured step serves them all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedGraphs:
    """B graphs: N rows of nodes and P pairs of nodes, both perhaps with padding at the end.

    Args:
        nodes: ``[N, columns]`` integer features of the nodes.
        graph: ``[N]`` which graph a node is of; B for padding.
        position: ``[N]`` a node's number within its graph.
        target: ``[P]`` row i of a pair (i, j); pairs of one target are neighbours, in order of j.
        source: ``[P]`` row j. Pairs of padding point to the last row, which is then padding too.
        bond: ``[P]`` row of ``bond_table``; 0 where there is no bond.
        bond_table: ``[kinds, columns]`` integer features of each kind of bond, shifted by one; its
            first row is zeros, "no bond".
        eigenvalues: ``[N]`` each graph's own, ascending, one a row.
        eigenvectors: ``[P]`` the entry :math:`U_{ik}` at the pair (i, k).
        sizes: ``[B]`` nodes of each graph.
        max_nodes: at least the largest of ``sizes``.
    """

    nodes: Tensor
    graph: Tensor
    position: Tensor
    target: Tensor
    source: Tensor
    bond: Tensor
    bond_table: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor
    sizes: Tensor
    max_nodes: int

    @property
    def num_graphs(self) -> int:
        return len(self.sizes)

    @property
    def node_mask(self) -> Tensor:
        """``[N]`` true where a row is a node, false where it is padding."""
        return self.graph < self.num_graphs

    @property
    def pair_mask(self) -> Tensor:
        """``[P]`` true where a pair is one of nodes."""
        return self.node_mask.index_select(0, self.target)

    def to(self, device: torch.device | str) -> PackedGraphs:
        """All tensors on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        return PackedGraphs(**moved)
