r"""What all models of the nodes of one graph share."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from torch import nn

from specformer.nn.pretrained import Pretrained


class Assembled(nn.Module):
    """A module made of layers, each of which draws its own parameters."""

    def reset_parameters(self) -> None:
        """Draw the parameters of all layers anew, in the order in which the layers were made."""
        for child in self.children():
            for layer in child if isinstance(child, nn.ModuleList) else [child]:
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()  # type: ignore[operator]


class SingleGraphModel(Assembled, Pretrained):
    """A model of the nodes of one graph, called as ``model(x, propagation)``.

    Shapes:
        - input: ``[n, in_channels]`` or ``[runs, n, in_channels]``, and the graph
        - output: ``[n, out_channels]`` or ``[runs, n, out_channels]``
    """

    #: Arguments that the model's one line shows beside its channels.
    shown: ClassVar[tuple[str, ...]] = ("num_layers",)

    def __repr__(self) -> str:
        config = self.config
        channels = [str(config[f"{name}_channels"]) for name in ("in", "hidden", "out")]
        named = [f"{name}={config[name]}" for name in self.shown]
        return f"{type(self).__name__}({', '.join([*channels, *named])})"


def layer_widths(
    in_channels: int, hidden_channels: int, out_channels: int, num_layers: int
) -> list[tuple[int, int]]:
    """Each layer's (in, out) channels.

    Example:
        >>> layer_widths(5, 64, 3, num_layers=3)
        [(5, 64), (64, 64), (64, 3)]
    """
    hidden = [hidden_channels] * (num_layers - 1)
    return list(pairwise([in_channels, *hidden, out_channels]))
