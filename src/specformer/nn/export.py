r"""Export of models as programs that take plain tensors, for ``torch.export`` and ONNX."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from specformer.errors import ConfigError
from specformer.nn.graph_model import GraphSpecformer
from specformer.nn.node_model import Specformer
from specformer.spectrum import Distinct, PackedGraphs, Spectrum
from specformer.spectrum.products import ResidentProduct


def export(model: Specformer | GraphSpecformer) -> ExportedProgram:
    r"""Export a model in evaluation mode as a program that takes one graph of any size.

    The inputs have these names:

    - for a :class:`specformer.Specformer`: ``x`` ``[n, in_channels]``, ``eigenvalues`` ``[q]`` and
      ``eigenvectors`` ``[n, q]``; the output is ``[n, out_channels]``;
    - for a :class:`specformer.GraphSpecformer`: the categories ``nodes`` ``[n, columns]`` and
      ``edges`` ``[E, columns]``; ``edge_index`` ``[2, E]`` with each edge in both directions;
      ``eigenvalues`` and ``eigenvectors``; ``x``, ``edge_x`` and ``fingerprints``
      ``[1, fingerprint]`` if the model has ``in_channels``, ``edge_dim`` and ``fingerprint``; with
      ``max_ring`` the ``rings`` ``[R, max_ring]`` from :func:`specformer.graphs.find_rings`, where
      a row of −1 is padding. The output is ``[1, out_channels]``.

    ``torch.onnx.export(export(model), f="model.onnx")`` then writes an ONNX file.

    Example:
        >>> program = export(Specformer(8, 16, 3))
        >>> spectrum = {"eigenvalues": torch.linspace(0, 2, 5), "eigenvectors": torch.eye(5)}
        >>> program.module()(x=torch.randn(5, 8), **spectrum).shape
        torch.Size([5, 3])
    """
    wrapped: _NodeProgram | _GraphProgram
    if isinstance(model, Specformer):
        wrapped = _NodeProgram(copy.deepcopy(model))
    elif isinstance(model, GraphSpecformer):
        wrapped = _GraphProgram(copy.deepcopy(model))
    else:
        raise ConfigError(
            f"a {type(model).__name__} cannot be exported; give a Specformer or a GraphSpecformer."
        )
    inputs, shapes = wrapped.example()
    with torch.no_grad():
        return torch.export.export(wrapped.eval(), (), inputs, dynamic_shapes=shapes, strict=True)


class _NodeProgram(nn.Module):
    def __init__(self, model: Specformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, eigenvalues: Tensor, eigenvectors: Tensor) -> Tensor:
        return self.model(x, _UngroupedSpectrum(eigenvalues, eigenvectors))

    def example(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        weight = self.model.lift.weight
        n, q = Dim("n"), Dim("q")
        inputs = {
            "x": weight.new_ones(7, self.model.config["in_channels"]),
            "eigenvalues": torch.linspace(0, 2, 5).to(weight),
            "eigenvectors": weight.new_ones(7, 5),
        }
        return inputs, {"x": {0: n}, "eigenvalues": {0: q}, "eigenvectors": {0: n, 1: q}}


class _UngroupedSpectrum(Spectrum):
    """A spectrum in which every eigenvalue is a token: the number of equal ones is not static."""

    def __post_init__(self) -> None:
        values = self.eigenvalues
        places = torch.arange(len(values), device=values.device)
        object.__setattr__(self, "distinct", Distinct(values, torch.ones_like(values), places))
        object.__setattr__(self, "_product", ResidentProduct(self.eigenvectors, values.dtype))


class _GraphProgram(nn.Module):
    def __init__(self, model: GraphSpecformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        nodes: Tensor,
        edges: Tensor,
        edge_index: Tensor,
        eigenvalues: Tensor,
        eigenvectors: Tensor,
        x: Tensor | None = None,
        edge_x: Tensor | None = None,
        fingerprints: Tensor | None = None,
        rings: Tensor | None = None,
    ) -> Tensor:
        n, count = nodes.shape[0], edges.shape[0]
        source, target = edge_index
        kinds = torch.arange(1, count + 1, device=nodes.device)
        bond = nodes.new_zeros(n * n).index_put((target * n + source,), kinds)
        graph = _OneGraph(
            nodes=nodes,
            bond=bond,
            bond_table=nn.functional.pad(edges + 1, (0, 0, 1, 0)),
            eigenvalues=eigenvalues,
            eigenvectors=eigenvectors.flatten(),
            sizes=nodes.new_full((1,), n),
            max_nodes=n,
            x=x,
            bond_x=None if edge_x is None else nn.functional.pad(edge_x, (0, 0, 1, 0)),
            fingerprints=fingerprints,
            rings=rings,
            ring_counts=None if rings is None else nodes.new_full((1,), rings.shape[0]),
        )
        return self.model(graph)

    def example(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        weight, config = self.model.readout.weight, self.model.config
        n, e = Dim("n"), Dim("e")
        columns = [len(config[name]) for name in ("node_cardinalities", "edge_cardinalities")]
        whole: dict[str, Any] = {"dtype": torch.long, "device": weight.device}
        inputs = {
            "nodes": torch.zeros(7, columns[0], **whole),
            "edges": torch.zeros(5, columns[1], **whole),
            "edge_index": torch.arange(10, **whole).view(2, 5) % 7,
            "eigenvalues": torch.linspace(0, 2, 7).to(weight),
            "eigenvectors": weight.new_ones(7, 7),
        }
        shapes: dict[str, Any] = {
            "nodes": {0: n},
            "edges": {0: e},
            "edge_index": {1: e},
            "eigenvalues": {0: n},
            "eigenvectors": {0: n, 1: n},
        }
        for name, rows, width in (("x", n, "in_channels"), ("edge_x", e, "edge_dim")):
            if config[width]:
                inputs[name] = weight.new_ones(7 if rows is n else 5, config[width])
                shapes[name] = {0: rows}
        if config["fingerprint"]:
            inputs["fingerprints"] = weight.new_ones(1, config["fingerprint"])
            shapes["fingerprints"] = {}
        if config["max_ring"]:
            places = torch.arange(config["max_ring"], **whole).expand(4, -1)
            inputs["rings"] = places.masked_fill(places > 4, -1)
            shapes["rings"] = {0: Dim("r")}
        return inputs, shapes


class _OneGraph(PackedGraphs):
    """A batch of one graph: all indices follow from its shape, and each edge is its own kind."""

    @property
    def is_measured(self) -> bool:
        return True

    @property
    def starts(self) -> Tensor:
        return nn.functional.pad(self.sizes, (1, 0))

    @property
    def graph(self) -> Tensor:
        return torch.zeros_like(self.position)

    @property
    def first(self) -> Tensor:
        return torch.zeros_like(self.position)

    @property
    def position(self) -> Tensor:
        return torch.arange(self.max_nodes, device=self.sizes.device)

    @property
    def offsets(self) -> Tensor:
        return self.max_nodes * torch.arange(self.max_nodes + 1, device=self.sizes.device)

    @property
    def target(self) -> Tensor:
        return self.position.unsqueeze(1).expand(-1, self.max_nodes).flatten()

    @property
    def source(self) -> Tensor:
        return self.position.expand(self.max_nodes, -1).flatten()

    @property
    def node_mask(self) -> Tensor:
        return torch.ones_like(self.position, dtype=torch.bool)

    @property
    def pair_mask(self) -> Tensor:
        return torch.ones_like(self.bond, dtype=torch.bool)
