r"""A whole data set of small graphs on one device, and batches of it by index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from specformer.errors import GraphError
from specformer.graphs import GraphSet, find_rings, graph_set_from_pyg
from specformer.graphs.checks import graph_numbers
from specformer.graphs.colours import fragment_counts
from specformer.graphs.graph_set import starts
from specformer.kernels.segments import cut, stretches
from specformer.spectrum import ManySpectra, PackedGraphs, decompose_many
from specformer.spectrum.many.packed_graphs import as_packed, tensors_of
from specformer.spectrum.many.spectra import Matrix


@dataclass(frozen=True)
class BatchShape:
    """The shape of a :class:`~specformer.spectrum.PackedGraphs`, perhaps with padding.

    Args:
        num_graphs: graphs B.
        num_nodes: rows N; more than the graphs have nodes if pairs are padded.
        num_pairs: pairs P, at least as many as the graphs have.
        max_nodes: at least the nodes of the largest graph.
        num_bonds: room for bonds, at least as given by :meth:`GraphStore.cells`.
        num_rings: room for rings, at least as given by :meth:`GraphStore.cells`.
    """

    num_graphs: int
    num_nodes: int
    num_pairs: int
    max_nodes: int
    num_bonds: int = 0
    num_rings: int = 0

    def holds(self, sizes: np.ndarray) -> bool:
        """Whether graphs of these sizes fit; if pairs are padded, a row must be padded as well."""
        sizes = np.asarray(sizes)
        nodes, pairs = int(sizes.sum()), int((sizes**2).sum())
        return (
            nodes <= self.num_nodes
            and pairs <= self.num_pairs
            and len(sizes) == self.num_graphs
            and int(sizes.max(initial=0)) <= self.max_nodes
            and (pairs == self.num_pairs or nodes < self.num_nodes)
        )


@dataclass(frozen=True, eq=False)
class GraphStore:
    r"""G graphs with spectra and targets as flat arrays, in the smallest possible types.

    Args:
        sizes: ``[G]`` nodes of each graph.
        node_start: ``[G + 1]`` where a graph's nodes start.
        pair_start: ``[G + 1]`` where a graph's pairs of nodes start.
        nodes: ``[ΣN, columns]`` integer features.
        bond: ``[ΣN²]`` kind of bond of every pair of nodes, a row of ``bond_table``; if bonds have
            real-valued features, the bonds of a graph are 1, 2, ….
        bond_table: ``[kinds, columns]`` features of each kind plus one; zeros first, "no bond".
        eigenvalues: ``[ΣN]``.
        eigenvectors: ``[ΣN²]``.
        host_sizes: ``sizes`` again, in the host's memory, to choose shapes from.
        host_cells: ``[G, 2]`` bonds and rings of each graph, in the host's memory, to choose shapes
            from.
        y: ``[G, tasks]`` targets, NaN if missing; None without targets.
        rings: ``[ΣR, L]`` atoms of each ring; a row of −1 if there are none. None if they were not
            asked for.
        ring_counts: ``[G]`` rings of each graph.
        ring_start: ``[G + 1]`` where a graph's rings start.
        x: ``[ΣN, columns]`` real-valued features of the nodes, or None.
        bond_x: ``[1 + ΣE, columns]`` real-valued features of the bonds, zeros first, or None.
        bond_counts: ``[G]`` bonds of each graph, with ``bond_x``.
        bond_start: ``[G + 1]`` where a graph's bonds start, with ``bond_x``.
        fingerprints: ``[G, size]`` counts of each graph's fragments; None if not asked for.
    """

    sizes: Tensor
    node_start: Tensor
    pair_start: Tensor
    nodes: Tensor
    bond: Tensor
    bond_table: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor
    host_sizes: np.ndarray
    host_cells: np.ndarray
    y: Tensor | None = None
    rings: Tensor | None = None
    ring_counts: Tensor | None = None
    ring_start: Tensor | None = None
    x: Tensor | None = None
    bond_x: Tensor | None = None
    bond_counts: Tensor | None = None
    bond_start: Tensor | None = None
    fingerprints: Tensor | None = None

    @classmethod
    def build(
        cls,
        graphs: GraphSet,
        spectra: ManySpectra,
        device: torch.device | str | None = None,
        *,
        max_ring: int | None = None,
        fingerprint: int | None = None,
    ) -> GraphStore:
        """Lay out the graphs and their spectra on a device, by default the spectra's.

        Some models need more: ``max_ring`` adds rings of up to so many atoms
        (:func:`~specformer.graphs.find_rings`), ``fingerprint`` adds counts of fragments in so many
        columns (:func:`~specformer.graphs.fragment_counts`).

        Example:
            >>> graphs = GraphSet([2, 1], [1, 0], [[0], [1]], edge_feat=[[2]])
            >>> store = GraphStore.build(graphs, decompose_many(graphs))
            >>> store
            GraphStore(graphs=2, nodes=3, pairs=5, device=cpu)
            >>> store.bond.tolist(), store.bond_table.tolist()
            ([0, 1, 1, 0, 0], [[0], [3]])
        """
        target = torch.device(device) if device is not None else spectra.eigenvalues.device
        if not np.array_equal(spectra.sizes.cpu().numpy(), graphs.num_nodes):
            raise GraphError(f"{graphs.name}: the spectra belong to other graphs.")
        arrays: dict[str, Any] = {}
        if graphs.edge_x is None:
            kind, table = bond_kinds(graphs)
        else:  # each bond is a kind of its own, numbered from 1 on within its graph
            first = np.repeat(graphs.edge_start[:-1], graphs.num_edges)
            kind = np.arange(1, len(first) + 1) - first
            table = np.pad(graphs.edge_feat.astype(np.int64) + 1, ((1, 0), (0, 0)))
            arrays["bond_x"] = np.pad(graphs.edge_x, ((1, 0), (0, 0)))
            arrays |= {"bond_counts": graphs.num_edges, "bond_start": graphs.edge_start}
        pair_start = starts(graphs.num_nodes**2)
        arrays |= {
            "sizes": graphs.num_nodes,
            "node_start": graphs.node_start,
            "pair_start": pair_start,
            "nodes": graphs.node_feat,
            "bond": _bond_of_pairs(graphs, kind, pair_start),
            "bond_table": table,
        }
        if graphs.x is not None:
            arrays["x"] = graphs.x
        if graphs.y is not None:
            arrays["y"] = graphs.y
        if fingerprint:
            arrays["fingerprints"] = fragment_counts(graphs, fingerprint)
        host_cells = np.pad(graphs.num_edges[:, None], ((0, 0), (0, 1)))
        if max_ring is not None:
            found = find_rings(graphs, max_ring)
            arrays |= {"rings": found.rows, "ring_counts": found.counts}
            arrays["ring_start"] = starts(found.counts)
            host_cells[:, 1] = found.counts
        tensors = {name: torch.from_numpy(array).to(target) for name, array in arrays.items()}
        return cls(
            **tensors,
            eigenvalues=spectra.eigenvalues.to(target),
            eigenvectors=spectra.eigenvectors.to(target),
            host_sizes=graphs.num_nodes,
            host_cells=host_cells,
        )

    def __len__(self) -> int:
        return len(self.host_sizes)

    @property
    def device(self) -> torch.device:
        return self.sizes.device

    @property
    def nbytes(self) -> int:
        """The memory of all its tensors, in bytes."""
        return sum(tensor.nbytes for tensor in tensors_of(self).values())

    def to(self, device: torch.device | str) -> GraphStore:
        """The same store on another device."""
        moved: dict[str, Any] = {k: tensor.to(device) for k, tensor in tensors_of(self).items()}
        return replace(self, **moved)

    def placed(self, device: torch.device | str) -> GraphStore:
        """The store on ``device`` if it takes at most half of the memory free there.

        Otherwise it stays where it is, and :func:`~specformer.datasets.batches.batch_stream`
        copies one batch after another.
        """
        target = torch.device(device)
        if target.type == "cuda" and 2 * self.nbytes > torch.cuda.mem_get_info(target)[0]:
            return self
        return self.to(target)

    def batch(self, index: Tensor, shape: BatchShape) -> PackedGraphs:
        """The graphs of these numbers ``[B]``, on the store's device, as a batch of this shape.

        Nothing here waits for the device or depends on its values, so a CUDA graph can capture it.
        """
        arrays: dict[str, Any] = cut(
            index,
            self.sizes,
            (self.node_start, self.pair_start),
            (self.nodes, self.eigenvalues),
            (self.bond, self.eigenvectors),
            shape.num_nodes,
            shape.num_pairs,
        )
        batch = PackedGraphs(
            **arrays,
            bond_table=self.bond_table,
            max_nodes=shape.max_nodes,
            num_bonds=shape.num_bonds,
        )
        if self.fingerprints is not None:
            batch = replace(batch, fingerprints=self.fingerprints.index_select(0, index))
        if self.x is not None:
            start = self.node_start.index_select(0, index)
            node, is_node = stretches(start, batch.sizes, shape.num_nodes)
            batch = replace(batch, x=self.x.index_select(0, node) * is_node.unsqueeze(1))
        batch = self._with_own_bonds(batch, index, shape.num_bonds)
        if self.rings is None or self.ring_counts is None or self.ring_start is None:
            return batch
        counts = self.ring_counts.index_select(0, index)
        ring, is_ring = stretches(self.ring_start.index_select(0, index), counts, shape.num_rings)
        atoms = self.rings.index_select(0, ring).long()
        atoms = atoms.masked_fill(~is_ring.unsqueeze(1), -1)
        return replace(batch, rings=atoms, ring_counts=counts)

    def _with_own_bonds(self, batch: PackedGraphs, index: Tensor, room: int) -> PackedGraphs:
        """The batch with a table of its own bonds, if bonds have real-valued features."""
        if self.bond_x is None or self.bond_counts is None or self.bond_start is None:
            return batch
        counts = self.bond_counts.index_select(0, index)
        bond, is_bond = stretches(self.bond_start.index_select(0, index), counts, room)
        rows = nn.functional.pad((bond + 1) * is_bond, (1, 0))  # row 0 of padding: no bond
        # The numbers 1, 2, … of a graph's bonds continue those of the graphs before it.
        before = nn.functional.pad(counts.cumsum(0), (1, 0)).index_select(0, batch.graph)
        placed = batch.bond + before.index_select(0, batch.target) * (batch.bond > 0)
        return replace(
            batch,
            bond=placed,
            bond_table=self.bond_table.index_select(0, rows),
            bond_x=self.bond_x.index_select(0, rows),
        )

    def exact(self, index: Any) -> PackedGraphs:
        """The graphs of these numbers, or of a mask, without padding."""
        chosen = graph_numbers(index, "index", len(self))
        return self.batch(torch.from_numpy(chosen).to(self.device), self.exact_shape(chosen))

    def exact_shape(self, numbers: np.ndarray) -> BatchShape:
        """The shape of these graphs' batch without padding."""
        sizes = self.host_sizes[numbers]
        pairs = int((sizes**2).sum())
        cells = self.cells(numbers)
        return BatchShape(len(sizes), int(sizes.sum()), pairs, int(sizes.max()), *cells)

    def cells(self, numbers: np.ndarray) -> tuple[int, int]:
        """Numbers of bonds and rings of these graphs, at least 1; no rings if not asked for."""
        bonds, rings = self.host_cells[numbers].sum(axis=0).clip(min=1).tolist()
        return bonds, 0 if self.rings is None else rings

    def labels(self, index: Tensor) -> Tensor:
        """Targets ``[B, tasks]`` of these graphs, NaN if missing."""
        if self.y is None:
            raise GraphError("the graphs have no targets; give them y.")
        return self.y.index_select(0, index)

    def __repr__(self) -> str:
        counts = f"graphs={len(self)}, nodes={len(self.nodes)}, pairs={len(self.bond)}"
        return f"GraphStore({counts}, device={self.device})"


def pack(
    source: Any,
    *,
    matrix: Matrix = "laplacian",
    max_ring: int | None = None,
    fingerprint: int | None = None,
    device: torch.device | str | None = None,
) -> PackedGraphs:
    """A PyG ``Batch``, a list or data set of ``Data``, or a :class:`GraphSet`, as one batch.

    The batch has the graphs' spectra and, with ``max_ring``, rings of up to so many atoms; with
    ``fingerprint``, counts of fragments in so many columns. Spectra that
    :class:`specformer.AddSpectrum` has stored in a ``Batch`` or ``Data`` are used as they are.

    Example:
        >>> from torch_geometric.data import Data
        >>> ends = torch.tensor([[0, 1], [1, 0]])
        >>> pack([Data(x=torch.tensor([[6], [8]]), edge_index=ends)]).eigenvalues
        tensor([0., 2.])
    """
    if hasattr(source, "num_eigenpairs") and matrix == "laplacian":
        stored = as_packed(source, {"max_ring": max_ring, "fingerprint": fingerprint})
        return stored if device is None else stored.to(device)
    graphs = source if isinstance(source, GraphSet) else graph_set_from_pyg(source)
    spectra = decompose_many(graphs, matrix=matrix, device=device)
    store = GraphStore.build(graphs, spectra, max_ring=max_ring, fingerprint=fingerprint)
    return store.exact(np.arange(len(graphs)))


def bond_kinds(graphs: GraphSet) -> tuple[np.ndarray, np.ndarray]:
    """The kind of every bond ``[ΣE]``, from 1 on, and each kind's features plus one.

    Row 0 of the table, "no bond", is zeros.
    """
    features = graphs.edge_feat.astype(np.int64)
    # Each row as one number with the columns as digits: sorting numbers is much faster.
    radix = features.max(axis=0, initial=0) + 1
    if np.prod(radix.astype(np.float64)) < 2**62:
        weight = np.append(np.cumprod(radix[:0:-1])[::-1], 1)
        _, first, kind = np.unique(features @ weight, return_index=True, return_inverse=True)
    else:
        _, first, kind = np.unique(features, axis=0, return_index=True, return_inverse=True)
    table = np.concatenate([np.zeros((1, features.shape[1]), np.int64), features[first] + 1])
    return kind.ravel() + 1, table


def _bond_of_pairs(graphs: GraphSet, kind: np.ndarray, pair_start: NDArray[np.int64]) -> np.ndarray:
    smallest = np.uint8 if kind.max(initial=0) < 2**8 else np.int32
    bond = np.zeros(int(pair_start[-1]), dtype=smallest)
    size, begin = (np.repeat(of, graphs.num_edges) for of in (graphs.num_nodes, pair_start[:-1]))
    one, other = graphs.edge_index
    bond[begin + one * size + other] = kind
    bond[begin + other * size + one] = kind
    return bond
