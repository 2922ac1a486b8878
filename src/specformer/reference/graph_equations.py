r"""The equations of the model for many molecules (paper, appendix), one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specformer.reference.node_equations import (
    State,
    activate,
    batch_norm,
    linear,
    part,
    spectral_filter,
    stacked_bases,
)


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
    """(linear + GELU)(h_j + e_ij) ⊙ Ŝ_ij summed into i, perhaps ρ, BN and GELU, then FFN."""
    summed = []
    for h, e, s in zip(hidden, bonds, bases, strict=True):
        rows = []
        for i in range(len(h)):
            messages = activate("gelu", linear(part(state, "message"), h + e[i]))
            rows.append((messages * s[i]).sum(dim=0))
        summed.append(torch.stack(rows))
    if part(state, "norm"):
        summed = norm(part(state, "norm"), [signed_root(x) for x in summed], training)
        summed = [activate("gelu", x) for x in summed]
    summed = [h + x for h, x in zip(hidden, summed, strict=True)]
    parts = [linear(part(state, "first"), h) for h in summed]
    parts = [activate("relu", x) for x in norm(part(state, "first_norm"), parts, training)]
    parts = [linear(part(state, "second"), x) for x in parts]
    parts = [activate("relu", x) for x in norm(part(state, "second_norm"), parts, training)]
    return [h + x for h, x in zip(summed, parts, strict=True)]


def signed_root(x: Tensor) -> Tensor:
    """ρ(x) = x / √(1 + |x|)."""
    return x / torch.sqrt(1 + x.abs())


def shared_rings(bonds: Tensor, longest: int) -> Tensor:
    """How many rings of at least k = 3, 4, … atoms two atoms share, n×n×(longest − 2).

    A ring is a set of atoms that are connected and of which each is bonded to two others of it.
    """
    n, joined = len(bonds), (bonds > 0).any(dim=-1).tolist()
    shared = torch.zeros(n, n, longest - 2)
    for size in range(3, min(n, longest) + 1):
        for atoms in combinations(range(n), size):
            near = {i: [j for j in atoms if j != i and joined[i][j]] for i in atoms}
            if any(len(others) != 2 for others in near.values()):
                continue
            walk = [atoms[0], near[atoms[0]][0]]
            while walk[-1] != atoms[0]:
                one, other = near[walk[-1]]
                walk.append(one if one != walk[-2] else other)
            if len(walk) == size + 1:  # once around, and all of them were met
                for i in atoms:
                    shared[i, list(atoms), : size - 2] += 1
    return shared


def pair_update(
    state: State, states: list[Tensor], hidden: list[Tensor], training: bool
) -> list[Tensor]:
    """p_ij + W_o GELU(BN(ρ((W_q h_i + W_k h_j) ⊙ W_g p_ij) + W_b p_ij)), pair by pair."""
    mixed = []
    for p, h in zip(states, hidden, strict=True):
        q, k = linear(part(state, "ends"), h).chunk(2, dim=1)
        g, b = linear(part(state, "own"), p).chunk(2, dim=2)
        rows = [
            torch.stack([signed_root((q[i] + k[j]) * g[i, j]) + b[i, j] for j in range(len(h))])
            for i in range(len(h))
        ]
        mixed.append(torch.stack(rows))
    mixed = [activate("gelu", x) for x in norm(part(state, "norm"), mixed, training)]
    return [p + linear(part(state, "out"), x) for p, x in zip(states, mixed, strict=True)]


def pair_weights(state: State, states: list[Tensor], config: Mapping[str, Any]) -> list[Tensor]:
    """Ŝ_ij = W_s p_ij, perhaps as shares of all that i hears from."""
    parts = [linear(part(state, "weigh"), p) for p in states]
    if config["normalise_bases"] == "softmax":
        parts = [x.exp() / x.exp().sum(dim=1, keepdim=True) for x in parts]
    return parts


def layers_with_states(
    state: State,
    config: Mapping[str, Any],
    molecules: Sequence[Molecule],
    hidden: list[Tensor],
    bonds: list[Tensor],
    raw: list[Tensor],
    training: bool,
) -> list[Tensor]:
    """All layers of the form ``"pairs"``, which is not the paper's."""
    if config["max_ring"]:
        rings = [shared_rings(molecule.bonds, config["max_ring"]) for molecule in molecules]
        raw = [torch.cat([x, torch.log(1 + r.to(x))], 2) for x, r in zip(raw, rings, strict=True)]
    own = [linear(part(state, "places"), x.diagonal().T) for x in raw]
    hidden = [h + x for h, x in zip(hidden, own, strict=True)]
    plain = {**config, "normalise_bases": None}
    states = combined_graph_bases(part(state, "bases.0"), raw, plain, training)
    states = [p + e for p, e in zip(states, bonds, strict=True)]
    for layer in range(config["num_layers"]):
        update = part(state, f"updates.{layer}")
        states = pair_update(update, states, hidden, training)
        weights = pair_weights(update, states, config)
        conv = part(state, f"convs.{layer}")
        hidden = graph_convolution(conv, hidden, bonds, weights, training)
    return norm(part(state, "last_norm"), hidden, training)


def graph_specformer(
    state: State, config: Mapping[str, Any], molecules: Sequence[Molecule], training: bool = False
) -> Tensor:
    """The graph model, of ``config`` and with all its dropouts at 0; one row per molecule."""
    edge_values = [count + 1 for count in config["edge_cardinalities"]]
    atoms, kinds = part(state, "atoms"), part(state, "bonds")
    hidden = [embed(atoms, molecule.nodes, config["node_cardinalities"]) for molecule in molecules]
    bonds = [embed(kinds, molecule.bonds, edge_values) for molecule in molecules]
    bases: list[Tensor] = []
    has_states = config["form"] == "pairs"
    for layer in range(1 if has_states else config["num_layers"]):
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
            if has_states:
                given = (molecules, hidden, bonds, raw, training)
                hidden = layers_with_states(state, config, *given)
                break
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
