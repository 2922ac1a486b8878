r"""Spec-GN: a filter for every channel, over the powers of a matrix of smoothed spectrum."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.errors import ConfigError
from specformer.kernels.segments import Logits
from specformer.nn.conv.graph_conv import (
    BasesNorm,
    GraphBases,
    GraphConv,
    GraphPairs,
    Normalisation,
    basis_entries,
)
from specformer.spectrum.many.packed_graphs import PackedGraphs

#: Eigenvalues below this are zeros but for rounding, of which a root would make a lot.
_ZERO = 1e-6


def smoothed_powers(eigenvalues: Tensor, order: int, exponent: float) -> Tensor:
    r"""Powers of eigenvalues that are drawn apart around zero, where they crowd.

    .. math::
        s^k, \qquad s = \mathrm{sgn}(\lambda) |\lambda|^\rho, \qquad k = 1, \dots, K

    Shapes: eigenvalues ``[...]``, output ``[..., order]``.
    """
    sizes = eigenvalues.abs()
    smoothed = eigenvalues.sign() * sizes.masked_fill(sizes < _ZERO, 0.0) ** exponent
    return smoothed.unsqueeze(-1) ** torch.arange(1, order + 1, device=eigenvalues.device)


class ChannelFilters(nn.Module):
    r"""A filter for every channel: a network over each entry of the powers of S.

    .. math::
        \hat S_{ij} = \mathrm{GELU}\bigl(W_2\, \mathrm{GELU}(W_1 [I \,\Vert\, S \,\Vert\, S^2
        \,\Vert \dots \Vert\, S^K]_{ij} + b_1) + b_2\bigr), \qquad
        S = U\, \mathrm{sgn}(\Lambda) |\Lambda|^\rho\, U^\top

    with :math:`U \Lambda U^\top` the matrix whose spectra the batch holds. Nothing depends on the
    signs or the bases of its eigenvectors.

    Shapes: output ``[P, channels]``, before their softmax where kernels take that.
    """

    def __init__(
        self,
        channels: int,
        order: int,
        exponent: float,
        *,
        norm: BasesNorm = None,
        normalise: Normalisation = None,
    ) -> None:
        super().__init__()
        if not 0.0 < exponent <= 1.0:
            raise ConfigError(f"exponent={exponent} must be positive and at most 1.")
        self.order, self.exponent = order, exponent
        self.bases = GraphBases(order, channels, norm=norm, activation="gelu", normalise=normalise)

    def forward(self, layout: GraphPairs) -> Tensor | Logits:
        with torch.no_grad():
            powers = smoothed_powers(layout.spectra.values, self.order, self.exponent)
            entries = basis_entries(powers, layout)
        return self.bases(entries, layout)

    def extra_repr(self) -> str:
        return f"order={self.order}, exponent={self.exponent}"


class SpecGN(GraphBaseline):
    r"""Spectral network without correlation: every channel has a filter of its own.

    From `"A New Perspective on the Effects of Spectrum in Graph Neural
    Networks" <https://arxiv.org/abs/2112.07160>`_, in the form that its authors run on molecules.

    .. math::
        \hat h_i = h_i + \sum_j \hat S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b), \qquad
        h_i' = \hat h_i + \mathrm{FFN}(\hat h_i)

    with j over all nodes of the graph, "no bond" as a kind of bond, and one
    :class:`ChannelFilters` for all layers: Specformer's layer
    (:class:`~specformer.nn.conv.graph_conv.GraphConv`) over powers of a matrix in place of learned
    functions of its eigenvalues. The authors take A + I as it is; here it is the matrix whose
    spectra batches hold, in the recipes :math:`\tilde D^{-1/2}(A + I)\tilde D^{-1/2}`. On ZINC
    their FFN has GELU for ReLU. Their other way to smooth a spectrum, :math:`\tilde D^\epsilon
    (A + I)\tilde D^\epsilon` with :math:`-\tfrac{1}{2} < \epsilon \le 0`, is left out.

    Args:
        order: K.
        exponent: :math:`\rho`, 1 for the matrix as it is.
        bases_norm, normalise_bases: ``norm`` and ``normalise`` of
            :class:`~specformer.nn.conv.graph_conv.GraphBases`; the authors use both on MolPCBA.
        dropout: on the sum of messages and on the output of FFN.

    All others, and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    def build(
        self,
        *,
        order: int = 24,
        exponent: float = 0.125,
        bases_norm: BasesNorm = None,
        normalise_bases: Normalisation = None,
    ) -> None:
        self.bonds = self.pair_embedding()
        self.filters = ChannelFilters(
            self.channels, order, exponent, norm=bases_norm, normalise=normalise_bases
        )
        self.convs = nn.ModuleList(
            GraphConv(self.channels, dropout=self.dropout.p) for _ in range(self.depth)
        )

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        nodes, kinds = self.atoms(batch), self.bonds(batch.bond_table)
        filters = self.filters(bonds.layout)
        for conv in self.convs:
            nodes = conv(nodes, kinds, filters, bonds.layout)
        return nodes
