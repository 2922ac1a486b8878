r"""Many small graphs with their spectra as one batch of flat arrays.

A graph of n nodes takes n rows and n² pairs of nodes, row by row: pair (i, j) follows (i, j − 1).
Nothing is padded to a rectangle; only the tail of a batch may be padded, so that batches of
different graphs have one shape and a captured step serves them all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.kernels.tracing import kept_property


@dataclass(frozen=True)
class PackedGraphs:
    """B graphs: N rows of nodes and P pairs of nodes, both perhaps with padding at the end.

    Where pairs are padded, a row is padded too. All places follow from the sizes; they are worked
    out when asked for.

    Args:
        nodes: ``[N, columns]`` integer features of the nodes.
        bond: ``[P]`` row of ``bond_table``; 0 where there is no bond.
        bond_table: ``[kinds, columns]`` integer features of each kind of bond, shifted by one; its
            first row is zeros, "no bond".
        eigenvalues: ``[N]`` each graph's own, ascending, one per row.
        eigenvectors: ``[P]`` the entry :math:`U_{ik}` at the pair (i, k).
        sizes: ``[B]`` nodes of each graph.
        max_nodes: at least the largest of ``sizes``.
        rings: ``[R, L]`` atoms of each ring in the order of its bonds, numbers within its graph; −1
            beyond its length, and in rows of padding at the end. None where no model asks for them.
        ring_counts: ``[B]`` rings of each graph.
        num_bonds: room for bonds where they are listed, which comes with the rings; else 0.
        x: ``[N, columns]`` numbers of the nodes, zeros in padding; None where there are none.
        bond_x: ``[kinds, columns]`` numbers of each kind of bond, where there are any.
        num_eigenpairs: ``[B]`` eigenpairs of each graph where spectra are truncated; they come
            first, and the eigenvectors of the rest are zeros.
        fingerprints: ``[B, size]`` counts of each graph's parts, where a model asks for them.

    Example:
        >>> two = torch.tensor([2, 1])
        >>> rows, pairs = torch.zeros(4), torch.zeros(6)
        >>> batch = PackedGraphs(rows[:, None], pairs, rows[:1, None], rows, pairs, two, 2)
        >>> batch.graph.tolist(), batch.target.tolist(), batch.source.tolist()
        ([0, 0, 1, 2], [0, 0, 1, 1, 2, 3], [0, 1, 0, 1, 2, 3])
        >>> batch
        PackedGraphs(graphs=2, nodes=4, pairs=6, device=cpu)
    """

    nodes: Tensor
    bond: Tensor
    bond_table: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor
    sizes: Tensor
    max_nodes: int
    rings: Tensor | None = None
    ring_counts: Tensor | None = None
    num_bonds: int = 0
    x: Tensor | None = None
    bond_x: Tensor | None = None
    num_eigenpairs: Tensor | None = None
    fingerprints: Tensor | None = None

    @property
    def num_graphs(self) -> int:
        return len(self.sizes)

    @property
    def is_measured(self) -> bool:
        """Whether hardly any two bonds are alike."""
        return self.bond_x is not None

    @kept_property
    def starts(self) -> Tensor:
        """``[B + 1]`` the first row of each graph, and that of padding."""
        return nn.functional.pad(self.sizes.cumsum(0), (1, 0))

    @kept_property
    def graph(self) -> Tensor:
        """``[N]`` which graph a node is of; B for padding."""
        rows = torch.arange(len(self.nodes), device=self.sizes.device)
        return torch.searchsorted(self.starts[1:], rows, right=True)

    @kept_property
    def first(self) -> Tensor:
        """``[N]`` the first row of a node's graph, or of padding."""
        return self.starts.index_select(0, self.graph)

    @kept_property
    def position(self) -> Tensor:
        """``[N]`` a node's number within its graph; 0 for padding."""
        rows = torch.arange(len(self.nodes), device=self.sizes.device)
        return (rows - self.first) * self.node_mask

    @kept_property
    def offsets(self) -> Tensor:
        """``[N + 1]`` where the pairs of each row begin: as many as its graph has nodes."""
        counts = nn.functional.pad(self.sizes, (0, 1)).index_select(0, self.graph)
        return nn.functional.pad(counts.cumsum(0), (1, 0))

    @kept_property
    def target(self) -> Tensor:
        """``[P]`` row i of a pair (i, j); pairs of one target are neighbours, in order of j."""
        pairs = torch.arange(len(self.bond), device=self.sizes.device)
        row = torch.searchsorted(self.offsets[1:], pairs, right=True)
        return row.clamp(max=len(self.nodes) - 1)

    @kept_property
    def source(self) -> Tensor:
        """``[P]`` row j. Pairs of padding point to the last row, which is then padding too."""
        pairs = torch.arange(len(self.bond), device=self.sizes.device)
        row = pairs + (self.first - self.offsets[:-1]).index_select(0, self.target)
        # Not torch.where, which copies a number from the host and so cannot be captured.
        return row.masked_fill(~self.pair_mask, len(self.nodes) - 1)

    @kept_property
    def node_mask(self) -> Tensor:
        """``[N]`` true where a row is a node, false where it is padding."""
        return self.graph < self.num_graphs

    @kept_property
    def pair_mask(self) -> Tensor:
        """``[P]`` true where a pair is one of nodes."""
        return torch.arange(len(self.bond), device=self.sizes.device) < self.offsets[-1]

    def to(self, device: torch.device | str) -> PackedGraphs:
        """The same batch on another device; a model takes its numbers in its own precision."""
        if isinstance(device, torch.dtype):  # it would turn numbers of nodes into floats too
            raise ConfigError(f"a batch goes to a device, not to {device}.")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        return PackedGraphs(**moved)

    def __repr__(self) -> str:
        counts = f"graphs={self.num_graphs}, nodes={len(self.nodes)}, pairs={len(self.bond)}"
        return f"PackedGraphs({counts}, device={self.sizes.device})"
