from __future__ import annotations

import networkx as nx
import torch
from tests.baselines.graphs.small_models import model_of
from tests.nn.molecules import EDGE_CARDINALITIES, MOLECULES, NODE_CARDINALITIES, pack
from tests.nn.plain_twin import assert_twins, state_of
from torch.nn.functional import gelu, layer_norm

from specformer.baselines.graphs import GraphGraphormer
from specformer.reference import Molecule, embed, part


def bias_of(model: GraphGraphormer, one: Molecule) -> torch.Tensor:
    """The numbers added to one molecule's scores: node by node, path by path."""
    joined = one.bonds.sum(dim=-1) > 0
    graph = nx.from_numpy_array(joined.numpy())
    n = len(one.nodes)
    vectors = embed(
        part(state_of(model), "bonds"), (one.bonds - 1).clamp_min(0), EDGE_CARDINALITIES
    )
    rows = [[model.graph_bias] * (n + 1)]
    for i in range(n):
        row = [model.graph_bias]
        for j in range(n):
            far = not nx.has_path(graph, i, j) or nx.shortest_path_length(graph, i, j) > 3
            number = model.distance_bias[4 if far else nx.shortest_path_length(graph, i, j)]
            if not far and i != j:
                along = [
                    torch.stack(
                        [
                            vectors[a, b] @ model.hop_weights[hop]
                            for hop, (a, b) in enumerate(nx.utils.pairwise(path))
                            if hop < 2
                        ]
                    ).mean(dim=0)
                    for path in nx.all_shortest_paths(graph, i, j)
                ]
                number = number + torch.stack(along).mean(dim=0)
            row.append(number)
        rows.append(row)
    return torch.stack([torch.stack(row) for row in rows]).movedim(-1, 0)


def plain(model: GraphGraphormer, one: Molecule) -> torch.Tensor:
    """One molecule's output by the paper's formulas."""
    degrees = (one.bonds.sum(dim=-1) > 0).sum(dim=0)
    atoms = embed(part(state_of(model), "atoms"), one.nodes, NODE_CARDINALITIES)
    tokens = torch.cat([model.graph_token[None], atoms + model.degrees.weight[degrees]])
    bias = bias_of(model, one)
    for layer in model.layers:
        normal = layer_norm(tokens, (8,), layer.attention_norm.weight, layer.attention_norm.bias)
        query, key, value = layer.attention.project(normal).chunk(3, dim=-1)
        heads = []
        for head in range(2):
            own = slice(4 * head, 4 * head + 4)
            scores = query[:, own] @ key[:, own].T / 2.0 + bias[head]
            heads.append(scores.softmax(dim=-1) @ value[:, own])
        tokens = tokens + layer.attention.out(torch.cat(heads, dim=-1))
        normal = layer_norm(tokens, (8,), layer.norm.weight, layer.norm.bias)
        tokens = tokens + layer.mlp[2](gelu(layer.mlp[0](normal)))
    return model.readout(layer_norm(tokens[0], (8,), model.head.weight, model.head.bias))


def test_against_the_formula() -> None:
    model = model_of("graphormer")
    assert isinstance(model, GraphGraphormer)
    batch = pack(MOLECULES)
    assert_twins(
        model,
        lambda: model(batch),
        lambda: torch.stack([plain(model, one) for one in MOLECULES]),
        atol=1e-9,
    )
