r"""How wide each of a model's layers is."""

from __future__ import annotations

from itertools import pairwise


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
