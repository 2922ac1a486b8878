"""The paper's graph-level model, literally and slowly: the plain twin of GraphSpecformer.

One molecule after another, every pair of atoms with a vector of its own: bases, bonds and messages
are n×n×d, attention is a matrix over all eigenvalues, sums are loops. Only batch normalisation
looks at all molecules at once, as it must. Nothing here is imported from ``specformer``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from tests.reference import State, activate, batch_norm, linear, part, spectral_filter
from torch import Tensor


class Molecule(NamedTuple):
    """One molecule.

    nodes: n×columns integers; bonds: n×n×columns integers, shifted by one, zeros for no bond;
    eigenvalues: n; vectors: n×n, an eigenvector a column.
    """

    nodes: Tensor
    bonds: Tensor
    eigenvalues: Tensor
    vectors: Tensor


def embed(state: State, features: Tensor, cardinalities: Sequence[int]) -> Tensor:
    """One vector a column, added; the columns' tables lie one after another."""
    total = torch.zeros(*features.shape[:-1], state["weight"].shape[1], dtype=torch.float64)
    start = 0
    for column, count in enumerate(cardinalities):
        table = state["weight"][start : start + count]
        total = total + table[features[..., column]]
        start += count
    return total


def together(function: Any, parts: list[Tensor]) -> list[Tensor]:
    """A function of the rows of all molecules at once."""
    rows = torch.cat([x.flatten(0, -2) for x in parts])
    results = function(rows).split([x.flatten(0, -2).shape[0] for x in parts])
    return [y.reshape(x.shape) for x, y in zip(parts, results, strict=True)]


def norm(state: State, parts: list[Tensor], training: bool) -> list[Tensor]:
    return together(lambda rows: batch_norm(state, rows, training), parts)


def raw_bases(state: State, molecule: Molecule, config: Mapping[str, Any]) -> Tensor:
    """[I ‖ S_1 ‖ … ‖ S_M], n×n×(M+1)."""
    response = spectral_filter(
        state,
        molecule.eigenvalues,
        config["num_heads"],
        decoder=config["decoder"],
        activation=config["filter_activation"],
        epsilon=config["epsilon"],
    )
    vectors = molecule.vectors
    stack = [torch.eye(len(vectors), dtype=vectors.dtype)]
    stack += [vectors @ torch.diag(column) @ vectors.T for column in response.T]
    return torch.stack(stack, dim=2)


def combined_bases(
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


def convolution(
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
    """The graph model, of ``config`` and with all its dropouts at 0; a row a molecule."""
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
            raw = [raw_bases(filt, molecule, config) for molecule in molecules]
            bases = combined_bases(part(state, f"bases.{of_bases}"), raw, config, training)
        hidden = convolution(part(state, f"convs.{layer}"), hidden, bonds, bases, training)
    pooled = {
        "mean": lambda h: h.mean(dim=0),
        "sum": lambda h: h.sum(dim=0),
        "max": lambda h: h.max(dim=0).values,
    }[config["pooling"]]
    return linear(part(state, "readout"), torch.stack([pooled(h) for h in hidden]))
