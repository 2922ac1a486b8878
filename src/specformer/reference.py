r"""The paper's equations, literally and slowly: both models in one file, for reading and for tests.

Dense and explicit throughout: attention is a softmax matrix over *all* eigenvalues, heads are a
Python loop, every basis is an n×n matrix, the combined bases are n×n×d, sums are loops. Nothing
here comes from the rest of the package, whose fast paths are compared with it. Equation numbers are
those of `the paper <https://arxiv.org/abs/2303.01028>`_.

A function takes the parameters of a module by their names (``module.state_dict()``, or a dict of
its parameters for gradients) and is differentiable in them. Dropout is left out.

Example:
    >>> import specformer as sf
    >>> spectrum = sf.decompose(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> model, x = sf.Specformer(8, 16, 3).eval(), torch.randn(4, 8)
    >>> given = (model.state_dict(), model.config, x, spectrum.eigenvalues, spectrum.eigenvectors)
    >>> bool((specformer(*given) - model(x, spectrum)).abs().max() < 1e-4)
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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


# --- Appendix: the model for many molecules -----------------------------------------------------


class Molecule(NamedTuple):
    """One molecule.

    nodes: n×columns integers; bonds: n×n×columns integers, shifted by one, zeros for no bond;
    eigenvalues: n; vectors: n×n, one eigenvector per column; fingerprint: counts, perhaps none.
    """

    nodes: Tensor
    bonds: Tensor
    eigenvalues: Tensor
    vectors: Tensor
    fingerprint: Tensor = torch.zeros(0)


def embed(state: State, features: Tensor, cardinalities: Sequence[int]) -> Tensor:
    """One vector per column, added; the columns' tables lie one after another."""
    total = state["weight"].new_zeros(*features.shape[:-1], state["weight"].shape[1])
    start = 0
    for column, count in enumerate(cardinalities):
        table = state["weight"][start : start + count]
        total = total + table[features[..., column]]
        start += count
    return total


def together(function: Callable[[Tensor], Tensor], parts: list[Tensor]) -> list[Tensor]:
    """A function of the rows of all molecules at once."""
    rows = torch.cat([x.flatten(0, -2) for x in parts])
    results = function(rows).split([x.flatten(0, -2).shape[0] for x in parts])
    return [y.reshape(x.shape) for x, y in zip(parts, results, strict=True)]


def norm(state: State, parts: list[Tensor], training: bool) -> list[Tensor]:
    """Batch normalisation over the rows of all molecules."""
    return together(lambda rows: batch_norm(state, rows, training), parts)


def combined_graph_bases(
    state: State, raw: list[Tensor], config: Mapping[str, Any], training: bool
) -> list[Tensor]:
    """Ŝ of every molecule, n×n×d."""
    parts = [linear(part(state, "first"), x) for x in raw]
    if config["bases_norm"] == "batch":
        parts = norm(part(state, "first_norm"), parts, training)
    parts = [linear(part(state, "second"), activate("gelu", x)) for x in parts]
    if config["bases_norm"] == "batch":
        parts = norm(part(state, "second_norm"), parts, training)
    parts = [activate(config["bases_activation"], x) for x in parts]
    if config["normalise_bases"] == "softmax":
        parts = [x.exp() / x.exp().sum(dim=1, keepdim=True) for x in parts]
    return parts


def graph_convolution(
    state: State, hidden: list[Tensor], bonds: list[Tensor], bases: list[Tensor], training: bool
) -> list[Tensor]:
    """(linear + GELU)(h_j + e_ij) ⊙ Ŝ_ij summed into i, then FFN."""
    summed = []
    for h, e, s in zip(hidden, bonds, bases, strict=True):
        rows = []
        for i in range(len(h)):
            messages = activate("gelu", linear(part(state, "message"), h + e[i]))
            rows.append(h[i] + (messages * s[i]).sum(dim=0))
        summed.append(torch.stack(rows))
    parts = [linear(part(state, "first"), h) for h in summed]
    parts = [activate("relu", x) for x in norm(part(state, "first_norm"), parts, training)]
    parts = [linear(part(state, "second"), x) for x in parts]
    parts = [activate("relu", x) for x in norm(part(state, "second_norm"), parts, training)]
    return [h + x for h, x in zip(summed, parts, strict=True)]


def graph_specformer(
    state: State, config: Mapping[str, Any], molecules: Sequence[Molecule], training: bool = False
) -> Tensor:
    """The graph model, of ``config`` and with all its dropouts at 0; one row per molecule."""
    edge_values = [count + 1 for count in config["edge_cardinalities"]]
    atoms, kinds = part(state, "atoms"), part(state, "bonds")
    hidden = [embed(atoms, molecule.nodes, config["node_cardinalities"]) for molecule in molecules]
    bonds = [embed(kinds, molecule.bonds, edge_values) for molecule in molecules]
    bases: list[Tensor] = []
    for layer in range(config["num_layers"]):
        of_filter = layer if config["sharing"] == "large" else 0
        of_bases = 0 if config["sharing"] == "small" else layer
        if of_bases == layer:
            filt = part(state, f"filters.{of_filter}")
            raw = [
                stacked_bases(
                    spectral_filter(
                        filt,
                        molecule.eigenvalues,
                        config["num_heads"],
                        decoder=config["decoder"],
                        epsilon=config["epsilon"],
                    ),
                    molecule.vectors,
                )
                for molecule in molecules
            ]
            bases = combined_graph_bases(part(state, f"bases.{of_bases}"), raw, config, training)
        hidden = graph_convolution(part(state, f"convs.{layer}"), hidden, bonds, bases, training)
    pooled = {
        "mean": lambda h: h.mean(dim=0),
        "sum": lambda h: h.sum(dim=0),
        "max": lambda h: h.max(dim=0).values,
    }[config["pooling"]]
    rows = torch.stack([pooled(h) for h in hidden])
    if config["fingerprint"]:
        logs = torch.stack([torch.log(1 + molecule.fingerprint.to(rows)) for molecule in molecules])
        parts = activate("relu", linear(part(state, "parts.map"), logs))
        rows = torch.cat([rows, parts], dim=1)
    return linear(part(state, "readout"), rows)
