"""The estimator of links: the command line's models, scikit-learn's words."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from tests.cli.command_line import only_json
from tests.tasks.test_link_work import communities
from torch_geometric.data import Data

import specformer as sf
from specformer.errors import GraphError
from specformer.graphs import write_npz

GRAPH = communities()
PAIRS = np.array([[0, 0, 13], [1, 70, 14]])


@pytest.fixture(scope="module")
def fitted() -> sf.LinkPredictor:
    return sf.LinkPredictor("gcn", epochs=60, learning_rate=0.02, random_state=1).fit(GRAPH)


@pytest.mark.parametrize("model", ["specformer", "gcn"])
def test_equals_the_command_line_to_the_bit(call, tmp_path, model) -> None:
    own = sf.LinkPredictor(model, epochs=3, runs=2, random_state=5, device="cpu").fit(GRAPH)
    write_npz(tmp_path / "groups.npz", GRAPH)
    options = ("--seed", 5, "--runs", 2, "--set", "schedule.epochs=3", "--device", "cpu", "--json")
    words = ("train", tmp_path / "groups.npz", "--task", "links", "--model", model)
    found = only_json(call(*words, *options, "--out", "run"))
    assert found["figures"] == own.result_["figures"]
    loaded = sf.load("run")
    assert isinstance(loaded, sf.LinkPredictor)
    for ours, theirs in zip(own.models_, loaded.models_, strict=True):
        state = theirs.state_dict()
        assert all(torch.equal(each, state[name]) for name, each in ours.state_dict().items())
    assert np.array_equal(own.predict_proba(GRAPH, PAIRS), loaded.predict_proba(GRAPH, PAIRS))


def test_scores_are_inner_products_of_outputs(fitted) -> None:
    scores = fitted.decision_function(GRAPH, PAIRS)
    z = fitted._each(GRAPH)[0].double().numpy()
    assert scores == pytest.approx([z[u] @ z[v] for u, v in PAIRS.T], rel=1e-5)
    chances = fitted.predict_proba(GRAPH, PAIRS)
    assert chances[:, 1] == pytest.approx(1 / (1 + np.exp(-scores)), rel=1e-5)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert fitted.predict(GRAPH, PAIRS).tolist() == (scores > 0).astype(int).tolist()


def test_links_within_groups_are_found(fitted) -> None:
    u, v = np.triu_indices(GRAPH.num_nodes, 1)
    within = u // 12 == v // 12
    pairs = np.stack([u, v])
    assert fitted.score(GRAPH, pairs, within) > 0.9
    assert fitted.score(GRAPH, pairs, within) == pytest.approx(
        roc_auc_score(within, fitted.predict_proba(GRAPH, pairs)[:, 1]), abs=1e-3
    )
    found = fitted.missing(GRAPH, 20)
    assert found.shape == (2, 20)
    assert not GRAPH.adjacency[tuple(found)].any()
    assert (found[0] // 12 == found[1] // 12).mean() > 0.9


def test_a_graph_of_pyg_and_one_without_features(tmp_path) -> None:
    ends = torch.as_tensor(np.stack(GRAPH.adjacency.nonzero())).long()
    data = Data(x=torch.as_tensor(GRAPH.x).float(), edge_index=ends)
    links = sf.LinkPredictor("gcn", epochs=3).fit(data)
    assert links.n_features_in_ == 6
    assert links.predict(data, data.edge_index).shape == (ends.shape[1],)
    bare = sf.LinkPredictor("gcn", epochs=3).fit(Data(edge_index=ends, num_nodes=72))
    assert bare.n_features_in_ == 0
    saved = sf.load(bare.save(tmp_path / "run"))
    graph = Data(edge_index=ends, num_nodes=72)
    assert np.array_equal(saved.predict_proba(graph, PAIRS), bare.predict_proba(graph, PAIRS))
    assert "links" in bare.report(tmp_path / "other").read_text()


def test_parameters_and_what_is_wrong(fitted) -> None:
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        again.predict(GRAPH, PAIRS)
    for pairs in (PAIRS.T, PAIRS[0], PAIRS.astype(float)):
        with pytest.raises(GraphError, match=r"whole numbers of shape \[2, count\]"):
            fitted.predict(GRAPH, pairs)
    with pytest.raises(GraphError, match="numbers of nodes from 0 to 71"):
        fitted.predict(GRAPH, PAIRS + 60)
