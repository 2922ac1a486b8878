"""Many graphs in scikit-learn's words."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from torch_geometric.data import Batch, Data

import specformer as sf
from specformer.errors import GraphError

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


def test_atoms_that_nobody_learned_from_get_the_mean(esol, caplog):
    smiles, y = ["CCO", "CC", "CCC", "CO"] * 5, [1, 2, 3, 4] * 5
    own = sf.GraphRegressor(**{**QUICK, "epochs": 2}).fit(smiles, y)
    usual, strange = own.predict(["CCCO", "[U]"])
    assert strange == pytest.approx(own.result_["base"][0])
    assert usual != strange
    assert "1 of 2 graphs get the training mean for a prediction: [U] has an atom" in caplog.text


def test_what_cannot_be_is_said():
    graphs, names = rings_and_paths(8)
    with pytest.raises(GraphError, match="no targets to learn; pass y"):
        sf.GraphRegressor().fit(graphs)
    with pytest.raises(GraphError, match="y has 3 labels, and there are 8 graphs"):
        sf.GraphClassifier().fit(graphs, names[:3])
    with pytest.raises(GraphError, match="is one text; pass a list of SMILES"):
        sf.GraphRegressor().fit("CCO", [1.0])
    with pytest.raises(GraphError, match="no column of SMILES"):
        sf.GraphRegressor().fit(pd.DataFrame({"a": [1], "b": [2]}), [1.0])
