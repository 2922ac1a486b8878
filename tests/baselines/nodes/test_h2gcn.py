from __future__ import annotations

import pytest
import torch
from tests.baselines.nodes.formula import assert_computes

from specformer.baselines import H2GCN, Propagation


@pytest.mark.parametrize("num_rounds", [0, 1, 2, 3])
@pytest.mark.parametrize("loop", [0.0, 2.0])
def test_against_the_formula(graph, num_rounds, loop):
    graph.weights[0, 0] = loop
    model = H2GCN(3, 8, 2, num_rounds=num_rounds).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    rounds = [(x @ model.embed.weight.T + model.embed.bias).relu()]
    for _ in range(num_rounds):
        last = rounds[-1]
        rounds.append(torch.cat([graph.one_hop @ last, graph.two_hop @ last], dim=1))
    expected = torch.cat(rounds, dim=1) @ model.classify.weight.T + model.classify.bias
    assert_computes(model, x, graph.propagation(), expected)


def test_products_are_as_wide_as_the_output(graph, monkeypatch):
    widths = []
    for name in ("one_hop", "two_hop"):
        product = getattr(Propagation, name)

        def recorded(self, h, product=product):
            widths.append(h.size(-1))
            return product(self, h)

        monkeypatch.setattr(Propagation, name, recorded)
    H2GCN(3, 8, 2)(torch.randn(graph.num_nodes, 3), graph.propagation(torch.float32))
    assert widths == [4, 4, 2, 2]


def test_repr():
    assert repr(H2GCN(3, 8, 2)) == "H2GCN(3, 8, 2, num_rounds=2)"
