"""Small molecules by hand, and their batches by plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import networkx as nx
import numpy as np
import torch

from specformer.reference import Molecule
from specformer.spectrum.many.packed_graphs import PackedGraphs

NODE_CARDINALITIES = [5, 3]
EDGE_CARDINALITIES = [3, 2]
#: Atoms of the largest rings in a batch.
MAX_RING = 6
#: Columns of fingerprints, which are drawn.
FINGERPRINT = 6


def molecule(graph: nx.Graph, seed: int = 0) -> Molecule:
    """The graph with random features, and the spectrum of its Laplacian by LAPACK."""
    random = np.random.default_rng(seed)
    n = graph.number_of_nodes()
    graph = nx.convert_node_labels_to_integers(graph)
    bonds = np.zeros((n, n, len(EDGE_CARDINALITIES)), dtype=np.int64)
    for i, j in graph.edges:
        bonds[i, j] = bonds[j, i] = 1 + random.integers(EDGE_CARDINALITIES)
    nodes = random.integers(NODE_CARDINALITIES, size=(n, len(NODE_CARDINALITIES)))
    counts = torch.tensor(random.integers(4, size=FINGERPRINT))
    return Molecule(torch.tensor(nodes), torch.tensor(bonds), *_spectrum(graph), counts)


def _spectrum(graph: nx.Graph) -> tuple[torch.Tensor, torch.Tensor]:
    adjacency = nx.to_numpy_array(graph)
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(axis=0), 1))
    values, vectors = np.linalg.eigh(np.eye(len(scale)) - scale[:, None] * adjacency * scale)
    return torch.tensor(values), torch.tensor(vectors)


#: A chain, a ring (repeated eigenvalues), one atom, atoms without bonds, two pieces, a star.
MOLECULES = [
    molecule(graph, seed)
    for seed, graph in enumerate(
        [
            nx.path_graph(5),
            nx.cycle_graph(6),
            nx.empty_graph(1),
            nx.empty_graph(3),
            nx.disjoint_union(nx.path_graph(2), nx.cycle_graph(3)),
            nx.star_graph(4),
        ]
    )
]


def relabelled(one: Molecule, order: Sequence[int]) -> Molecule:
    """The same molecule with its atoms in another order."""
    index = torch.tensor(order)
    bonds = one.bonds[index][:, index]
    return one._replace(nodes=one.nodes[index], bonds=bonds, vectors=one.vectors[index])


def rings_of(one: Molecule, max_ring: int = MAX_RING) -> list[list[int]]:
    """Its rings by NetworkX, padded with −1."""
    graph = nx.from_numpy_array((one.bonds > 0).any(dim=-1).numpy())
    rings = nx.chordless_cycles(graph, length_bound=max_ring)
    return [ring + [-1] * (max_ring - len(ring)) for ring in rings]


def numbers_for_kinds(
    model: torch.nn.Module, same: torch.nn.Module, batch: PackedGraphs
) -> PackedGraphs:
    """The batch with its nodes' categories as ones and zeros among their numbers.

    ``same``, a model for those, is given the weights of ``model``, one for categories.
    """
    tables = list(NODE_CARDINALITIES)
    ones = [
        torch.nn.functional.one_hot(column.clamp(max=count - 1), count)
        for column, count in zip(batch.nodes.T, tables, strict=True)
    ]
    state = dict(model.state_dict())
    table = state.pop("atoms.weight")
    state["atoms.numbers.weight"], state["atoms.numbers.bias"] = (
        table.T,
        table.new_zeros(table.shape[1]),
    )
    state["atoms.weight"] = table.new_zeros(1, table.shape[1])
    state["atoms.mean"], state["atoms.std"] = (
        table.new_zeros(sum(tables)),
        table.new_ones(sum(tables)),
    )
    same.load_state_dict(state)
    x = torch.cat(ones, dim=1).to(table.dtype)
    return replace(batch, nodes=batch.nodes.new_zeros(len(x), 1), x=x)


def pack(
    molecules: Sequence[Molecule],
    *,
    spare_nodes: int = 0,
    spare_pairs: int = 0,
    spare_graphs: int = 0,
    spare_bonds: int = 0,
    spare_rings: int = 0,
    max_nodes: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> PackedGraphs:
    """A batch, number by number; padding holds values that would show if they were used."""
    columns = molecules[0].bonds.shape[-1]
    kinds = {(0,) * columns: 0}
    nodes, values, bonds, vectors, rings, ring_counts = [], [], [], [], [], []
    for one in molecules:
        for i in range(len(one.nodes)):
            nodes.append(one.nodes[i].tolist())
            values.append(one.eigenvalues[i].item())
            for j in range(len(one.nodes)):
                bonds.append(kinds.setdefault(tuple(one.bonds[i, j].tolist()), len(kinds)))
                vectors.append(one.vectors[i, j].item())
        found = rings_of(one)
        rings += found
        ring_counts.append(len(found))
    nodes += [[1] * molecules[0].nodes.shape[-1]] * spare_nodes
    values += [1.7] * spare_nodes
    bonds += [0] * spare_pairs
    vectors += [30.0] * spare_pairs
    sizes = [len(one.nodes) for one in molecules] + [0] * spare_graphs
    ring_counts += [0] * spare_graphs
    counts = [one.fingerprint for one in molecules]
    counts += [torch.full((FINGERPRINT,), 9)] * spare_graphs
    rings += [[-1] * MAX_RING] * (spare_rings if rings else spare_rings + 1)
    return PackedGraphs(
        nodes=torch.tensor(nodes),
        bond=torch.tensor(bonds),
        bond_table=torch.tensor(list(kinds)),
        eigenvalues=torch.tensor(values, dtype=dtype),
        eigenvectors=torch.tensor(vectors, dtype=dtype),
        sizes=torch.tensor(sizes),
        max_nodes=max_nodes or max(sizes),
        rings=torch.tensor(rings),
        ring_counts=torch.tensor(ring_counts),
        fingerprints=torch.stack(counts),
        num_bonds=max(sum(bond > 0 for bond in bonds) // 2, 1) + spare_bonds,
    )
