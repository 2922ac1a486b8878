r"""MLP: the features alone."""

from __future__ import annotations

from torch import Tensor

from specformer.baselines.nodes.parts.arguments import checked_arguments, one_line
from specformer.baselines.nodes.parts.feature_mlp import FeatureMLP
from specformer.baselines.nodes.parts.propagation import Propagation
from specformer.nn.pretrained import Pretrained


class MLP(Pretrained):
    r"""Affine maps with a ReLU between them, node by node; the graph is not looked at.

    .. math::
        Z = \mathrm{ReLU}(X W_1 + b_1) \, W_2 + b_2 \qquad \text{(two layers)}

    Shapes:
        - input: ``[n, in_channels]`` or ``[runs, n, in_channels]``, and the graph
        - output: ``[n, out_channels]`` or ``[runs, n, out_channels]``

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
        self.channels = in_channels, hidden_channels, out_channels
        self.mlp = FeatureMLP(*self.channels, num_layers=num_layers, dropout=dropout)

    def reset_parameters(self) -> None:
        self.mlp.reset_parameters()

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:  # noqa: ARG002
        out: Tensor = self.mlp(x)
        return out

    def __repr__(self) -> str:
        return one_line(self, self.channels, num_layers=len(self.mlp.lins))
