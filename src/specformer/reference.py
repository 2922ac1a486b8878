r"""The paper's equations, written out literally and slowly: both models, for reading and for tests.

Everything is dense and explicit: attention is a softmax matrix over *all* eigenvalues, heads are a
Python loop, every basis is an n×n matrix, and the combined bases are n×n×d. Nothing is imported
from the rest of the package, whose fast paths are compared with this module. Equation numbers are
those of `the paper <https://arxiv.org/abs/2303.01028>`_.

The functions take the parameters of a module by name (``module.state_dict()``, or a dict of its
parameters for gradients) and are differentiable in them. Dropout is left out.

Example:
    >>> import torch, specformer as sf
    >>> spectrum = sf.decompose(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> model, x = sf.Specformer(8, 16, 3).eval(), torch.randn(4, 8)
    >>> given = (model.state_dict(), model.config, x, spectrum.eigenvalues, spectrum.eigenvectors)
    >>> bool((specformer(*given) - model(x, spectrum)).abs().max() < 1e-4)
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

State = Mapping[str, Tensor]
Config = Mapping[str, Any]


def part(state: State, name: str) -> dict[str, Tensor]:
    """The parameters of the submodule ``name``."""
    start = name + "."
    return {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}


def linear(state: State, x: Tensor) -> Tensor:
    """X Wᵀ + b."""
    out = x @ state["weight"].T
    return out + state["bias"] if "bias" in state else out


def layer_norm(state: State, x: Tensor) -> Tensor:
    """Each row with mean 0 and variance 1, then scale and shift."""
    mean = x.mean(dim=1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * state["weight"] + state["bias"]


def batch_norm(state: State, x: Tensor, training: bool) -> Tensor:
    """Each column with mean 0 and variance 1 over the batch, or over past batches in evaluation."""
    if training:
        mean, variance = x.mean(dim=0), ((x - x.mean(dim=0)) ** 2).mean(dim=0)
    else:
        mean, variance = state["running_mean"], state["running_var"]
    return (x - mean) / torch.sqrt(variance + 1e-5) * state["weight"] + state["bias"]


def normalise(state: State, name: str | None, x: Tensor, training: bool) -> Tensor:
    """The normalisation of that name; None is the identity."""
    if name is None:
        return x
    return layer_norm(state, x) if name == "layer" else batch_norm(state, x, training)


def gelu(x: Tensor) -> Tensor:
    """Φ(x) x, with Φ the normal distribution."""
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def softmax(x: Tensor) -> Tensor:
    """Exponentials, divided by their sum along the second axis."""
    return x.exp() / x.exp().sum(dim=1, keepdim=True)


#: Functions by their name in a configuration.
FUNCTIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": gelu,
    "softmax": softmax,
}


# --- §4.1: encoding and encoder -----------------------------------------------------------------


def encoding(eigenvalues: Tensor, d: int, epsilon: float = 100.0) -> Tensor:
    """Z = [λ ‖ ρ(λ)], Eq. 2: one channel at a time."""
    columns = [eigenvalues]
    for i in range(d // 2):
        angles = epsilon * eigenvalues / 10000 ** (2 * i / d)
        columns += [torch.sin(angles), torch.cos(angles)]
    return torch.stack(columns, dim=1)


def of_head(state: State, name: str, z: Tensor, head: int, num_heads: int) -> Tensor:
    """The queries, keys or values of one head: its share of the columns of Z W + b."""
    return linear(part(state, name), z).chunk(num_heads, dim=1)[head]


def attention_matrix(state: State, z: Tensor, head: int, num_heads: int) -> Tensor:
    """B of one head, q×q, over all eigenvalues."""
    queries, keys = (of_head(state, name, z, head, num_heads) for name in ("query", "key"))
    return softmax(queries @ keys.T / math.sqrt(keys.shape[1]))


def attention_heads(state: State, z: Tensor, num_heads: int) -> list[Tensor]:
    """Z_m of every head."""
    return [
        attention_matrix(state, z, head, num_heads) @ of_head(state, "value", z, head, num_heads)
        for head in range(num_heads)
    ]


def feed_forward(state: State, x: Tensor) -> Tensor:
    """Two linear maps and a GELU between them."""
    return linear(part(state, "2"), gelu(linear(part(state, "0"), x)))


def encoder_block(state: State, z: Tensor, num_heads: int) -> Tensor:
    """Eq. 3, with layer norms first; without attention if it has no weights."""
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
    decoder: str = "joint",
    epsilon: float = 100.0,
) -> Tensor:
    """The new eigenvalues λ_1 … λ_M, q×M."""
    z = encoder(part(state, "encoder"), eigenvalues, num_heads, epsilon)
    state = part(state, "decoder")
    if decoder == "joint":  # one map of the whole representation, as in the authors' code
        return linear(part(state, "linear"), z)
    normed = layer_norm(part(state, "norm"), z)
    heads = attention_heads(part(state, "attention"), normed, num_heads)
    return torch.cat([linear(part(state, "linear"), head) for head in heads], dim=1)  # Eq. 4


def layer_response(state: State, config: Config, layer: int, eigenvalues: Tensor) -> Tensor:
    """The new eigenvalues of a layer's filter: the only one, or its own with large sharing."""
    filt = part(state, f"filters.{layer if config['sharing'] == 'large' else 0}")
    options = {"decoder": config["decoder"], "epsilon": config["epsilon"]}
    return spectral_filter(filt, eigenvalues, config["num_heads"], **options)


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


def filter_channels(combined: Tensor, x: Tensor) -> Tensor:
    """Ŝ_c x_c, one channel at a time."""
    return torch.stack([combined[:, :, c] @ x[:, c] for c in range(x.shape[1])], dim=1)


def convolution(
    state: State, x: Tensor, combined: Tensor, options: Config, training: bool = False
) -> Tensor:
    """Eq. 6."""
    filtered = filter_channels(combined, x)
    if options["transform"]:
        filtered = linear(part(state, "transform"), filtered)
    filtered = normalise(part(state, "norm"), options["norm"], filtered, training)
    out = FUNCTIONS[options["activation"]](filtered)
    return out + x if options["residual"] else out


def residual_block(
    state: State, x: Tensor, combined: Tensor, norm: str | None, training: bool, linear_last: bool
) -> Tensor:
    """A block of the deep form, which is not in the paper: ReLU(norm(X W_r + Ŝ X W_s)).

    W_r may be missing. A linear block ends with the sum.
    """
    signal = linear(part(state, "signal"), x)
    filtered, skip = filter_channels(combined, signal), part(state, "skip")
    out = linear(skip, x) + filtered if skip else filtered
    if linear_last:
        return out
    return torch.relu(normalise(part(state, "norm"), norm or "batch", out, training))


def feature_network(state: State, x: Tensor) -> Tensor:
    """One linear map, or two with ReLU between them."""
    hidden, readout = linear(part(state, "lift"), x), part(state, "readout")
    return linear(readout, torch.relu(hidden)) if readout else hidden


def specformer(
    state: State,
    config: Config,
    x: Tensor,
    eigenvalues: Tensor,
    vectors: Tensor,
    training: bool = False,
) -> Tensor:
    """The node model with this configuration and without dropout."""
    deep = config["form"] == "deep"
    space = "hidden" if deep else config["space"]
    hidden = x
    if space == "hidden":
        hidden = linear(part(state, "lift"), x)
    elif space == "output":
        hidden = feature_network(state, x)
    for layer in range(config["num_layers"]):
        of_bases = 0 if config["sharing"] == "small" else layer
        response = layer_response(state, config, layer, eigenvalues)
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
    if space == "hidden":
        return linear(part(state, "readout"), hidden)
    return hidden if space == "output" else feature_network(state, hidden)


# --- Appendix: condensation of self-attention ---------------------------------------------------


def condensed_attention(state: State, eigenvalues: Tensor, num_heads: int) -> Tensor:
    """B̂ of the first block, heads×3×3: columns summed by band, rows averaged."""
    d = state["embedding.weight"].shape[0]
    z = linear(part(state, "embedding"), encoding(eigenvalues, d))
    normed = layer_norm(part(state, "blocks.0.attention_norm"), z)
    edges = (0.0, 2 / 3, 4 / 3, math.inf)
    bands = [(low <= eigenvalues) & (eigenvalues < high) for low, high in pairwise(edges)]
    condensed = torch.zeros(num_heads, 3, 3, dtype=z.dtype)
    for head in range(num_heads):
        matrix = attention_matrix(part(state, "blocks.0.attention"), normed, head, num_heads)
        for i, j in product(range(3), repeat=2):
            total = matrix[bands[i]][:, bands[j]].sum()
            condensed[head, i, j] = total / bands[i].sum().clamp(min=1)
    return condensed


# --- Many molecules -----------------------------------------------------------------------------


#: One tensor per molecule.
Tensors = list[Tensor]


class Molecule(NamedTuple):
    """One molecule.

    nodes: n×columns integers; bonds: n×n×columns integers, shifted by one, zeros for no bond;
    eigenvalues: n; vectors: n×n, one eigenvector per column; fingerprint: counts, may be empty.
    """

    nodes: Tensor
    bonds: Tensor
    eigenvalues: Tensor
    vectors: Tensor
    fingerprint: Tensor = torch.zeros(0)


def embed(state: State, features: Tensor, cardinalities: Sequence[int]) -> Tensor:
    """The sum of one vector per column; the columns' tables are concatenated."""
    tables = state["weight"].split(list(cardinalities))
    vectors = [table[features[..., column]] for column, table in enumerate(tables)]
    return torch.stack(vectors).sum(dim=0)


def norm(state: State, parts: Tensors, training: bool) -> Tensors:
    """Batch normalisation over the rows of all molecules together."""
    rows = [x.flatten(0, -2) for x in parts]
    results = batch_norm(state, torch.cat(rows), training).split([len(x) for x in rows])
    return [y.reshape(x.shape) for x, y in zip(parts, results, strict=True)]


def combined_graph_bases(state: State, raw: Tensors, config: Config, training: bool) -> Tensors:
    """Ŝ of every molecule, n×n×d."""
    parts = raw
    for layer, function in (("first", "gelu"), ("second", config["bases_activation"])):
        parts = [linear(part(state, layer), x) for x in parts]
        if config["bases_norm"] == "batch":
            parts = norm(part(state, f"{layer}_norm"), parts, training)
        parts = [FUNCTIONS[function](x) for x in parts]
    return [FUNCTIONS[config["normalise_bases"]](x) for x in parts]


def graph_convolution(
    state: State, hidden: Tensors, bonds: Tensors, bases: Tensors, training: bool
) -> Tensors:
    """Σ_j (linear + GELU)(h_j + e_ij) ⊙ Ŝ_ij, with a norm also ρ, BN and GELU, then FFN."""
    summed = []
    for h, e, s in zip(hidden, bonds, bases, strict=True):
        messages = gelu(linear(part(state, "message"), h[None, :] + e))  # n×n×d, from j to i
        summed.append((messages * s).sum(dim=1))
    if part(state, "norm"):
        summed = norm(part(state, "norm"), [signed_root(x) for x in summed], training)
        summed = [gelu(x) for x in summed]
    summed = [h + x for h, x in zip(hidden, summed, strict=True)]
    parts = summed
    for layer in ("first", "second"):
        parts = [linear(part(state, layer), x) for x in parts]
        parts = [torch.relu(x) for x in norm(part(state, f"{layer}_norm"), parts, training)]
    return [h + x for h, x in zip(summed, parts, strict=True)]


def signed_root(x: Tensor) -> Tensor:
    """ρ(x) = x / √(1 + |x|)."""
    return x / torch.sqrt(1 + x.abs())


def shared_rings(bonds: Tensor, longest: int) -> Tensor:
    """Number of rings of at least k = 3, 4, … atoms that two atoms share, n×n×(longest − 2).

    A ring is a connected set of atoms, each of which is bonded to exactly two others of the set.
    """
    n, joined = len(bonds), (bonds > 0).any(dim=-1).float().fill_diagonal_(0)
    shared = torch.zeros(n, n, longest - 2)
    for size in range(3, min(n, longest) + 1):
        for atoms in map(torch.tensor, combinations(range(n), size)):
            near = joined[atoms][:, atoms]
            reached = torch.matrix_power(torch.eye(size) + near, size)
            if (near.sum(dim=1) == 2).all() and (reached > 0).all():
                shared[atoms[:, None], atoms, : size - 2] += 1
    return shared


def pair_update(state: State, states: Tensors, hidden: Tensors, training: bool) -> Tensors:
    """p_ij + W_o GELU(BN(ρ((W_q h_i + W_k h_j) ⊙ W_g p_ij) + W_b p_ij))."""
    mixed = []
    for p, h in zip(states, hidden, strict=True):
        q, k = linear(part(state, "ends"), h).chunk(2, dim=1)
        g, b = linear(part(state, "own"), p).chunk(2, dim=2)
        mixed.append(signed_root((q[:, None] + k[None, :]) * g) + b)
    mixed = [gelu(x) for x in norm(part(state, "norm"), mixed, training)]
    return [p + linear(part(state, "out"), x) for p, x in zip(states, mixed, strict=True)]


def layers_with_states(
    state: State, config: Config, hidden: Tensors, bonds: Tensors, raw: Tensors, training: bool
) -> Tensors:
    """All layers of the form ``"pairs"``, which is not in the paper; Ŝ_ij = W_s p_ij."""
    own = [linear(part(state, "places"), x.diagonal().T) for x in raw]
    hidden = [h + x for h, x in zip(hidden, own, strict=True)]
    plain = {**config, "normalise_bases": None}
    states = combined_graph_bases(part(state, "bases.0"), raw, plain, training)
    states = [p + e for p, e in zip(states, bonds, strict=True)]
    for layer in range(config["num_layers"]):
        update = part(state, f"updates.{layer}")
        states = pair_update(update, states, hidden, training)
        weights = [linear(part(update, "weigh"), p) for p in states]
        weights = [FUNCTIONS[config["normalise_bases"]](x) for x in weights]
        conv = part(state, f"convs.{layer}")
        hidden = graph_convolution(conv, hidden, bonds, weights, training)
    return norm(part(state, "last_norm"), hidden, training)


def graph_specformer(
    state: State, config: Config, molecules: Sequence[Molecule], training: bool = False
) -> Tensor:
    """The graph model with this configuration and without dropout; one row per molecule."""
    edge_values = [count + 1 for count in config["edge_cardinalities"]]
    atoms, kinds = part(state, "atoms"), part(state, "bonds")
    hidden = [embed(atoms, molecule.nodes, config["node_cardinalities"]) for molecule in molecules]
    bonds = [embed(kinds, molecule.bonds, edge_values) for molecule in molecules]
    bases: Tensors = []
    for layer in range(config["num_layers"]):
        if layer == 0 or config["sharing"] != "small":
            raw = [
                stacked_bases(layer_response(state, config, layer, one.eigenvalues), one.vectors)
                for one in molecules
            ]
            if config["max_ring"]:
                rings = [shared_rings(one.bonds, config["max_ring"]) for one in molecules]
                logs = [torch.log(1 + r.to(x)) for x, r in zip(raw, rings, strict=True)]
                raw = [torch.cat([x, r], dim=2) for x, r in zip(raw, logs, strict=True)]
            if config["form"] == "pairs":
                hidden = layers_with_states(state, config, hidden, bonds, raw, training)
                break
            bases = combined_graph_bases(part(state, f"bases.{layer}"), raw, config, training)
        hidden = graph_convolution(part(state, f"convs.{layer}"), hidden, bonds, bases, training)
    pooling = "amax" if config["pooling"] == "max" else config["pooling"]
    rows = torch.stack([getattr(h, pooling)(dim=0) for h in hidden])
    if config["fingerprint"]:
        counts = torch.stack([molecule.fingerprint.to(rows) for molecule in molecules])
        fragments = torch.relu(linear(part(state, "fragments.map"), torch.log(1 + counts)))
        rows = torch.cat([rows, fragments], dim=1)
    return linear(part(state, "readout"), rows)
