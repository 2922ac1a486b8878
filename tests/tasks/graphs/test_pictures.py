"""What a report shows of a filter for many graphs, against filter and attention graph by graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.nn.plain_twin import state_of
from tests.training.small_graphs import small_set

from specformer import GraphSpecformer, reference
from specformer.baselines.graphs import GRAPH_BASELINES
from specformer.spectrum import decompose_many
from specformer.tasks.graphs.pictures import filter_pictures

GRAPHS = small_set(40)
CHOSEN = np.array([3, 0, 17])


def model() -> GraphSpecformer:
    torch.manual_seed(0)
    return GraphSpecformer([3], [1], 8, 1, num_layers=1, num_heads=2, transformer_dropout=0.5)


@pytest.mark.parametrize("matrix", ["laplacian", "adjacency-with-loops"])
def test_responses_and_attention_of_every_graph(matrix) -> None:
    ours, spectra = model().train(), decompose_many(GRAPHS, matrix=matrix)
    found = filter_pictures("here", ours, spectra, CHOSEN, matrix)
    ours.eval()
    filt = ours.filters[0]
    values = [spectra[graph][0] for graph in CHOSEN]
    with torch.no_grad():
        responses = torch.cat([filt(each) for each in values])
    np.testing.assert_allclose(found["here/response"], responses.numpy(), rtol=1e-5)
    drawn = torch.cat(values) if matrix == "laplacian" else 1 - torch.cat(values)
    np.testing.assert_allclose(found["here/eigenvalues"], drawn.clamp(0, 2).numpy(), atol=1e-6)


def test_attention_is_condensed_over_all_graphs_together() -> None:
    ours, spectra = model().eval().double(), decompose_many(GRAPHS)
    found = filter_pictures("here", ours, spectra, CHOSEN, "laplacian")["here/attention"]
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
    assert filter_pictures("here", gin, decompose_many(GRAPHS), CHOSEN, "laplacian") == {}


def test_without_attention_there_is_none_to_draw() -> None:
    bare = GraphSpecformer([3], [1], 8, 1, num_heads=2, attention=False)
    found = filter_pictures("here", bare, decompose_many(GRAPHS), CHOSEN, "laplacian")
    assert found["here/attention"].shape == (0, 3, 3)
