from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import torch
from tests.baselines.graphs.small_models import COLUMNS, fresh, model_of
from tests.nn.molecules import MOLECULES, molecule, pack
from tests.nn.plain_twin import assert_twins, state_of

from specformer.baselines.graphs import SpecGN
from specformer.baselines.graphs.specgn import smoothed_powers
from specformer.errors import ConfigError
from specformer.nn.conv.graph_conv import GraphPairs, basis_entries
from specformer.reference import Molecule, combined_graph_bases, embed, graph_convolution, part


def with_loops(one: Molecule) -> np.ndarray:
    """A + I between roots of its degrees."""
    joined = (one.bonds.sum(dim=-1) > 0).double().numpy() + np.eye(len(one.nodes))
    root = np.sqrt(joined.sum(axis=0))
    return joined / root / root[:, None]


#: With the spectra of that matrix, which has eigenvalues of both signs and zeros.
LOOPED = [
    one._replace(eigenvalues=torch.tensor(values), vectors=torch.tensor(vectors))
    for one in [*MOLECULES, molecule(nx.complete_bipartite_graph(2, 3), seed=7)]
    for values, vectors in [np.linalg.eigh(with_loops(one))]
]


def powers(molecules: list[Molecule], order: int, exponent: float) -> list[torch.Tensor]:
    """[I ‖ S ‖ … ‖ S^K] of every molecule, n×n×(K + 1), as the model has them."""
    layout = GraphPairs(pack(molecules), torch.float64)
    entries = basis_entries(smoothed_powers(layout.tokens.values, order, exponent), layout)
    blocks = entries.split([len(one.nodes) ** 2 for one in molecules])
    pairs = zip(blocks, molecules, strict=True)
    return [block.reshape(len(one.nodes), -1, order + 1) for block, one in pairs]


def test_powers_of_the_matrix_itself() -> None:
    for one, found in zip(LOOPED, powers(LOOPED, 5, 1.0), strict=True):
        for k in range(6):
            expected = torch.tensor(np.linalg.matrix_power(with_loops(one), k))
            torch.testing.assert_close(found[..., k], expected, rtol=0, atol=1e-12)


def test_powers_of_its_roots() -> None:
    thirds, halves = powers(LOOPED, 6, 1 / 3), powers(LOOPED, 2, 1 / 2)
    for one, third, half in zip(LOOPED, thirds, halves, strict=True):
        matrix = with_loops(one)
        root = third[..., 1].numpy()
        for k in range(7):
            expected = np.linalg.matrix_power(root, k)
            np.testing.assert_allclose(third[..., k], expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(third[..., 3], matrix, rtol=0, atol=1e-12)
        # Of a square root with signs the square is the matrix without them.
        np.testing.assert_allclose(half[..., 2], scipy.linalg.polar(matrix)[1], rtol=0, atol=1e-12)


def test_rounding_of_zeros_does_not_matter() -> None:
    values = torch.tensor([0.0, 3e-8, -2e-7, -0.5])
    found = smoothed_powers(values, 24, 0.125)
    assert not found[:3].any()
    torch.testing.assert_close(found[3, [7, 23]], torch.tensor([0.5, 0.125]))


@pytest.mark.parametrize("molecules", [MOLECULES, LOOPED], ids=["laplacian", "loops"])
@pytest.mark.parametrize("norm", [None, "batch"])
@pytest.mark.parametrize("normalise", [None, "softmax"])
def test_model_against_the_formula(molecules, norm, normalise) -> None:
    model = model_of("specgn", bases_norm=norm, normalise_bases=normalise, exponent=0.25)
    settings = {**model.config, "bases_activation": "gelu"}

    def literal(one: Molecule) -> torch.Tensor:
        smooth = torch.zeros(len(one.nodes), len(one.nodes), dtype=torch.float64)
        for value, u in zip(one.eigenvalues, one.vectors.T, strict=True):
            if abs(value) > 1e-6:
                smooth = smooth + torch.sign(value) * abs(value) ** 0.25 * torch.outer(u, u)
        found = [torch.linalg.matrix_power(smooth, k) for k in range(5)]
        return torch.stack(found, dim=-1)

    def plain() -> torch.Tensor:
        state = state_of(model)
        raw = [literal(one) for one in molecules]
        filters = combined_graph_bases(part(state, "filters.bases"), raw, settings, training=True)
        kinds = [count + 1 for count in COLUMNS[1]]
        hidden = [embed(part(state, "atoms"), one.nodes, COLUMNS[0]) for one in molecules]
        bonds = [embed(part(state, "bonds"), one.bonds, kinds) for one in molecules]
        for layer in range(2):
            own = part(state, f"convs.{layer}")
            hidden = graph_convolution(own, hidden, bonds, filters, training=True)
        means = torch.stack([rows.mean(dim=0) for rows in hidden])
        return model.readout(model.head(means))

    batch = pack(molecules, spare_nodes=2, spare_pairs=3)
    assert_twins(model, lambda: model(batch), plain, atol=1e-10)


def test_basis_of_an_eigenspace_does_not_matter() -> None:
    model = model_of("specgn", order=24).eval()
    ring = MOLECULES[1]
    angle = torch.tensor(0.7, dtype=torch.float64)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
    vectors = -ring.vectors
    vectors[:, 1:3] = vectors[:, 1:3] @ turn  # a ring's second eigenvalue is double
    torch.testing.assert_close(ring.eigenvalues[1], ring.eigenvalues[2])
    turned = model(pack([ring._replace(vectors=vectors)]))
    torch.testing.assert_close(turned, model(pack([ring])), rtol=0, atol=1e-11)


def test_tells_apart_what_neighbours_cannot() -> None:
    """Two triangles and a ring of six look the same to a sum over neighbours."""
    triangles = molecule(nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)))
    alike = [
        one._replace(nodes=torch.zeros_like(one.nodes), bonds=one.bonds.clamp(max=1))
        for one in (triangles, MOLECULES[1])
    ]
    for name, differ in (("gin", False), ("specgn", True)):
        one, other = model_of(name).eval()(pack(alike))
        assert ((one - other).abs().max() > 1e-3) == differ


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order=0 must be at least 1"),
        ({"exponent": 0.0}, "exponent=0.0 must be positive and at most 1"),
        ({"exponent": 1.5}, "exponent=1.5"),
        ({"bases_norm": "layer"}, "bases_norm='layer'"),
        ({"normalise_bases": "sum"}, "normalise_bases='sum'"),
    ],
)
def test_bad_options_are_named(options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SpecGN(*COLUMNS, 8, 1, **options)


def test_filters_show_their_settings() -> None:
    assert "order=4, exponent=0.125" in repr(fresh("specgn"))
