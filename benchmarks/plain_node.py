r"""Specformer on one graph as in the authors' loop: the plain version that ours is compared with.

Written from the description of that loop: attention over all eigenvalues that returns its weights,
one product :math:`U(\lambda_m \odot U^\top x)` per head in a Python loop, dense features, float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks.plain_filter import PlainFilter, load, require
from specformer.nn import Specformer


class PlainConv(nn.Module):
    r"""The weighted sum of the signal and its M filtered copies; optional norm and ReLU."""

    def __init__(self, num_heads: int, channels: int, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.bases = nn.ParameterDict({"weight": torch.ones(num_heads + 1, channels)})
        self.norm = nn.BatchNorm1d(channels) if config["norm"] == "batch" else nn.Identity()
        self.activation = nn.ReLU() if config["activation"] == "relu" else nn.Identity()
        self.dropout = nn.Dropout(config["propagation_dropout"])

    def forward(self, x: Tensor, response: Tensor, vectors: Tensor) -> Tensor:
        coefficients = vectors.T @ x
        copies = [x]
        for gains in response.unbind(dim=1):
            filtered = vectors @ (gains.unsqueeze(1) * coefficients)
            copies.append(filtered)
        stacked = self.dropout(torch.stack(copies, dim=1))
        summed = (stacked * self.bases["weight"]).sum(dim=1)
        return cast(Tensor, self.activation(self.norm(summed)))


class PlainSpecformer(nn.Module):
    r"""The plain version of a :class:`specformer.Specformer`, with the same parameters.

    Args:
        config: configuration with one Transformer block, the joint decoder and linear bases.

    Shapes: x ``[n, in]``, eigenvalues ``[q]``, vectors ``[n, q]``, output ``[n, out]``.

    Example:
        >>> model = Specformer(8, 16, 3)
        >>> plain = PlainSpecformer.of(model)
        >>> plain(torch.randn(4, 8), torch.linspace(0, 2, 4), torch.eye(4)).shape
        torch.Size([4, 3])
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        require(
            config,
            num_blocks=1,
            encoding=True,
            attention=True,
            decoder="joint",
            bases="linear",
            feature_layers=2,
            sharing=("small", "medium"),
            transform=False,
            residual=False,
            norm=("batch", None),
            activation=("relu", None),
        )
        hidden, out = config["hidden_channels"], config["out_channels"]
        heads = config["num_heads"]
        self.in_output_space = config["space"] == "output"
        self.drops_after = config["second_dropout"] == "after"
        channels = out if self.in_output_space else hidden
        self.lift = nn.Linear(config["in_channels"], hidden, config["bias"])
        self.readout = nn.Linear(hidden, out, config["bias"])
        self.filters = nn.ModuleList(
            [PlainFilter(hidden, heads, config["epsilon"], config["transformer_dropout"])]
        )
        self.convs = nn.ModuleList(
            PlainConv(heads, channels, config) for _ in range(config["num_layers"])
        )
        if config["sharing"] == "small":
            for conv in self.convs:
                conv.bases = self.convs[0].bases
        self.dropout = nn.Dropout(config["feature_dropout"])

    @classmethod
    def of(cls, model: Specformer) -> PlainSpecformer:
        """The plain version of a model, with its parameters and in its precision."""
        plain = cls(model.config).to(next(model.parameters()).dtype)
        load(plain, model.state_dict())
        return plain

    def forward(self, x: Tensor, eigenvalues: Tensor, vectors: Tensor) -> Tensor:
        response = self.filters[0](eigenvalues.unsqueeze(0))[0]
        hidden = self.lift(self.dropout(x))
        if self.in_output_space:
            hidden = hidden.relu()
            hidden = self.readout(hidden if self.drops_after else self.dropout(hidden))
            hidden = self.dropout(hidden) if self.drops_after else hidden
        for conv in self.convs:
            hidden = conv(hidden, response, vectors)
        if not self.in_output_space:
            hidden = self.readout(self.dropout(hidden))
        return cast(Tensor, hidden)
