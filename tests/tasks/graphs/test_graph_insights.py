r"""What a report shows of a model of many graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.nn.plain_twin import state_of
from tests.tasks.jobs import CPU, train_source
from tests.training.small_graphs import small_set

from specformer import GraphSpecformer, reference
from specformer.baselines.graphs import GRAPH_BASELINES
from specformer.datasets import GraphStore
from specformer.graphs import GraphSet
from specformer.spectrum import decompose_many
from specformer.tasks.graphs.graph_insights import (
    _by_size,
    _extremes,
    contributions,
    filter_pictures,
)
from specformer.training.evaluation.graphs import Placed


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A model of molecules whose target is how many oxygen atoms they have, and its arrays."""
    pytest.importorskip("rdkit")
    draw = np.random.default_rng(0)
    lines = ["smiles,oxygens"]
    for _ in range(240):
        parts = draw.choice(["C", "C", "C(O)", "C(N)", "C(Cl)", "O", "N"], draw.integers(3, 8))
        smiles = "C" + "".join(parts) + "C"
        lines.append(f"{smiles},{smiles.count('O')}")
    table = tmp_path_factory.mktemp("planted") / "oxygens.csv"
    table.write_text("\n".join(lines), encoding="utf-8")
    found = train_source(
        table, ["schedule.epochs=25", "schedule.batch_size=16", "schedule.learning_rate=0.003"],
        runs=1, seed=0,
    )  # fmt: skip
    where = "molecules/oxygens/specformer/"
    arrays = {
        name.removeprefix(where): array
        for name, array in found.outcome.arrays.items()
        if name.startswith(where)
    }
    return found, arrays


def test_contributions_point_to_the_group_that_is_counted(planted):
    found, arrays = planted
    assert found.result["test"]["mean"] < 0.5
    shares = np.split(arrays["drawn/contributions"], arrays["drawn/sizes"].cumsum()[:-1])
    oxygen, other = [], []
    for smiles, own in zip(arrays["drawn/smiles"], shares, strict=True):
        letters = smiles.replace("Cl", "X").replace("(", "").replace(")", "")
        assert len(letters) == len(own)
        for letter, share in zip(letters, own, strict=True):
            (oxygen if letter == "O" else other).append(share)
    assert len(oxygen) > 10
    assert np.mean(oxygen) > 0.5
    assert np.mean(oxygen) > 3 * np.mean(np.abs(other))


def test_what_is_drawn_is_what_the_model_predicts(planted):
    _, arrays = planted
    errors = np.abs(np.subtract(*arrays["drawn/told"].T))
    worst = arrays["drawn/worst"]

    assert worst.tolist() == [True] * 6 + [False] * 6
    assert errors[worst].min() >= errors[~worst].max()
    counted = [smiles.count("O") for smiles in arrays["drawn/smiles"]]
    np.testing.assert_allclose(arrays["drawn/told"][:, 0], counted)


class Summed(torch.nn.Module):
    """A model whose output is the sum of its atoms' embeddings: each adds its own."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms = Embedded()

    def forward(self, batch):
        embedded = self.atoms(batch)
        out = embedded.new_zeros(batch.num_graphs, 1)
        return out.index_add(0, batch.graph, embedded)


class Embedded(torch.nn.Module):
    def forward(self, batch):
        return batch.nodes[:, :1].double()


def test_of_a_sum_each_node_contributes_its_part():
    kinds = np.array([[0], [5], [2], [7], [1]])
    graphs = GraphSet([3, 2], [2, 1], [[0, 1, 0], [1, 2, 1]], node_feat=kinds, y=[[0.0], [1.0]])
    store = GraphStore.build(graphs, decompose_many(graphs))

    for graph, own in ((0, [0, 5, 2]), (1, [7, 1])):
        found = contributions(Placed(Summed(), "highest", CPU), store, graph)
        np.testing.assert_allclose(found, np.array(own) - kinds.mean(), rtol=1e-6)


def test_errors_are_binned_by_size():
    sizes, errors = np.array([2, 2, 3, 9, 9, 9]), np.array([1.0, 3.0, 5.0, 1.0, 2.0, 6.0])

    bins = _by_size(sizes, errors)

    assert bins[:, 2].sum() == 6
    np.testing.assert_allclose((bins[:, 2] * bins[:, 3]).sum(), errors.sum())
    assert (bins[:, 0] <= bins[:, 1]).all()
    assert _by_size(np.array([4, 4]), np.array([1.0, 2.0])).tolist() == [[4, 4, 2, 1.5]]


def test_graphs_too_large_or_lost_are_not_drawn():
    drawn, worst = _extremes(np.array([0.1, 9.0, np.nan, 0.5, 0.2]), np.array([5, 500, 5, 5, 5]))

    assert drawn.tolist() == [3, 0]
    assert worst.tolist() == [True, False]


GRAPHS = small_set(40)
CHOSEN = np.array([3, 0, 17])


def model() -> GraphSpecformer:
    torch.manual_seed(0)
    return GraphSpecformer([3], [1], 8, 1, num_layers=1, num_heads=2, transformer_dropout=0.5)


@pytest.mark.parametrize("matrix", ["laplacian", "adjacency-with-loops"])
def test_responses_and_attention_of_every_graph(matrix) -> None:
    ours, spectra = model().train(), decompose_many(GRAPHS, matrix=matrix)
    found = filter_pictures(ours, spectra, CHOSEN, matrix)
    ours.eval()
    filt = ours.filters[0]
    values = [spectra[graph][0] for graph in CHOSEN]
    with torch.no_grad():
        responses = torch.cat([filt(each) for each in values])
    np.testing.assert_allclose(found["response"], responses.numpy(), rtol=1e-5)
    drawn = torch.cat(values) if matrix == "laplacian" else 1 - torch.cat(values)
    np.testing.assert_allclose(found["eigenvalues"], drawn.clamp(0, 2).numpy(), atol=1e-6)


def test_attention_is_condensed_over_all_graphs_together() -> None:
    ours, spectra = model().eval().double(), decompose_many(GRAPHS)
    found = filter_pictures(ours, spectra, CHOSEN, "laplacian")["attention"]
    state = state_of(ours.filters[0].encoder)
    total, count = torch.zeros(2, 3, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for graph in CHOSEN:
        values = spectra[graph][0].double()
        bands = torch.bucketize(values, torch.tensor([2 / 3, 4 / 3]).double(), right=True)
        own = torch.bincount(bands, minlength=3).double()
        total += own[:, None] * reference.condensed_attention(state, values, 2)
        count += own
    assert (count > 0).all()
    np.testing.assert_allclose(found, (total / count[:, None]).detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-6)


def test_a_model_without_filters_has_no_pictures() -> None:
    gin = GRAPH_BASELINES["gin"]([3], [1], 8, 1)
    assert filter_pictures(gin, decompose_many(GRAPHS), CHOSEN, "laplacian") == {}


def test_without_attention_there_is_none_to_draw() -> None:
    bare = GraphSpecformer([3], [1], 8, 1, num_heads=2, attention=False)
    found = filter_pictures(bare, decompose_many(GRAPHS), CHOSEN, "laplacian")
    assert found["attention"].shape == (0, 3, 3)
