r"""MLP: a network on the features, without the graph."""

from __future__ import annotations

from torch import Tensor, nn

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import Composite, SingleGraphModel, layer_widths
from specformer.nn.layers.linear import Linear


class FeatureMLP(Composite):
    r"""An MLP with ReLU, and with dropout before each layer.

    .. math::
        \mathrm{MLP}(X) = \mathrm{ReLU}(X W_1 + b_1) \, W_2 + b_2 \qquad \text{(two layers)}

    Shapes: input ``[..., n, in_channels]``; output ``[..., n, out_channels]``.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        self.lins = nn.ModuleList(Linear(*width) for width in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        *others, last = self.lins
        for lin in others:
            x = lin(self.dropout(x)).relu()
        return last(self.dropout(x))


class MLP(SingleGraphModel):
    r"""An MLP with ReLU on the features of each node. It ignores the graph.

    .. math::
        Z = \mathrm{ReLU}(X W_1 + b_1) \, W_2 + b_2 \qquad \text{(two layers)}
    """

    def build(self, *, num_layers: int = 2) -> None:
        self.mlp = FeatureMLP(*self.channels, num_layers, self.dropout.p)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:  # noqa: ARG002
        return self.mlp(x)
