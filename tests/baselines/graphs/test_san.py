from __future__ import annotations

import torch
from tests.baselines.graphs.small_models import model_of
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import assert_twins, scrambled

from specformer.baselines.graphs.san import SAN, PairGroups, SANLayer, SpectrumEncoding
from specformer.nn.conv.graph_conv import GraphPairs

GAMMA = 0.3


def test_attention_against_the_formula() -> None:
    """Node by node: bonds, all other pairs, and nothing of a node by itself."""
    batch = pack(MOLECULES)
    layer = scrambled(SANLayer(6, 2, 0.0))
    nodes = random(len(batch.graph), 6).requires_grad_()
    kinds = random(len(batch.bond_table), 6, seed=1).requires_grad_()
    layout = GraphPairs(batch, torch.float64)
    groups = PairGroups.of(layout, GAMMA)

    def ours() -> torch.Tensor:
        queries, keys, _ = layer.project(nodes).split((12, 12, 6), dim=1)
        return layer.shares(queries, keys, layer.bond(kinds), layout, groups)

    def plain() -> torch.Tensor:
        projected, bonds = layer.project(nodes), layer.bond(kinds)
        shares = []
        for pair in range(len(batch.target)):
            i, j, bond = (x[pair] for x in (batch.target, batch.source, batch.bond))
            if i == j:
                shares.append(torch.zeros(2, dtype=torch.float64))
                continue
            mine = (batch.target == i) & (batch.source != i) & ((batch.bond > 0) == (bond > 0))
            start = 0 if bond > 0 else 6
            query, key = projected[i, start:][:6], projected[:, 12 + start :][:, :6]
            edge = bonds[:, start:][:, :6]
            factors = [
                query * key[batch.source[q]] * edge[batch.bond[q]] for q in mine.nonzero()[:, 0]
            ]
            scores = torch.stack(factors).unflatten(-1, (2, 3)).sum(dim=-1) / 3**0.5
            place = int(mine[:pair].sum())
            portion = 1.0 if bond > 0 else GAMMA
            shares.append(scores.softmax(dim=0)[place] * portion / (1 + GAMMA))
        return torch.stack(shares)

    attention = torch.nn.ModuleList([layer.project, layer.bond])
    assert_twins(attention, ours, plain, nodes, kinds)


def test_tokens_are_the_lowest_eigenpairs() -> None:
    encoding = SpectrumEncoding(4, 4, 1, 2).double().eval()
    pairs, known = encoding.tokens(pack(MOLECULES, spare_nodes=2, spare_pairs=3))
    row = 0
    for one in MOLECULES:
        n = len(one.nodes)
        for i in range(n):
            assert int(known[row].sum()) == min(n, 4)
            torch.testing.assert_close(pairs[row, :n, 0], one.eigenvalues[:4])
            torch.testing.assert_close(pairs[row, :n, 1], one.vectors[i, :4])
            row += 1
    assert not known[row:].any()


def test_signs_are_flipped_in_training_only_and_for_a_whole_graph() -> None:
    encoding = SpectrumEncoding(4, 4, 1, 2).double()
    batch = pack(MOLECULES)
    torch.manual_seed(0)
    flipped, _ = encoding.tokens(batch)
    exact, _ = encoding.eval().tokens(batch)
    signs = set()
    for graph in range(len(MOLECULES)):
        mine = batch.graph == graph
        for before, after in zip(exact[mine].unbind(1), flipped[mine].unbind(1), strict=True):
            same, other = torch.equal(after, before), torch.equal(after[:, 1], -before[:, 1])
            assert same or other
            signs.add((same, other))
    assert {(True, False), (False, True)} <= signs


def test_padding_of_the_spectrum_is_not_attended_to() -> None:
    """More places than eigenvalues change nothing."""
    model = model_of("san").eval()
    assert isinstance(model, SAN)
    before = model(pack(MOLECULES))
    model.spectrum.frequencies = 6
    small = [MOLECULES[2], MOLECULES[3]]  # of one and three nodes
    torch.testing.assert_close(model(pack(small)), before[2:4], rtol=0, atol=1e-10)
