r"""Spec-GN: one filter per channel, from powers of a matrix with a smoothed spectrum."""

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

#: Eigenvalues below this are rounding errors of zero, which a small exponent would enlarge.
_ZERO = 1e-6


def smoothed_powers(eigenvalues: Tensor, order: int, exponent: float) -> Tensor:
    r"""Powers of smoothed eigenvalues; smoothing spreads those near zero, where many are.

    .. math::
        s^k, \qquad s = \mathrm{sgn}(\lambda) |\lambda|^\rho, \qquad k = 1, \dots, K

    Shapes: eigenvalues ``[...]``, output ``[..., order]``.
    """
    sizes = eigenvalues.abs()
    smoothed = eigenvalues.sign() * sizes.masked_fill(sizes < _ZERO, 0.0) ** exponent
    return smoothed.unsqueeze(-1) ** torch.arange(1, order + 1, device=eigenvalues.device)


class ChannelFilters(nn.Module):
    r"""One filter per channel: a network on the entries of the powers of S.

    .. math::
        \hat S_{ij} = \mathrm{GELU}\bigl(W_2\, \mathrm{GELU}(W_1 [I \,\Vert\, S \,\Vert\, S^2
        \,\Vert \dots \Vert\, S^K]_{ij} + b_1) + b_2\bigr), \qquad
        S = U\, \mathrm{sgn}(\Lambda) |\Lambda|^\rho\, U^\top

    where :math:`U \Lambda U^\top` is the matrix whose spectrum the batch has. The result does not
    depend on the signs or bases of eigenvectors.

    Shapes: output ``[P, channels]``; logits if a kernel takes their softmax.
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
    r"""Spectral graph network with one filter per channel.

    From `"A New Perspective on the Effects of Spectrum in Graph Neural
    Networks" <https://arxiv.org/abs/2112.07160>`_, in the form that its authors run on molecules.

    .. math::
        \hat h_i = h_i + \sum_j \hat S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b), \qquad
        h_i' = \hat h_i + \mathrm{FFN}(\hat h_i)

    The sum is over all nodes j of the graph, with "no bond" as a kind of bond. All layers share one
    :class:`ChannelFilters`. The layer is Specformer's
    (:class:`~specformer.nn.conv.graph_conv.GraphConv`), with powers of a matrix instead of learned
    functions of its eigenvalues. The authors use the matrix A + I. Here it is the matrix whose
    spectrum the batches have, :math:`\tilde D^{-1/2}(A + I)\tilde D^{-1/2}` in the recipes. On ZINC
    the authors' FFN has GELU instead of ReLU. Their other smoothing, :math:`\tilde D^\epsilon
    (A + I)\tilde D^\epsilon` with :math:`-\tfrac{1}{2} < \epsilon \le 0`, is left out.

    Args:
        order: highest power K.
        exponent: :math:`\rho`; 1 for no smoothing.
        bases_norm, normalise_bases: ``norm`` and ``normalise`` of
            :class:`~specformer.nn.conv.graph_conv.GraphBases`; the authors use both on MolPCBA.
        dropout: dropout rate on the sum of messages and on the output of the FFN.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
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
