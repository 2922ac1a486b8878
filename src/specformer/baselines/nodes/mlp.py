r"""MLP: the features alone."""

from __future__ import annotations

from torch import Tensor

from specformer.baselines.nodes.parts.arguments import checked_arguments
from specformer.baselines.nodes.parts.feature_mlp import FeatureMLP
from specformer.baselines.nodes.parts.propagation import Propagation
from specformer.baselines.nodes.parts.single_graph import SingleGraphModel


class MLP(SingleGraphModel):
    r"""Affine maps with a ReLU between them, node by node; the graph is not looked at.

    .. math::
        Z = \mathrm{ReLU}(X W_1 + b_1) \, W_2 + b_2 \qquad \text{(two layers)}

    Example:
        >>> MLP(3, 8, 2)
        MLP(3, 8, 2, num_layers=2)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.config = checked_arguments(locals())
        self.mlp = FeatureMLP(in_channels, hidden_channels, out_channels, num_layers, dropout)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:  # noqa: ARG002
        out: Tensor = self.mlp(x)
        return out
