r"""Base classes of baselines for the nodes of one graph."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from specformer.baselines.baseline import Baseline
from specformer.baselines.nodes.propagation import Propagation


class Composite(nn.Module):
    """A module made of layers, each of which initialises its own parameters."""

    def reset_parameters(self) -> None:
        """Initialise the parameters of all layers again, in the order of construction."""
        for child in self.children():
            for layer in child if isinstance(child, nn.ModuleList) else [child]:
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()  # type: ignore[operator]


class SingleGraphModel(Composite, Baseline):
    """A model of the nodes of one graph, called as ``model(x, propagation)``.

    ``dropout`` is the dropout rate on the features and before each linear map. For other settings
    see :class:`~specformer.baselines.NodeBaseline`.

    Shapes:
        - input: ``[n, in_channels]`` or ``[runs, n, in_channels]``, and the graph
        - output: ``[n, out_channels]`` or ``[runs, n, out_channels]``
    """

    #: Arguments that ``repr`` shows after the channels.
    repr_arguments: ClassVar[tuple[str, ...]] = ("num_layers",)

    def build_shared(
        self, in_channels: int, hidden_channels: int, out_channels: int, *, dropout: float = 0.0
    ) -> None:
        self.channels = in_channels, hidden_channels, out_channels
        self.dropout = nn.Dropout(dropout)

    def __repr__(self) -> str:
        shown = [str(width) for width in self.channels]
        shown += [f"{name}={self.config[name]}" for name in self.repr_arguments]
        return f"{type(self).__name__}({', '.join(shown)})"


class ConvStack(SingleGraphModel):
    r"""A sequence of layers, with dropout before each and an activation between them.

    .. math::
        X^{(l+1)} = \sigma\bigl(\mathrm{conv}_l(\mathrm{dropout}(X^{(l)}), G)\bigr)

    The last layer has no activation. A layer is called as ``layer(x, propagation)``.
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
