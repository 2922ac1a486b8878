r"""LanczosNet: powers of the adjacency and learned functions of its Ritz values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from specformer.baselines.nodes.mlp import FeatureMLP
from specformer.baselines.nodes.polynomial import monomial
from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import Composite, ConvStack, layer_widths
from specformer.nn.argument_checks import whole_numbers
from specformer.nn.layers.linear import Linear

_FILTER_CHANNELS = 32


class LanczosConv(Composite):
    r"""One layer of LanczosNet.

    .. math::
        Y = \sum_{k=0}^{S} \hat A^k H W_k
        + \sum_{i=1}^E V \, \mathrm{diag}(f_i(R)) \, V^\top H W'_i + b, \qquad
        f(r) = \mathrm{MLP}\bigl(r^{I_1}, \dots, r^{I_E}\bigr)

    :math:`R, V` are Ritz values and vectors of :math:`\hat A = D^{-1/2} A D^{-1/2}`, and
    :math:`I_1, \dots, I_E` are the ``long_scales``. Sparse products have ``out_channels`` columns.

    Shapes: input ``[..., n, in_channels]``; output ``[..., n, out_channels]``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        order: int,
        long_scales: Sequence[int],
        steps: int,
    ) -> None:
        super().__init__()
        self.powers = monomial(order)
        self.long_scales = tuple(long_scales)
        self.steps = steps
        self.short = Linear(in_channels, (order + 1) * out_channels, bias=False)
        self.long = Linear(len(self.long_scales) * in_channels, out_channels, bias=False)
        self.filters = FeatureMLP(len(self.long_scales), _FILTER_CHANNELS, len(self.long_scales))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        terms = self.short(x).chunk(len(self.powers.a) + 1, dim=-1)
        near = self.powers.combine(propagation.adjacency, terms)
        values, vectors = propagation.lanczos(self.steps)
        responses = self.responses(values)  # [..., k, scales]
        coefficients = vectors.mT @ x
        scaled = responses.unsqueeze(-1) * coefficients.unsqueeze(-2)
        far: Tensor = vectors @ self.long(scaled.flatten(-2))
        return near + far + self.bias.unsqueeze(-2)

    def responses(self, values: Tensor) -> Tensor:
        r"""Each :math:`f_i` at values of the adjacency's spectrum: [k] → [..., k, scales]."""
        return self.filters(torch.stack([values**scale for scale in self.long_scales], -1))


class LanczosNet(ConvStack):
    """Multi-scale graph convolutions by the Lanczos algorithm.

    From `"LanczosNet: Multi-Scale Deep Graph Convolutional
    Networks" <https://arxiv.org/abs/1901.01484>`_.

    A linear map to ``hidden_channels`` is followed by :class:`LanczosConv` layers, with a ReLU
    before each. The model is simpler than in its paper, to have about as many parameters as in
    Specformer's Table 2 (50,000 on Photo):

    - the features are mapped to ``hidden_channels`` before the scales multiply their width;
    - short scales are all powers from 0 to ``order``; power 0 replaces the paper's self-loops;
    - the learned functions take one Ritz value at a time instead of the ordered list, so that they
      do not depend on the number of Ritz values or on the basis of a repeated one;
    - Ritz pairs are fixed (the paper's AdaLanczosNet learns through them).

    The Lanczos start vector is random. Relabelling the nodes therefore permutes the output only as
    far as the Ritz pairs have converged, and exactly if ``steps`` is at least n.

    Args:
        num_layers: number of layers, including the first map.
        order: highest short scale S.
        long_scales: powers of a Ritz value that the learned functions take, one function each.
        steps: number of Lanczos steps and of Ritz pairs.
        dropout: dropout rate before each layer.
    """

    repr_arguments = ("num_layers", "order", "long_scales", "steps")

    lowest: ClassVar = {"num_layers": 2, "order": 0}

    def build(
        self,
        *,
        num_layers: int = 2,
        order: int = 3,
        long_scales: Sequence[int] = (5, 10, 20),
        steps: int = 20,
    ) -> None:
        whole_numbers("long_scales", long_scales)
        in_channels, hidden_channels, out_channels = self.channels
        self.embed = Linear(in_channels, hidden_channels)
        widths = layer_widths(hidden_channels, hidden_channels, out_channels, num_layers - 1)
        self.stack(
            LanczosConv(*width, order=order, long_scales=long_scales, steps=steps)
            for width in widths
        )

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        return super().forward(self.embed(self.dropout(x)).relu(), propagation)
