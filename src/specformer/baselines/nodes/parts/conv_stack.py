r"""Message-passing layers one after the other: what GCN, GAT and ChebNet share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

from specformer.baselines.nodes.parts.propagation import Propagation
from specformer.baselines.nodes.parts.single_graph import Assembled


class ConvStack(Assembled):
    r"""Layers applied in turn, with dropout before each and an activation between them.

    .. math::
        X^{(l+1)} = \sigma\bigl(\mathrm{conv}_l(\mathrm{dropout}(X^{(l)}), G)\bigr)

    The last layer's output is left as it is. A layer is called as ``layer(x, propagation)``.

    Shapes:
        - input: ``[..., n, in_channels]``; output: ``[..., n, out_channels]``
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        activation: Callable[[Tensor], Tensor],
        dropout: float,
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(layers)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        *others, last = self.convs
        for conv in others:
            x = self.activation(conv(self.dropout(x), propagation))
        out: Tensor = last(self.dropout(x), propagation)
        return out
