r"""The equations of the model for one graph (paper §3 and §4), one after another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

State = Mapping[str, Tensor]


def part(state: State, name: str) -> dict[str, Tensor]:
    """The parameters of the submodule ``name``."""
    return {
        key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(name + ".")
    }


def linear(state: State, x: Tensor) -> Tensor:
    """X Wᵀ + b."""
    out = x @ state["weight"].T
    return out + state["bias"] if "bias" in state else out


def layer_norm(state: State, x: Tensor) -> Tensor:
    """Every row with mean 0 and variance 1, then scale and shift."""
    rows = []
    for row in x:
        centred = row - row.mean()
        normal = centred / torch.sqrt((centred**2).mean() + 1e-5)
        rows.append(normal * state["weight"] + state["bias"])
    return torch.stack(rows)


def batch_norm(state: State, x: Tensor, training: bool) -> Tensor:
    """Every column with mean 0 and variance 1 over the batch; in evaluation, over past batches."""
    if training:
        mean, variance = x.mean(dim=0), ((x - x.mean(dim=0)) ** 2).mean(dim=0)
    else:
        mean, variance = state["running_mean"], state["running_var"]
    return (x - mean) / torch.sqrt(variance + 1e-5) * state["weight"] + state["bias"]


def activate(name: str | None, x: Tensor) -> Tensor:
    """The activation of that name; None is the identity."""
    if name is None:
        return x
    if name == "relu":
        return torch.where(x > 0, x, torch.zeros_like(x))
    if name == "tanh":
        return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())
    assert name == "gelu"
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


# --- §4.1: encoding and encoder -----------------------------------------------------------------


def encoding(eigenvalues: Tensor, d: int, epsilon: float = 100.0) -> Tensor:
    """Z = [λ ‖ ρ(λ)], Eq. 2: one eigenvalue and one channel at a time."""
    rows = []
    for value in eigenvalues:
        row = [value]
        for i in range(d // 2):
            row.append(torch.sin(epsilon * value / 10000 ** (2 * i / d)))
            row.append(torch.cos(epsilon * value / 10000 ** (2 * i / d)))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def softmax_rows(scores: Tensor) -> Tensor:
    """The softmax of every row."""
    return torch.stack([row.exp() / row.exp().sum() for row in scores])


def attention_matrix(state: State, z: Tensor, head: int, num_heads: int) -> Tensor:
    """B of one head, q×q, over all eigenvalues."""
    width = z.shape[1] // num_heads
    rows = slice(head * width, (head + 1) * width)
    queries = z @ state["query.weight"][rows].T + state["query.bias"][rows]
    keys = z @ state["key.weight"][rows].T + state["key.bias"][rows]
    return softmax_rows(queries @ keys.T / math.sqrt(width))


def attention_heads(state: State, z: Tensor, num_heads: int) -> list[Tensor]:
    """Z_m of every head."""
    width = z.shape[1] // num_heads
    heads = []
    for head in range(num_heads):
        rows = slice(head * width, (head + 1) * width)
        values = z @ state["value.weight"][rows].T + state["value.bias"][rows]
        heads.append(attention_matrix(state, z, head, num_heads) @ values)
    return heads


def feed_forward(state: State, x: Tensor) -> Tensor:
    """Two linear maps and a GELU between them."""
    return linear(part(state, "2"), activate("gelu", linear(part(state, "0"), x)))


def encoder_block(state: State, z: Tensor, num_heads: int) -> Tensor:
    """Eq. 3, pre-norm; without attention where it has no weights."""
    if part(state, "attention"):
        normed = layer_norm(part(state, "attention_norm"), z)
        heads = attention_heads(part(state, "attention"), normed, num_heads)
        z = linear(part(state, "attention.out"), torch.cat(heads, dim=1)) + z
    normed = layer_norm(part(state, "feed_forward_norm"), z)
    return feed_forward(part(state, "feed_forward"), normed) + z


def encoder(state: State, eigenvalues: Tensor, num_heads: int, epsilon: float = 100.0) -> Tensor:
    """Ẑ of all eigenvalues."""
    d, width = state["embedding.weight"].shape
    encoded = eigenvalues[:, None] if width == 1 else encoding(eigenvalues, d, epsilon)
    z = linear(part(state, "embedding"), encoded)
    block = 0
    while part(state, f"blocks.{block}"):
        z = encoder_block(part(state, f"blocks.{block}"), z, num_heads)
        block += 1
    return z


# --- §4.2: decoder and bases --------------------------------------------------------------------


def spectral_filter(
    state: State,
    eigenvalues: Tensor,
    num_heads: int,
    *,
    decoder: str = "joint",
    epsilon: float = 100.0,
) -> Tensor:
    """The new eigenvalues λ_1 … λ_M, q×M."""
    z = encoder(part(state, "encoder"), eigenvalues, num_heads, epsilon)
    state = part(state, "decoder")
    if decoder == "joint":  # one map of the whole representation, as in the authors' code
        return linear(part(state, "linear"), z)
    normed = layer_norm(part(state, "norm"), z)
    columns = [
        linear(part(state, "linear"), head)[:, 0]  # Eq. 4
        for head in attention_heads(part(state, "attention"), normed, num_heads)
    ]
    return torch.stack(columns, dim=1)


def stacked_bases(response: Tensor, vectors: Tensor) -> Tensor:
    """[I ‖ S_1 ‖ … ‖ S_M] with S_m = U diag(λ_m) Uᵀ, n×n×(M+1)."""
    stack = [torch.eye(len(vectors), dtype=vectors.dtype)]
    stack += [vectors @ torch.diag(column) @ vectors.T for column in response.T]
    return torch.stack(stack, dim=2)


def combined_bases(state: State, response: Tensor, vectors: Tensor, kind: str) -> Tensor:
    """Ŝ = FFN([I ‖ S_1 ‖ … ‖ S_M]), Eq. 5: n×n×d, entry by entry."""
    entries = stacked_bases(response, vectors)
    if kind == "ffn":
        return feed_forward(part(state, "network"), entries)
    return entries @ state["weight"]  # per-channel weights, as in the authors' code


# --- §4.3: convolution and model ----------------------------------------------------------------


def convolution(
    state: State, x: Tensor, combined: Tensor, options: Mapping[str, Any], training: bool = False
) -> Tensor:
    """Eq. 6, one channel at a time."""
    filtered = torch.stack([combined[:, :, c] @ x[:, c] for c in range(x.shape[1])], dim=1)
    if options["transform"]:
        filtered = linear(part(state, "transform"), filtered)
    if options["norm"] == "layer":
        filtered = layer_norm(part(state, "norm"), filtered)
    if options["norm"] == "batch":
        filtered = batch_norm(part(state, "norm"), filtered, training)
    out = activate(options["activation"], filtered)
    return out + x if options["residual"] else out


def residual_block(
    state: State,
    x: Tensor,
    combined: Tensor,
    norm: str | None,
    training: bool = False,
    linear_last: bool = False,
) -> Tensor:
    """A block of the deep form, which is not the paper's: ReLU(norm(X W_r + Ŝ X W_s)).

    There may be no W_r; a linear one ends with the sum.
    """
    signal = linear(part(state, "signal"), x)
    filtered = torch.stack([combined[:, :, c] @ signal[:, c] for c in range(x.shape[1])], dim=1)
    skip = part(state, "skip")
    out = linear(skip, x) + filtered if skip else filtered
    if linear_last:
        return out
    if norm == "layer":
        out = layer_norm(part(state, "norm"), out)
    else:
        out = batch_norm(part(state, "norm"), out, training)
    return activate("relu", out)


def specformer(
    state: State,
    config: Mapping[str, Any],
    x: Tensor,
    eigenvalues: Tensor,
    vectors: Tensor,
    training: bool = False,
) -> Tensor:
    """The node model, of ``config`` and with all its dropouts at 0."""
    hidden = linear(part(state, "lift"), x)
    deep = config["form"] == "deep"
    if config["space"] == "output" and not deep:
        hidden = linear(part(state, "readout"), activate("relu", hidden))
    for layer in range(config["num_layers"]):
        of_filter = layer if config["sharing"] == "large" else 0
        of_bases = 0 if config["sharing"] == "small" else layer
        response = spectral_filter(
            part(state, f"filters.{of_filter}"),
            eigenvalues,
            config["num_heads"],
            decoder=config["decoder"],
            epsilon=config["epsilon"],
        )
        if deep and config["local"]:  # a step to the neighbours, I − L, is one basis more
            response = torch.cat([response, 1 - eigenvalues[:, None]], dim=1)
        bases = part(state, f"convs.{of_bases}.bases")
        combined = combined_bases(bases, response, vectors, config["bases"])
        conv = part(state, f"convs.{layer}")
        if deep:
            ends = config["linear_last"] and layer == config["num_layers"] - 1
            hidden = residual_block(conv, hidden, combined, config["norm"], training, ends)
        else:
            hidden = convolution(conv, hidden, combined, config, training)
    if deep or config["space"] == "hidden":
        hidden = linear(part(state, "readout"), hidden)
    return hidden


# --- Appendix: condensation of self-attention ---------------------------------------------------


def condensed_attention(state: State, eigenvalues: Tensor, num_heads: int) -> Tensor:
    """B̂ of the first block, heads×3×3: columns summed by band, rows averaged."""
    d = state["embedding.weight"].shape[0]
    z = linear(part(state, "embedding"), encoding(eigenvalues, d))
    normed = layer_norm(part(state, "blocks.0.attention_norm"), z)
    bands = [
        [p for p, value in enumerate(eigenvalues.tolist()) if low <= value < high]
        for low, high in ((0, 2 / 3), (2 / 3, 4 / 3), (4 / 3, math.inf))
    ]
    condensed = torch.zeros(num_heads, 3, 3, dtype=z.dtype)
    for head in range(num_heads):
        matrix = attention_matrix(part(state, "blocks.0.attention"), normed, head, num_heads)
        for i, rows in enumerate(bands):
            for j, columns in enumerate(bands):
                total = sum((matrix[p, q] for p in rows for q in columns), torch.zeros(()))
                condensed[head, i, j] = total / len(rows) if rows else 0.0
    return condensed
