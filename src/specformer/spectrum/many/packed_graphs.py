r"""Many small graphs with their spectra as one batch of flat arrays, also from a PyG batch.

A graph of n nodes takes n rows and n² pairs of nodes, row by row: pair (i, j) follows (i, j − 1).
Nothing is padded to a rectangle; only the tail of a batch may be padded, so that batches of
different graphs have one shape and a captured step serves them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from specformer.errors import ConfigError, GraphError, SpectrumError
from specformer.graphs import GraphSet, find_rings
from specformer.graphs.colours import fragment_counts
from specformer.graphs.convert import is_pyg
from specformer.kernels.segments import stretches
from specformer.kernels.tracing import kept_property


def tensors_of(record: Any) -> dict[str, Tensor]:
    """The fields of a data class that hold tensors, by name."""
    held = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: each for name, each in held.items() if isinstance(each, Tensor)}


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
        num_bonds: room for bonds, at least as many as there are; 0 if nobody counted them.
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
        return torch.searchsorted(self.starts, rows, right=True) - 1

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
        row = torch.searchsorted(self.offsets, pairs, right=True) - 1
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
        moved: dict[str, Any] = {
            name: each.to(device, non_blocking=True) for name, each in tensors_of(self).items()
        }
        return replace(self, **moved)

    def __repr__(self) -> str:
        counts = f"graphs={self.num_graphs}, nodes={len(self.nodes)}, pairs={len(self.bond)}"
        return f"PackedGraphs({counts}, device={self.sizes.device})"


def as_packed(batch: Any, config: Mapping[str, Any] | None = None) -> PackedGraphs:
    """Packed graphs as they are, or a PyG ``Batch`` or ``Data`` with spectra of ``AddSpectrum``.

    ``config`` is that of a model, which must have a vector for every category.

    Whole numbers in ``x`` and ``edge_attr`` are categories, others are numbers; beside those, ``z``
    and ``edge_type`` may hold categories. An edge given in one direction counts in both; given in
    both, each direction keeps its own features. If the model asks for them, rings are looked for
    and fragments are counted, unless ``fingerprints`` ``[1, size]`` holds a graph's counts.

    Example:
        >>> from torch_geometric.data import Batch, Data
        >>> from specformer.spectrum.transform import AddSpectrum
        >>> pair = Data(torch.tensor([[6], [8]]), torch.tensor([[0, 1], [1, 0]]))
        >>> as_packed(Batch.from_data_list([AddSpectrum()(pair)] * 3))
        PackedGraphs(graphs=3, nodes=6, pairs=12, device=cpu)
    """
    if isinstance(batch, PackedGraphs):
        # Not on a GPU: this would wait for the device. Numeric bonds have rows of padding.
        on_host = not (batch.nodes.is_cuda or torch.compiler.is_compiling())
        if config and on_host and not batch.is_measured:
            check_categories(config, batch.nodes, batch.bond_table)
        return batch
    if not is_pyg(batch):
        raise ConfigError(
            f"batch is a {type(batch).__name__}; call the model with a PyG Batch of graphs that "
            "have gone through AddSpectrum, or with specformer.datasets.pack(graphs)."
        )
    return _packed(batch, config or {})


def check_categories(config: Mapping[str, Any], nodes: Tensor, bond_table: Tensor) -> None:
    """Refuse categories that a model has no vector for.

    A GPU would not say where they are, and the next column's table would be taken in silence.
    """
    for whose, features in (("node", nodes), ("edge", bond_table[1:] - 1)):
        limits = config.get(f"{whose}_cardinalities", ())
        if not len(features) or features.shape[1] != len(limits):
            continue  # the embeddings refuse another number of columns
        least, most = torch.stack(features.aminmax(dim=0)).tolist()
        for column, limit in enumerate(limits):
            if least[column] < 0 or most[column] >= limit:
                wrong = least[column] if least[column] < 0 else most[column]
                raise ConfigError(
                    f"column {column} of the {whose}s has a category {wrong}, but the model has "
                    f"{whose}_cardinalities={list(limits)}."
                )


@_disable_dynamo  # as torch.compiler.disable, which imports the compiler before it is needed
def _packed(batch: Any, config: Mapping[str, Any]) -> PackedGraphs:
    pairs = _spectra(batch)
    sizes = _sizes(batch)
    kinds, found = _kinds(batch, config)
    of_nodes = _of_nodes(batch, config)
    # One read from the device for all that shapes need to know.
    shapes = torch.stack([sizes.sum(), sizes.square().sum(), sizes.max(), (sizes * pairs).sum()])
    rows, cells, largest, entries = shapes.tolist()
    if len(pairs) != len(sizes) or entries != len(batch.eigenvectors) or rows != batch.num_nodes:
        raise SpectrumError(
            "the batch's eigenvectors do not belong to its graphs: apply AddSpectrum after what "
            "changes the graphs."
        )
    check_ascending(batch.eigenvalues, pairs)
    _check_orthonormal(batch, pairs, sizes)
    packed = PackedGraphs(
        **of_nodes,
        **found,
        bond=torch.zeros(cells, dtype=torch.long, device=sizes.device),
        eigenvalues=batch.eigenvalues,
        eigenvectors=batch.eigenvectors,
        sizes=sizes,
        max_nodes=largest,
        num_bonds=max(batch.edge_index.shape[1], 1),
        fingerprints=getattr(batch, "fingerprints", None),
    )
    check_categories(config, packed.nodes, packed.bond_table)
    packed.bond.copy_(_bonds(packed, batch.edge_index, kinds))
    if max_ring := config.get("max_ring"):
        packed = _with_rings(packed, max_ring)
    if (size := config.get("fingerprint")) and packed.fingerprints is None:
        counts = torch.from_numpy(fragment_counts(_with_categories(packed), size))
        packed = replace(packed, fingerprints=counts.to(sizes.device))
    return packed if entries == cells else _filled(packed, pairs)


def _sizes(batch: Any) -> Tensor:
    """``[B]`` nodes of each graph."""
    if getattr(batch, "ptr", None) is not None:
        return torch.as_tensor(batch.ptr).diff()
    if getattr(batch, "batch", None) is not None:
        return torch.bincount(batch.batch)
    return torch.tensor([batch.num_nodes], device=batch.edge_index.device)


def _spectra(batch: Any) -> Tensor:
    """``[B]`` eigenpairs of each graph."""
    names = ("eigenvalues", "eigenvectors", "num_eigenpairs")
    if any(getattr(batch, name, None) is None for name in names):
        raise SpectrumError(
            "the graphs have no spectra: give the data set pre_transform=sf.AddSpectrum() or "
            "transform=sf.AddSpectrum(), or call the model with specformer.datasets.pack(batch)."
        )
    if batch.eigenvectors.is_complex():
        raise SpectrumError("the graphs have complex spectra: use AddSpectrum without charge.")
    return torch.as_tensor(batch.num_eigenpairs)


def check_ascending(eigenvalues: Tensor, counts: Tensor) -> None:
    """Refuse eigenvalues ``[Σq]`` that do not ascend within each graph.

    PyG takes the n eigenvalues of a graph for features of its nodes, and reorders them when it
    reorders nodes. The eigenvectors stay as they are, and all sizes still fit.
    """
    falls = eigenvalues.diff() < 0
    falls[counts.cumsum(0)[:-1] - 1] = False  # from one graph to the next
    if falls.any():
        raise SpectrumError(
            "the eigenvalues do not ascend: apply AddSpectrum after what reorders the nodes."
        )


def _check_orthonormal(batch: Any, pairs: Tensor, sizes: Tensor) -> None:
    """Do :func:`check_orthonormal` for all graphs, whose pairs and nodes ``[B]`` are counted."""
    entries, rows = batch.eigenvectors.detach(), batch.num_nodes
    # With the numbers of rows known, nothing waits for the device.
    graph = torch.arange(len(sizes), device=sizes.device)
    graph = graph.repeat_interleave(sizes, output_size=rows)
    width = pairs.index_select(0, graph)
    row = torch.arange(rows, device=sizes.device)
    row = row.repeat_interleave(width, output_size=len(entries))
    column = torch.arange(len(row), device=row.device) - (width.cumsum(0) - width)[row]
    weights = probe(len(batch.eigenvalues), entries)
    products = entries.to(weights.dtype) * weights[column]
    sums = weights.new_zeros(rows).index_add(0, row, products)
    squares = weights.new_zeros(len(sizes)).index_add(0, graph, sums.square())
    expected = nn.functional.pad(weights.square().cumsum(0), (1, 0))[pairs * (sizes > 0)]
    check_orthonormal(squares, expected, entries.dtype)


def probe(count: int, like: Tensor) -> Tensor:
    """Weights ``[count]`` of eigenvectors, no two alike, in float32 or better."""
    dtype = torch.promote_types(like.real.dtype, torch.float32)
    return torch.arange(1, count + 1, device=like.device, dtype=dtype).cos()


def check_orthonormal(squares: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    r"""Refuse eigenvectors of a graph whose :math:`|U w|^2` is not :math:`|w|^2`.

    If a graph has as many entries as edges or nodes, PyG takes them for features of these, and
    reorders them with them. All sizes still fit.

    Args:
        squares: :math:`|U w|^2` of each graph, with w from :func:`probe`.
        expected: :math:`|w|^2`.
        dtype: precision of the eigenvectors.
    """
    tolerance = 0.1 if dtype.itemsize < 4 else 1e-3
    if ((squares - expected).abs() > tolerance * expected).any():
        raise SpectrumError(
            "the eigenvectors are no longer orthonormal, because something reordered them: apply "
            "AddSpectrum after other transforms."
        )


def _of_nodes(batch: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    x, z = getattr(batch, "x", None), getattr(batch, "z", None)
    if x is not None and not x.is_floating_point():
        return {"nodes": _columns(x)}
    if z is None:
        z = _alike(batch, batch.num_nodes, "node", config)
    return {"nodes": _columns(z)} | ({} if x is None else {"x": _columns(x)})


def _alike(batch: Any, count: int, whose: str, config: Mapping[str, Any]) -> Tensor:
    """Category 0 for nodes or edges that have none; refused if a model tells categories apart."""
    limits = list(config.get(f"{whose}_cardinalities", [1]))
    if count and limits != [1]:
        raise ConfigError(
            f"the {whose}s have no categories, but the model has {whose}_cardinalities={limits}: "
            "give the graphs theirs, or the model [1]."
        )
    return torch.zeros(count, dtype=torch.long, device=batch.edge_index.device)


def _kinds(batch: Any, config: Mapping[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """The kind of every edge ``[E]``, from 1 on, and what is known of each kind; row 0 is none."""
    attributes, categories = (getattr(batch, name, None) for name in ("edge_attr", "edge_type"))
    edges = torch.as_tensor(batch.edge_index).shape[1]
    numbers = attributes if attributes is not None and attributes.is_floating_point() else None
    if attributes is not None and numbers is None:
        categories = attributes
    if categories is None:
        categories = _alike(batch, edges, "edge", config)
    categories = _columns(categories)
    for name, given in (("edge_attr", attributes), ("edge_type", categories)):
        if given is not None and len(given) != edges:
            raise GraphError(f"{name} has {len(given)} rows, but there are {edges} edges.")
    if numbers is not None:  # hardly any two edges are alike
        kind, alike = torch.arange(edges, device=categories.device), categories
    else:
        alike, kind = torch.unique(categories, dim=0, return_inverse=True)
    found = {"bond_table": nn.functional.pad(alike + 1, (0, 0, 1, 0))}
    if numbers is not None:
        found["bond_x"] = nn.functional.pad(_columns(numbers), (0, 0, 1, 0))
    return kind + 1, found


def _columns(values: Tensor) -> Tensor:
    return values.unsqueeze(1) if values.dim() == 1 else values


def _bonds(packed: PackedGraphs, edge_index: Tensor, kinds: Tensor) -> Tensor:
    """``[P]`` the kind of every pair; an edge may be given more than once, with equal features."""

    def placed(to: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        pair = packed.offsets[to] + of - packed.first[to]
        return pair, torch.zeros_like(packed.bond).scatter_reduce(0, pair, kinds, "amax")

    source, target = edge_index
    pair, given = placed(target, source)
    other = (given[pair] != kinds).nonzero().squeeze(1)
    for features in (packed.bond_table, packed.bond_x):
        if features is None or torch.equal(features[given[pair[other]]], features[kinds[other]]):
            continue
        ends = edge_index[:, other[0]].tolist()
        raise GraphError(
            f"the edge from node {ends[0]} to node {ends[1]} of the batch is given more than once, "
            "with different features; make them the same in the data"
        )
    return torch.where(given > 0, given, placed(source, target)[1])


def _with_rings(packed: PackedGraphs, max_ring: int) -> PackedGraphs:
    """The batch with its rings, looked for on the host."""
    pair = ((packed.bond > 0) & (packed.source < packed.target)).nonzero().squeeze(1)
    found = find_rings(_on_host(packed, pair), max_ring)
    return replace(
        packed,
        rings=torch.from_numpy(found.rows).long().to(pair.device),
        ring_counts=torch.from_numpy(found.counts).to(pair.device),
        num_bonds=max(len(pair), 1),
    )


def _with_categories(packed: PackedGraphs) -> GraphSet:
    """The graphs with the categories of nodes and edges; both directions of an edge must agree."""
    pair = packed.bond.nonzero().squeeze(1)
    of_edges = packed.bond_table[packed.bond[pair]] - 1
    return _on_host(
        packed, pair, node_feat=packed.nodes.cpu().numpy(), edge_feat=of_edges.cpu().numpy()
    )


def _on_host(packed: PackedGraphs, pair: Tensor, **features: Any) -> GraphSet:
    """The graphs with these pairs of nodes as edges."""
    ends = torch.stack([packed.target[pair], packed.source[pair]])
    edges = torch.bincount(packed.graph[ends[0]], minlength=packed.num_graphs)
    return GraphSet(
        num_nodes=packed.sizes.cpu().numpy(),
        num_edges=edges.cpu().numpy(),
        edge_index=packed.position[ends].int().cpu().numpy(),
        **features,
    )


def _filled(packed: PackedGraphs, pairs: Tensor) -> PackedGraphs:
    """Truncated spectra in the places of complete ones, zeros where eigenvectors are missing."""
    values, vectors = packed.eigenvalues, packed.eigenvectors
    rows = pairs.index_select(0, packed.graph)
    of_values, _ = stretches(packed.starts[:-1], pairs, len(values))
    of_vectors, _ = stretches(packed.offsets[:-1], rows, len(vectors))
    return replace(
        packed,
        eigenvalues=values.new_zeros(len(packed.nodes)).index_copy(0, of_values, values),
        eigenvectors=vectors.new_zeros(len(packed.bond)).index_copy(0, of_vectors, vectors),
        num_eigenpairs=pairs,
    )
