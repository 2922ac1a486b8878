"""Many graphs in scikit-learn's words."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from tests.cli.command_line import only_json
from torch_geometric.data import Batch, Data

import specformer as sf
from specformer.errors import ConfigError, GraphError, RunError
from specformer.graphs import graph_set_from_pyg, write_graph_set

SMALL = {"model.hidden_channels": 16, "model.num_layers": 2, "schedule.batch_size": 32}
QUICK = {"epochs": 12, "learning_rate": 0.005, "settings": SMALL, "device": "cpu"}


def rings_and_paths(count: int = 40) -> tuple[list[Data], list[str]]:
    graphs, names = [], []
    for number in range(count):
        size = 4 + number % 5
        nodes = torch.arange(size)
        ends = torch.stack([nodes, (nodes + 1) % size])
        ring = number % 2 == 0
        x = torch.full((size, 1), int(ring))
        graphs.append(Data(x=x, edge_index=ends if ring else ends[:, :-1]))
        names.append("ring" if ring else "path")
    return graphs, names


def test_classes_of_graphs(tmp_path):
    graphs, names = rings_and_paths()
    own = sf.GraphClassifier(**{**QUICK, "epochs": 40}).fit(graphs, names)
    assert own.classes_.tolist() == ["path", "ring"]
    assert own.score(graphs, names) > 0.9
    chances = own.predict_proba(Batch.from_data_list(graphs))
    assert chances.sum(axis=1) == pytest.approx(np.ones(40))
    assert own.n_features_in_ == 1
    own.report(tmp_path / "run")
    for other in (sf.load(tmp_path / "run"), copy.deepcopy(own)):
        assert np.array_equal(other.predict_proba(graphs), own.predict_proba(graphs))
        assert other.predict(graphs).tolist() == own.predict(graphs).tolist()


def test_minus_one_is_a_class_and_nan_among_words_is_none():
    graphs, names = rings_and_paths()
    numbers = np.arange(40) % 3 - 1
    own = sf.GraphClassifier(**{**QUICK, "epochs": 2}).fit(graphs, numbers)
    assert own.classes_.tolist() == [-1, 0, 1]
    assert own.score(graphs, numbers) == accuracy_score(numbers, own.predict(graphs))
    own = sf.GraphClassifier(**{**QUICK, "epochs": 2}).fit(graphs, [float("nan"), *names[1:]])
    assert own.classes_.tolist() == ["path", "ring"]
    with pytest.raises(GraphError, match="pass y here, too"):
        own.score(graphs)


def test_search_over_ranges_of_numpy():
    graphs, names = rings_and_paths(12)
    ranges = {"epochs": np.arange(1, 3), "learning_rate": np.logspace(-3, -2, 2)}
    model = sf.GraphClassifier("gin", settings=SMALL, device="cpu")
    search = GridSearchCV(model, ranges, cv=2, error_score="raise").fit(graphs, names)
    assert search.best_estimator_.result_["split"] == "given"
    assert search.best_estimator_.predict(graphs).shape == (12,)


def test_targets_of_the_graphs_themselves():
    graphs, names = rings_and_paths()
    for graph, name in zip(graphs, names, strict=True):
        graph.y = torch.tensor([float(name == "ring")])
    assert sf.GraphClassifier(**QUICK).fit(graphs).classes_.tolist() == [0, 1]
    several = np.stack([np.arange(40) % 2, np.arange(40) % 3 == 0], axis=1)
    labels = sf.GraphClassifier(**QUICK).fit(graphs, several)
    assert labels.predict(graphs).shape == labels.predict_proba(graphs).shape == (40, 2)
    three = sf.GraphClassifier(**QUICK).fit(graphs, np.arange(40) % 3)
    assert three.predict_proba(graphs).shape == (40, 3)


def test_numbers_of_edges_are_learned_from(call, tmp_path):
    """The target is the mean length of the edges, which nothing else tells of."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number, graph in enumerate(rings_and_paths(120)[0]):
        lengths = torch.rand(graph.num_edges, 1, generator=generator) + number % 7
        y = lengths.mean().view(1)
        graphs.append(Data(graph.x, graph.edge_index, edge_attr=lengths, y=y))
    own = sf.GraphRegressor(**{**QUICK, "epochs": 20, "random_state": 3}).fit(graphs[:90])
    assert own.score(graphs[90:], [float(graph.y) for graph in graphs[90:]]) > 0.9
    own.save(tmp_path / "run")
    assert np.array_equal(sf.load(tmp_path / "run").predict(graphs), own.predict(graphs))
    bare = [Data(graph.x, graph.edge_index) for graph in graphs]
    with pytest.raises(RunError, match="0 numbers of bonds, the model was trained on 1"):
        own.predict(bare)
    with pytest.raises(ConfigError, match="edges have 1 numbers each, which gin does not take"):
        sf.GraphRegressor("gin", **QUICK).fit(graphs)
    # The command line reads the same from PyG's file, and from its own.
    write_graph_set("mine.npz", graph_set_from_pyg(graphs))
    torch.save(graphs, "mine.pt")  # noqa: TID251 - as users have them
    changes = {**SMALL, "schedule.epochs": 2}
    options = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    found = []
    for name in ("mine.npz", "mine.pt"):
        out = ("--out", f"{name}-run", "--device", "cpu", "--json")
        found.append(only_json(call("train", name, *options, *out))["test"]["values"])
    assert found[0] == found[1]


def test_scores_by_the_targets_that_graphs_have():
    graphs = rings_and_paths(30)[0]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number % 3 if number else torch.nan])
    labels = np.arange(1, 30) % 3
    own = sf.GraphClassifier("forest", random_state=0).fit(graphs)
    assert own.score(graphs) == accuracy_score(labels, own.predict(graphs[1:]))
    weight = np.arange(30)
    weighted = accuracy_score(labels, own.predict(graphs[1:]), sample_weight=weight[1:])
    assert own.score(graphs, sample_weight=weight) == weighted
    given = [None, *labels.tolist()]
    assert own.score(graphs, given) == own.score(graphs)
    assert own.score(graphs, given, weight) == weighted
    with pytest.raises(GraphError, match="y must have 30 rows, not 29"):
        own.score(graphs, labels)
    numbers = sf.GraphRegressor("forest", random_state=0).fit(graphs)
    assert numbers.score(graphs, [np.nan, *labels.tolist()]) == numbers.score(graphs)
    expected = r2_score(labels, numbers.predict(graphs[1:]))
    assert numbers.score(graphs) == pytest.approx(expected)
    with pytest.raises(GraphError, match="the graphs have no targets; pass y"):
        own.score(rings_and_paths(4)[0])


def test_a_forest_is_saved_and_knows_its_columns(tmp_path, caplog):
    graphs, names = rings_and_paths(30)
    own = sf.GraphClassifier("forest", random_state=0).fit(graphs, names)
    own.save(tmp_path / "forest")
    again = sf.load(tmp_path / "forest")
    assert np.array_equal(again.predict_proba(graphs), own.predict_proba(graphs))
    assert again.n_features_in_ == own.n_features_in_ == 1
    wide = [Data(graph.x.expand(-1, 2), graph.edge_index) for graph in graphs]
    with pytest.raises(RunError, match="2 features of atoms, the model was trained on 1"):
        own.predict(wide)
    assert not caplog.text
    numbers = [Data(torch.rand(len(graph.x), 2), graph.edge_index) for graph in graphs]
    sf.GraphClassifier("forest", random_state=0).fit(numbers, names)
    assert "a forest ignores the numbers of nodes and edges" in caplog.text


@pytest.fixture
def esol(shared_data) -> pd.DataFrame:
    pytest.importorskip("rdkit")
    return pd.read_csv(shared_data / "esol.csv").iloc[:160]


def test_cross_validation_and_grid_search_on_solubility(esol):
    smiles, y = esol["smiles"], esol["logSolubility"].to_numpy()
    folds = KFold(2, shuffle=True, random_state=0)
    scores = cross_val_score(sf.GraphRegressor(**QUICK), smiles, y, cv=folds)
    assert (scores > 0).all()  # better than the mean
    grid = {"learning_rate": [1e-6, 0.005]}
    search = GridSearchCV(sf.GraphRegressor(**QUICK), grid, cv=folds)
    search.fit(smiles.tolist(), y)
    assert search.best_params_ == {"learning_rate": 0.005}
    assert search.best_estimator_.predict(["CCO"]).shape == (1,)


def test_every_form_of_molecules_is_the_same(esol):
    own = sf.GraphRegressor(**{**QUICK, "epochs": 2}).fit(esol["smiles"], esol["logSolubility"])
    expected = own.predict(esol["smiles"].tolist())
    for form in (esol, esol[["smiles"]], esol["smiles"], esol["smiles"].to_numpy()):
        assert np.array_equal(own.predict(form), expected)


def test_a_column_of_smiles_is_a_list_of_them():
    pytest.importorskip("rdkit")
    smiles, y = ["CCO", "CC", "CCC", "CO"] * 5, [1, 2, 3, 4] * 5
    own = sf.GraphRegressor(**{**QUICK, "epochs": 2}).fit(np.array(smiles)[:, None], y)
    again = sf.GraphRegressor(**{**QUICK, "epochs": 2}).fit(smiles, y)
    for column in (np.array(smiles)[:, None], np.array(smiles, dtype=object)[:, None]):
        assert np.array_equal(own.predict(column), again.predict(smiles))


def test_atoms_that_nobody_learned_from_get_the_mean(esol, caplog):
    smiles, y = ["CCO", "CC", "CCC", "CO"] * 5, [1, 2, 3, 4] * 5
    own = sf.GraphRegressor(**{**QUICK, "epochs": 2}).fit(smiles, y)
    usual, strange = own.predict(["CCCO", "[U]"])
    assert strange == pytest.approx(own.result_["base"][0])
    assert usual != strange
    assert "1 of 2 graphs are predicted by the training mean: [U] has an atom" in caplog.text


def test_what_cannot_be_is_said():
    graphs, names = rings_and_paths(8)
    with pytest.raises(GraphError, match="the graphs have no targets; pass y"):
        sf.GraphRegressor().fit(graphs)
    with pytest.raises(GraphError, match="y has 3 labels for 8 graphs"):
        sf.GraphClassifier().fit(graphs, names[:3])
    with pytest.raises(GraphError, match="fewer than two graphs have a label"):
        sf.GraphClassifier().fit(graphs, names[:1] + [None] * 7)
    with pytest.raises(GraphError, match="is one text; pass a list of SMILES"):
        sf.GraphRegressor().fit("CCO", [1.0])
    for key in ("split", "targets"):  # a part of the graphs validates, and y has the targets
        with pytest.raises(ConfigError, match=f"settings.'{key}'. would change nothing"):
            sf.GraphClassifier(settings={key: ["a"] if key == "targets" else "scaffold"}).fit(
                graphs, names
            )
    with pytest.raises(GraphError, match="no column of SMILES"):
        sf.GraphRegressor().fit(pd.DataFrame({"a": [1], "b": [2]}), [1.0])
    both = pd.DataFrame({"reactant_smiles": ["CC"], "product_smiles": ["CO"]})
    with pytest.raises(GraphError, match="several columns of SMILES, 'reactant_smiles', 'product"):
        sf.GraphRegressor().fit(both, [1.0])
    with pytest.raises(GraphError, match="row 0: 'None' is not text"):
        sf.GraphRegressor().fit([None, "CC", "CO"], [1.0, 2.0, 3.0])
