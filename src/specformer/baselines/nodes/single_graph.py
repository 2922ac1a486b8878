r"""What all models of the nodes of one graph share."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from specformer.baselines.baseline import Baseline
from specformer.baselines.nodes.propagation import Propagation


class Assembled(nn.Module):
    """A module made of layers, each of which draws its own parameters."""

    def reset_parameters(self) -> None:
        """Draw the parameters of all layers anew, in the order in which the layers were made."""
        for child in self.children():
            for layer in child if isinstance(child, nn.ModuleList) else [child]:
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()  # type: ignore[operator]


class SingleGraphModel(Assembled, Baseline):
    """A model of the nodes of one graph, called as ``model(x, propagation)``.

    ``dropout`` is the rate of dropout on the features and before each map; for other settings see
    :class:`~specformer.baselines.NodeBaseline`.

    Shapes:
        - input: ``[n, in_channels]`` or ``[runs, n, in_channels]``, and the graph
        - output: ``[n, out_channels]`` or ``[runs, n, out_channels]``
    """

    #: Arguments that the model's one line shows beside its channels.
    shown: ClassVar[tuple[str, ...]] = ("num_layers",)

    def frame(
        self, in_channels: int, hidden_channels: int, out_channels: int, *, dropout: float = 0.0
    ) -> None:
        self.channels = in_channels, hidden_channels, out_channels
        self.dropout = nn.Dropout(dropout)

    def __repr__(self) -> str:
        shown = [str(width) for width in self.channels]
        shown += [f"{name}={self.config[name]}" for name in self.shown]
        return f"{type(self).__name__}({', '.join(shown)})"


class ConvStack(SingleGraphModel):
    r"""Layers applied in turn, with dropout before each and an activation between them.

    .. math::
        X^{(l+1)} = \sigma\bigl(\mathrm{conv}_l(\mathrm{dropout}(X^{(l)}), G)\bigr)

    The last layer's output is left as it is. A layer is called as ``layer(x, propagation)``.
    """

    def stack(self, layers: Iterable[nn.Module]) -> None:
        self.convs = nn.ModuleList(layers)

    def activation(self, x: Tensor) -> Tensor:
        return x.relu()

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        *others, last = self.convs
        for conv in others:
            x = self.activation(conv(self.dropout(x), propagation))
        return last(self.dropout(x), propagation)


def layer_widths(
    in_channels: int, hidden_channels: int, out_channels: int, num_layers: int
) -> list[tuple[int, int]]:
    """Each layer's (in, out) channels."""
    hidden = [hidden_channels] * (num_layers - 1)
    return list(pairwise([in_channels, *hidden, out_channels]))
