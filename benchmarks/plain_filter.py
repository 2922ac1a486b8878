r"""The set-to-set filter in its simplest form: dense attention over all eigenvalues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.layers.attention import PROJECTIONS

_RENAMED = (
    (".encoder.blocks.0.", "."),
    (".encoder.embedding.", ".embedding."),
    (".decoder.linear.", ".decoder."),
    (".attention.out.", ".attention.out_proj."),
)


class PlainFilter(nn.Module):
    r"""One Transformer block over all eigenvalues, repeated ones too, and a linear decoder.

    ``torch.nn.MultiheadAttention`` returns its weights, so it stores all :math:`q^2` scores of
    every head. Dropout is at the same places as in :class:`specformer.SpectralFilter`.

    Shapes: eigenvalues ``[batch, q]``, padding ``[batch, q]`` true where there is no eigenvalue,
    output ``[batch, q, heads]``.
    """

    def __init__(self, channels: int, num_heads: int, epsilon: float, dropout: float) -> None:
        super().__init__()
        self.channels = channels
        self.epsilon = epsilon
        self.embedding = nn.Linear(channels + 1, channels)
        self.attention_norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, num_heads, batch_first=True)
        self.feed_forward_norm = nn.LayerNorm(channels)
        self.feed_forward = nn.Sequential(
            nn.Linear(channels, channels), nn.GELU(), nn.Linear(channels, channels)
        )
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(channels, num_heads)

    def forward(self, eigenvalues: Tensor, padding: Tensor | None = None) -> Tensor:
        hidden = self.embedding(self.encode(eigenvalues))
        normed = self.attention_norm(hidden)
        mixed, _ = self.attention(
            normed, normed, normed, key_padding_mask=padding, need_weights=True
        )
        hidden = hidden + self.dropout(mixed)
        hidden = hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        return cast(Tensor, self.decoder(hidden))

    def encode(self, eigenvalues: Tensor) -> Tensor:
        """Each eigenvalue with its sines and cosines, computed again at every call."""
        steps = torch.arange(0, self.channels, 2, device=eigenvalues.device)
        exponents = steps.to(eigenvalues.dtype) / self.channels
        angles = eigenvalues.unsqueeze(-1) * (self.epsilon / 10000.0**exponents)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return torch.cat([eigenvalues.unsqueeze(-1), waves], dim=-1)


def load(plain: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy all parameters of one of our models into its plain version."""
    known = dict(plain.state_dict())
    counters = {name: known[name] for name in known if name.endswith("num_batches_tracked")}
    plain.load_state_dict({**counters, **renamed(state)})


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters with the names and shapes of PyTorch's layers.

    Example:
        >>> parts = {f"attention.{name}.bias": torch.zeros(2) for name in ("query", "key", "value")}
        >>> {name: len(tensor) for name, tensor in renamed(parts).items()}
        {'attention.in_proj_bias': 6}
    """
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        owner, part, leaf = name.rpartition(".")[0], *name.split(".")[-2:]
        owner = owner.removesuffix(part)
        if part == "query":
            joined = torch.cat([state[f"{owner}{each}.{leaf}"] for each in PROJECTIONS])
            found[f"{owner}in_proj_{leaf}"] = joined
        elif part not in PROJECTIONS:
            found[name] = tensor
    for ours, theirs in _RENAMED:
        found = {name.replace(ours, theirs): tensor for name, tensor in found.items()}
    return found


def require(config: Mapping[str, Any], **values: Any) -> None:
    """Refuse a model that the plain version does not support."""
    for name, value in values.items():
        choices = value if isinstance(value, tuple) else (value,)
        if config[name] not in choices:
            raise ConfigError(
                f"{name}={config[name]!r}: the plain version has "
                f"{' or '.join(repr(choice) for choice in choices)} only."
            )
