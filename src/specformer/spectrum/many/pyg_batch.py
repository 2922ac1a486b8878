r"""PyG's batches of graphs, with the spectra that they carry, as packed graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError, GraphError, SpectrumError
from specformer.graphs.convert import is_pyg
from specformer.kernels.batch_cut import stretches
from specformer.spectrum.many.packed_graphs import PackedGraphs


def as_packed(batch: Any) -> PackedGraphs:
    """Packed graphs as they are, or a PyG ``Batch`` or ``Data`` with spectra of ``AddSpectrum``.

    Whole numbers in ``x`` and ``edge_attr`` are categories, others are numbers; beside those, ``z``
    and ``edge_type`` may hold categories, and ``fingerprints`` ``[1, size]`` a graph's counts. An
    edge given in one direction counts in both; given in both, each direction keeps its own
    features.

    Example:
        >>> from torch_geometric.data import Batch, Data
        >>> from specformer.spectrum.transform import AddSpectrum
        >>> pair = Data(torch.tensor([[6], [8]]), torch.tensor([[0, 1], [1, 0]]))
        >>> as_packed(Batch.from_data_list([AddSpectrum()(pair)] * 3))
        PackedGraphs(graphs=3, nodes=6, pairs=12, device=cpu)
    """
    if isinstance(batch, PackedGraphs):
        return batch
    if not is_pyg(batch):
        raise ConfigError(
            f"batch is a {type(batch).__name__}; call the model with a PyG Batch of graphs that "
            "have gone through AddSpectrum, or with specformer.datasets.pack(graphs)."
        )
    return cast(PackedGraphs, _packed(batch))


@torch.compiler.disable  # type: ignore[untyped-decorator]  # shapes follow from numbers
def _packed(batch: Any) -> PackedGraphs:
    pairs = _spectra(batch)
    sizes = _sizes(batch)
    kinds, found = _kinds(batch)
    of_nodes = _of_nodes(batch, sizes)
    # One read from the device for all that shapes need to know.
    shapes = torch.stack([sizes.sum(), sizes.square().sum(), sizes.max(), (sizes * pairs).sum()])
    rows, cells, largest, entries = shapes.tolist()
    if len(pairs) != len(sizes) or entries != len(batch.eigenvectors) or rows != batch.num_nodes:
        raise SpectrumError(
            "the batch's eigenvectors do not belong to its graphs: apply AddSpectrum after what "
            "changes the graphs."
        )
    packed = PackedGraphs(
        **of_nodes,
        **found,
        bond=torch.zeros(cells, dtype=torch.long, device=sizes.device),
        eigenvalues=batch.eigenvalues,
        eigenvectors=batch.eigenvectors,
        sizes=sizes,
        max_nodes=largest,
        fingerprints=getattr(batch, "fingerprints", None),
    )
    packed.bond.copy_(_bonds(packed, batch.edge_index, kinds))
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


def _of_nodes(batch: Any, sizes: Tensor) -> dict[str, Any]:
    x, z = getattr(batch, "x", None), getattr(batch, "z", None)
    if x is not None and not x.is_floating_point():
        return {"nodes": _columns(x)}
    if z is None:
        z = torch.zeros(batch.num_nodes, dtype=torch.long, device=sizes.device)
    return {"nodes": _columns(z)} | ({} if x is None else {"x": _columns(x)})


def _kinds(batch: Any) -> tuple[Tensor, dict[str, Any]]:
    """The kind of every edge ``[E]``, from 1 on, and what is known of each kind; row 0 is none."""
    attributes, categories = (getattr(batch, name, None) for name in ("edge_attr", "edge_type"))
    edges = torch.as_tensor(batch.edge_index).shape[1]
    numbers = attributes if attributes is not None and attributes.is_floating_point() else None
    if attributes is not None and numbers is None:
        categories = attributes
    if categories is None:
        categories = torch.zeros(edges, dtype=torch.long, device=batch.edge_index.device)
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
    """``[P]`` the kind of every pair; of edges given more than once the last kind counts."""
    source, target = edge_index

    def placed(to: Tensor, of: Tensor) -> Tensor:
        pair = packed.offsets[to] + of - packed.first[to]
        return torch.zeros_like(packed.bond).scatter_reduce(0, pair, kinds, "amax")

    given = placed(target, source)
    return torch.where(given > 0, given, placed(source, target))


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
