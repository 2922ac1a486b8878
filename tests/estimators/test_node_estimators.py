"""Nodes in scikit-learn's words: the same models as the command line's, and the same manners."""

from __future__ import annotations

import copy
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import estimator_checks
from tests.cli.command_line import only_json
from torch_geometric.data import Data

import specformer as sf
from specformer.datasets import csbm, make_splits
from specformer.errors import ConfigError, GraphError, RunError
from specformer.estimators.node_estimators import node_graph_of
from specformer.files import write_json
from specformer.files.documents import read_json, sealed, unsealed
from specformer.graphs import Graph, read_graph, write_npz
from specformer.training.runs.folder import RunFolder

NODES = 120
GRAPH = csbm(0.7, num_nodes=NODES, num_features=6, degree=6.0, signal=12.0, seed=1)
QUICK = {"epochs": 30, "learning_rate": 0.02, "device": "cpu"}
#: One form of Specformer, where the recipe tries several.
OURS = {**QUICK, "settings": {"form": "paper"}}


def fitted() -> sf.NodeClassifier:
    return sf.NodeClassifier("gcn", epochs=2, device="cpu").fit(GRAPH)


#: The checks of scikit-learn that hand no table of numbers to ``fit``.
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)
ESTIMATORS = (sf.NodeClassifier, sf.NodeRegressor, sf.GraphClassifier, sf.GraphRegressor)


def pyg() -> Data:
    ends = torch.as_tensor(np.stack(GRAPH.adjacency.nonzero()).astype(np.int64))
    return Data(x=torch.as_tensor(GRAPH.x), edge_index=ends, y=torch.as_tensor(GRAPH.y))


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("name", CHECKS)
def test_scikit_learns_own_checks(kind, name):
    getattr(estimator_checks, name)(kind.__name__, kind())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_what_is_not_fitted_says_so(kind):
    with pytest.raises(NotFittedError):
        kind().predict([])
    assert "<style>" in kind()._repr_html_()


@pytest.mark.parametrize("model", ["specformer", "gcn"])
def test_equals_the_command_line_to_the_bit(call, model):
    write_npz("graph.npz", GRAPH)
    only_json(
        call(
            "train", "graph.npz", "--model", model, "--runs", "2", "--seed", "5", "--out", "run",
            "--set", "schedule.epochs=30", "--set", "schedule.learning_rate=0.02", "--json",
            "--device", "cpu", *(("--set", "form=paper") if model == "specformer" else ()),
        )
    )  # fmt: skip
    own = sf.NodeClassifier(
        model, runs=2, random_state=5, **(OURS if model == "specformer" else QUICK)
    )
    own.fit(pyg())
    theirs = sf.load("run")
    for one, other in zip(own.models_, theirs.models_, strict=True):
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, other.state_dict()[name])
    assert np.array_equal(own.predict_proba(pyg()), theirs.predict_proba(pyg()))
    assert theirs.classes_.tolist() == [0, 1]
    assert "<th>test</th>" in theirs._repr_html_()
    for each in (own, theirs):
        axes = each.plot(Figure().subplots())
        if model == "gcn":
            assert axes.get_ylabel() == "training loss"
            continue
        spectrum = sf.decompose(GRAPH)
        response = own.models_[0].responses(spectrum)[0].detach().numpy()
        assert len(axes.lines) == response.shape[1]
        for line, head in zip(axes.lines, response.T, strict=True):
            drawn = np.interp(line.get_xdata(), spectrum.eigenvalues, head)
            assert line.get_ydata() == pytest.approx(drawn, abs=1e-3)


def test_every_form_of_a_graph_is_the_same_graph():
    usual = sf.NodeClassifier(**OURS).fit(GRAPH)
    chances = usual.predict_proba(GRAPH)
    network = nx.from_scipy_sparse_array(GRAPH.adjacency)
    for node, (row, label) in enumerate(zip(GRAPH.x, GRAPH.y, strict=True)):
        names = {f"f{column}": float(value) for column, value in enumerate(row)}
        network.nodes[node].update(names | {"label": "cat" if label else "ant"})
    for edge in network.edges:
        del network.edges[edge]["weight"]
    dense = GRAPH.adjacency.toarray()
    ends = np.stack(GRAPH.adjacency.nonzero())
    words = np.array(["ant", "cat"])[GRAPH.y]
    for data, y in (
        (pyg(), None),
        (network, None),
        ((GRAPH.x, GRAPH.adjacency), words),
        ((GRAPH.x, dense), words),
        ((GRAPH.x, ends), words.tolist()),
        ((csr_array(GRAPH.x), ends), words),
    ):
        own = sf.NodeClassifier(**OURS).fit(data, y)
        assert own.predict_proba(data) == pytest.approx(chances, abs=2e-3)
        assert set(own.predict(data)) <= set(own.classes_.tolist())
        assert own.n_features_in_ == 6


def test_classes_labels_and_unknown_ones():
    y = np.array(["ant", "cat"], dtype=object)[GRAPH.y]
    y[:10] = None
    longer = {**OURS, "epochs": 100}
    own = sf.NodeClassifier(**longer).fit((GRAPH.x, GRAPH.adjacency), y)
    assert own.classes_.tolist() == ["ant", "cat"]
    assert own.score(GRAPH, np.array(["ant", "cat"])[GRAPH.y]) > 0.8
    own_words = replace(GRAPH, y=np.where(GRAPH.y == 1, 0, 1), class_names=("cat", "ant"))
    assert own.score(own_words) == own.score(GRAPH, np.array(["ant", "cat"])[GRAPH.y])
    unknown = replace(own_words, y=np.where(np.arange(NODES) < 60, own_words.y, -1))
    half = accuracy_score(y[10:60], own.predict(GRAPH)[10:60])
    assert (
        own.score(unknown, mask=np.arange(NODES) >= 10)
        == half
        == own.score(GRAPH, y, mask=np.arange(60))
    )
    several = np.stack([GRAPH.y, 1 - GRAPH.y], axis=1)
    # By ROC-AUC the first epoch that ranks all nodes right would be kept, whatever its threshold.
    longer["settings"] = {"form": "paper", "monitor": "loss"}
    labels = sf.NodeClassifier(**longer).fit(GRAPH, several)
    assert labels.predict(GRAPH).shape == (NODES, 2)
    assert labels.score(GRAPH, several) > 0.8


@pytest.mark.parametrize(
    ("dtype", "words"), [("string", ["a", "b"]), ("boolean", [False, True]), ("Int64", [0, 1])]
)
def test_missing_labels_of_pandas(dtype, words):
    """NA is neither equal to itself nor different, and made a traceback of fit."""
    y = pd.Series([words[label] for label in GRAPH.y], dtype=dtype)
    expected = fitted().fit(GRAPH, np.array(y.tolist()), mask=range(5, NODES))
    y[:5] = pd.NA
    own = fitted().fit(GRAPH, y, mask=range(5, NODES))
    assert own.classes_.tolist() == words
    assert np.array_equal(own.predict_proba(GRAPH), expected.predict_proba(GRAPH))
    known = np.array(y[5:].tolist())
    rest = range(5, NODES)
    assert own.score(GRAPH, y, mask=range(NODES)) == accuracy_score(known, own.predict(GRAPH)[rest])


def test_tensors_of_any_kind():
    """Of a user's own model: with gradients, in half precision, sparse."""
    expected = fitted().predict_proba(GRAPH)
    x, adjacency = torch.tensor(GRAPH.x), GRAPH.adjacency
    y = torch.tensor(GRAPH.y)
    for given in (x.clone().requires_grad_(), x.to_sparse()):
        own = fitted().fit((given, adjacency), y)
        assert np.array_equal(own.predict_proba((given, adjacency)), expected)
    brief = fitted().fit((x.bfloat16(), adjacency), y)
    assert brief.predict((x.bfloat16(), adjacency)).shape == (NODES,)


def test_a_fit_leaves_nothing_behind():
    """Neither the names of an earlier fit's columns, nor another state of random numbers."""
    own, frame = fitted(), pd.DataFrame(GRAPH.x, columns=list("abcdef"))
    torch.manual_seed(0)
    own.fit((frame, GRAPH.adjacency), GRAPH.y)
    assert own.feature_names_in_.tolist() == list("abcdef")
    own.fit((GRAPH.x, GRAPH.adjacency), GRAPH.y)
    assert not hasattr(own, "feature_names_in_")
    drawn = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(3))


def test_a_mask_decides_what_is_learned_from():
    mask = np.arange(NODES) < 80
    own = sf.NodeClassifier(**OURS).fit(GRAPH, mask=mask)
    assert own.score(GRAPH) == accuracy_score(GRAPH.y[80:], own.predict(GRAPH)[80:])
    hidden = GRAPH.y.copy()
    hidden[80:] = 1 - hidden[80:]  # what is not learned from does not matter
    other = sf.NodeClassifier(**OURS).fit(GRAPH, hidden, mask=np.flatnonzero(mask))
    assert np.array_equal(own.predict_proba(GRAPH), other.predict_proba(GRAPH))
    everything = sf.NodeClassifier(**OURS).fit(GRAPH, mask=np.ones(NODES, bool))
    assert everything.score(GRAPH) > 0.8


def test_a_mask_is_recorded_as_the_split_that_it_is(caplog):
    train = np.arange(GRAPH.num_nodes) % 2 == 0
    clf = sf.NodeClassifier("gcn", epochs=2).fit(
        GRAPH, mask=train & (GRAPH.y == 0) | (GRAPH.y == 1)
    )
    assert clf.result_["split"] == "given"
    assert "(given)" in clf.result_["nodes"][0]["description"]
    assert "no test node is of class '1'" in caplog.text
    assert "masks of your own" not in caplog.text  # they are


def test_a_mask_of_few_nodes():
    own = np.concatenate([np.flatnonzero(GRAPH.y == label)[:2] for label in (0, 1)])
    clf = sf.NodeClassifier("gcn", epochs=2).fit(GRAPH, mask=own)  # one validates, of two classes
    assert clf.predict(GRAPH).shape == (GRAPH.num_nodes,)
    with pytest.raises(GraphError, match="fewer than two nodes have a label"):
        sf.NodeClassifier("gcn").fit(GRAPH, mask=own[:1])


def test_masks_of_the_data_are_taken():
    (split,) = make_splits(GRAPH, "random-60-20-20", 1, seed=3)
    data = pyg()
    data.train_mask, data.val_mask, data.test_mask = (
        torch.as_tensor(part) for part in (split.train, split.val, split.test)
    )
    own = sf.NodeClassifier(**OURS).fit(data)
    assert own.result_["nodes"][0]["splits"] == [split.fingerprint]
    assert own.score(data) == pytest.approx(own.result_["test"]["mean"], abs=1e-6)


def test_a_node_is_scored_by_the_models_that_did_not_learn_from_it():
    folds = sf.NodeClassifier(
        "gcn", epochs=5, runs=5, settings={"split": "kfold-5"}, device="cpu"
    ).fit(GRAPH)
    splits = make_splits(GRAPH, "kfold-5", 5, seed=0)
    assert folds.result_["nodes"][0]["splits"] == [split.fingerprint for split in splits]
    predicted = np.full(NODES, -1)
    for split, *one in zip(splits, folds.models_, folds._predictor.prepared, strict=True):
        own = copy.copy(folds)
        own._predictor = replace(folds._predictor, models=one[:1], prepared=one[1:])
        predicted[split.test] = own.predict(GRAPH)[split.test]
    assert folds.score(GRAPH) == accuracy_score(GRAPH.y, predicted)
    three = make_splits(GRAPH, "random-60-20-20", 3, seed=3)
    masks = {
        f"{part}_mask": np.stack([getattr(split, part) for split in three], axis=1)
        for part in ("train", "val", "test")
    }
    data = replace(GRAPH, **masks)  # the first of its splits is learned from
    first = sf.NodeClassifier("gcn", epochs=5, device="cpu").fit(data)
    tested = three[0].test
    assert first.score(data) == accuracy_score(GRAPH.y[tested], first.predict(data)[tested])


def test_numbers():
    y = 2.0 + 30.0 * GRAPH.x[:, 0]
    own = sf.NodeRegressor("mlp", epochs=150, device="cpu", metric="mae").fit(GRAPH, y)
    assert own.result_["metric"] == "mae"
    (split,) = make_splits(
        replace(GRAPH, y=y[:, None], class_names=None), "stratified-60-20-20", 1, 0
    )
    left = split.test
    assert own.score(GRAPH, y) == pytest.approx(r2_score(y[left], own.predict(GRAPH)[left]))
    assert own.score(GRAPH, y) > 0.3
    assert own.score(GRAPH) == own.score(GRAPH, y)
    steps = replace(GRAPH, class_names=("-20", "7.5"))
    told = np.array([-20.0, 7.5])[GRAPH.y]
    own = sf.NodeRegressor("mlp", epochs=20, device="cpu").fit(steps)
    left = own._graph.test_mask[:, 0]
    assert own.score(steps) == pytest.approx(r2_score(told[left], own.predict(GRAPH)[left]))
    both = sf.NodeRegressor(**OURS).fit(GRAPH, np.stack([y, -y], axis=1))
    assert both.predict(GRAPH).shape == (NODES, 2)


def test_score_compares_with_the_labels_that_fit_got():
    for two in (["dog", "cat"], ["1", "2"], [False, True]):
        labels = np.array(two)[GRAPH.y]
        own = sf.NodeClassifier("gcn", epochs=3, device="cpu").fit(GRAPH, labels)
        assert own.score(GRAPH) == own.score(GRAPH, labels)
    other = csbm(0.7, num_nodes=NODES + 2, num_features=6, signal=12.0)
    with pytest.raises(GraphError, match="pass y here, too"):
        own.score(other)


def test_nan_in_a_list_of_words_is_no_label():
    words = [float("nan") if i % 7 == 0 else "cat" if y else "dog" for i, y in enumerate(GRAPH.y)]
    own = sf.NodeClassifier("gcn", epochs=2, device="cpu").fit(GRAPH, words)
    assert own.classes_.tolist() == ["cat", "dog"]
    numbers = [pd.NA if i % 7 == 0 else float(y) for i, y in enumerate(GRAPH.y)]
    own = sf.NodeRegressor("gcn", epochs=2, device="cpu").fit(GRAPH, numbers)
    assert np.isfinite(own.predict(GRAPH)).all()


@pytest.mark.parametrize("way", ["gcn", "specformer"])
def test_fit_needs_neither_float32_nor_gradients_by_default(way):
    settings = {} if way == "gcn" else {"form": "paper"}
    expected = sf.NodeClassifier(way, epochs=2, device="cpu", settings=settings).fit(GRAPH)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            own = sf.NodeClassifier(way, epochs=2, device="cpu", settings=settings).fit(GRAPH)
            assert np.array_equal(own.predict_proba(GRAPH), expected.predict_proba(GRAPH))
            assert torch.is_inference_mode_enabled()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_saved_loaded_copied_and_reported(tmp_path):
    own = sf.NodeClassifier(**{**QUICK, "settings": {"form": "paper", "model.num_heads": 2}}).fit(
        GRAPH
    )
    page = own.report(tmp_path / "run")
    assert "Classifying nodes" in page.read_text()
    for other in (sf.load(tmp_path / "run"), copy.deepcopy(own)):
        assert np.array_equal(other.predict_proba(GRAPH), own.predict_proba(GRAPH))
        assert other.n_features_in_ == 6
    fresh = clone(own)
    assert fresh.get_params() == own.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(GRAPH)
    with pytest.raises(RunError, match="finished run"):
        own.save(tmp_path / "run")
    with pytest.raises(RunError, match="a loaded estimator cannot be saved; copy its folder"):
        sf.load(tmp_path / "run").save(tmp_path / "other")


@pytest.mark.parametrize("mask", [None, np.arange(NODES) < 80])
def test_a_loaded_estimator_scores_and_fits_as_the_one_that_was_saved(tmp_path, mask):
    changed = {"settings": {"baseline.hidden_channels": 8}, "learning_rate": 0.05, "metric": "f1"}
    own = sf.NodeClassifier("gcn", epochs=3, device="cpu", random_state=4, **changed)
    own.fit(GRAPH, mask=mask)
    other = sf.load(own.save(tmp_path / "run"))
    tested = own._graph.test_mask[:, 0]
    assert other.score(GRAPH) == own.score(GRAPH)
    assert own.score(GRAPH) == accuracy_score(GRAPH.y[tested], own.predict(GRAPH)[tested])
    again = clone(other).fit(GRAPH, mask=mask)
    assert np.array_equal(again.predict_proba(GRAPH), own.predict_proba(GRAPH))


def test_scores_of_a_run_that_does_not_say_what_it_learned_from(call, caplog):
    write_npz("graph.npz", GRAPH)
    call(
        "train",
        "graph.npz",
        "--model",
        "gcn",
        "--set",
        "schedule.epochs=2",
        "--runs",
        "1",
        "--out",
        "run",
    )
    loaded = sf.load("run")
    loaded.score(GRAPH, mask=np.arange(10))
    assert not caplog.records
    assert loaded.score(GRAPH) == accuracy_score(GRAPH.y, loaded.predict(GRAPH))
    assert "nodes that it learned from may count" in caplog.text


@pytest.mark.parametrize(
    "classes", [["01", "1"], ["1", "2"], [False, True], [1.0, 2.0], [3, 7], ["a", "b"]]
)
def test_classes_keep_their_type_when_loaded(tmp_path, classes):
    y = np.array(classes)[GRAPH.y]
    own = sf.NodeClassifier("gcn", epochs=2, device="cpu").fit(GRAPH, y)
    other = sf.load(own.save(tmp_path / "run"))
    assert other.classes_.dtype == own.classes_.dtype == y.dtype
    assert np.array_equal(other.predict(GRAPH), own.predict(GRAPH))
    assert other.score(GRAPH, y) == own.score(GRAPH, y)


def test_parameters_may_be_numbers_of_numpy():
    quick = {"epochs": 3, "learning_rate": 0.25, "runs": 2}
    own = sf.NodeClassifier("gcn", settings={"baseline.hidden_channels": 8}, device="cpu", **quick)
    numpy = sf.NodeClassifier(
        "gcn",
        settings={"baseline.hidden_channels": np.int64(8)},
        device="cpu",
        epochs=np.int64(3),
        learning_rate=np.float32(0.25),
        runs=np.int32(2),
        random_state=np.int64(0),
    )
    expected = own.fit(GRAPH).predict_proba(GRAPH)
    assert np.array_equal(numpy.fit(GRAPH).predict_proba(GRAPH), expected)
    column = sf.NodeClassifier("gcn", settings=own.settings, device="cpu", **quick)
    assert np.array_equal(column.fit(GRAPH, GRAPH.y[:, None]).predict_proba(GRAPH), expected)
    assert column.score(GRAPH, GRAPH.y[:, None]) == own.score(GRAPH)


def test_a_frame_of_words_and_dates_is_read_as_a_file_is(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({
        "age": [30.0, None, 29.5] * 40,
        "city": pd.Categorical(["Wels", "Graz", None] * 40),
        "paid": [True, False, True] * 40,
        "born": pd.to_datetime(["1970-01-03", "NaT", "1970-01-31"] * 40),
        "visits": pd.array([1, None, 3] * 40, dtype="Int64"),
    })  # fmt: skip
    frame.to_csv(tmp_path / "nodes.csv", index_label="id")
    ends = np.stack(GRAPH.adjacency.nonzero())
    rows = "".join(f"{one},{other}\n" for one, other in ends.T)
    (tmp_path / "edges.csv").write_text("source,target\n" + rows)
    held, read = node_graph_of((frame, GRAPH.adjacency)), read_graph(tmp_path)
    np.testing.assert_array_equal(held.x, read.x)
    assert (held.feature_names, held.feature_words) == (read.feature_names, read.feature_words)
    clf = sf.NodeClassifier("mlp", epochs=2, device="cpu").fit((frame, GRAPH.adjacency), GRAPH.y)
    assert list(clf.feature_names_in_) == list(frame.columns)
    turned = (frame[frame.columns[::-1]], GRAPH.adjacency)  # columns are found by name
    np.testing.assert_array_equal(clf.predict(turned), clf.predict((frame, GRAPH.adjacency)))
    cells = np.array([["a", 1.5], ["b", None]] * 60, dtype=object)
    assert node_graph_of((cells, GRAPH.adjacency)).feature_words == {"0": ("a", "b")}


def test_without_features_those_of_the_structure_are_used():
    bare = Graph(GRAPH.adjacency, y=GRAPH.y)
    own = sf.NodeClassifier(**OURS).fit(bare)
    assert own.n_features_in_ == 0
    assert own.predict(Graph(GRAPH.adjacency)).shape == (NODES,)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: sf.NodeClassifier("gnc").fit(GRAPH), "unknown model 'gnc'"),
        (lambda: sf.NodeClassifier(settings={"no": 1}).fit(GRAPH), "unknown key 'no'"),
        (lambda: sf.NodeClassifier().fit(replace(GRAPH, y=None)), "no labels to learn"),
        (lambda: sf.NodeClassifier().fit((GRAPH.x[:5], GRAPH.adjacency)), "5 rows of features"),
        (lambda: sf.NodeClassifier().fit(GRAPH.x, GRAPH.y), r"linked; pass \(X, adjacency\)"),
        (
            lambda: sf.NodeClassifier().fit((None, GRAPH.adjacency)),
            r"\[nodes, features\], not \[\]",
        ),
        (lambda: sf.NodeClassifier().fit(GRAPH, mask=[True]), r"mask must have shape \[120\]"),
        (lambda: sf.NodeClassifier().fit(GRAPH, mask=[200]), "numbers of nodes below 120"),
        (lambda: sf.NodeClassifier().fit(GRAPH, np.arange(NODES) / 7), "learn numbers with a regr"),
        (lambda: sf.NodeClassifier().fit(GRAPH, 2 * GRAPH.y - 1), "call the classes 0 and 1"),
        (lambda: sf.NodeClassifier().fit(GRAPH, mask=[]), "mask is empty"),
        (lambda: sf.NodeClassifier().fit(GRAPH, mask=GRAPH.y), "mask holds 0 and 1"),
        (lambda: sf.NodeClassifier(runs=2.0).fit(GRAPH), "runs=2.0 must be a whole number"),
        (lambda: sf.NodeClassifier(random_state=-1).fit(GRAPH), "random_state=-1 must not"),
        (lambda: sf.NodeClassifier(validation_fraction=1).fit(GRAPH), "above 0 and below 1"),
        (lambda: sf.NodeClassifier(settings="epochs=3").fit(GRAPH), "settings must map keys"),
        (
            lambda: sf.NodeClassifier(epochs=3, settings={"schedule.epochs": 7}).fit(GRAPH),
            r"epochs and settings\['schedule.epochs'\]: give one",
        ),
        (
            lambda: sf.NodeClassifier(settings={"task": "regression"}).fit(GRAPH),
            "--task and --set task=…: give one",
        ),
        (
            lambda: sf.NodeClassifier(settings={"split": "kfold-5"}).fit(GRAPH, mask=range(50)),
            "settings.'split'. would change nothing",
        ),
        (lambda: sf.load("comparison"), "is not a run of `specformer train`"),
        (lambda: fitted().score(GRAPH, [0, 1]), "y must have 120 rows, not 2"),
        (lambda: fitted().score(GRAPH, [None] * NODES), "none of the nodes that count"),
        (lambda: sf.NodeRegressor().fit(GRAPH, ["a"] * NODES), "y must hold numbers"),
        (lambda: sf.NodeRegressor().fit(GRAPH, [1.0, 2.0]), "y must have 120 rows"),
    ],
)
def test_what_cannot_be_is_said(here, act, message):
    RunFolder.create("comparison", {"command": "compare"})
    with pytest.raises((ConfigError, GraphError, RunError), match=message):
        act()


def test_other_features_are_refused():
    own = sf.NodeClassifier("mlp", epochs=2, device="cpu").fit(GRAPH)
    with pytest.raises(RunError, match="3 features where the model was trained on 6"):
        own.predict((GRAPH.x[:, :3], GRAPH.adjacency))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model/000/targets.json", {"mean": [None]}),
        ("model/000/targets.json", {"std": {}}),
        ("result.json", {"val": {}}),
        ("result.json", {"settings": []}),
    ],
)
def test_a_folder_of_another_shape_is_one_sentence(tmp_path, name, change):
    numbers = replace(GRAPH, y=GRAPH.x[:, :1].copy(), class_names=None)
    saved = sf.NodeRegressor("gcn", epochs=2, device="cpu").fit(numbers).save(tmp_path / "run")
    states = RunFolder(saved).verified()
    assert (states["data.npz"], states[name]) == ("intact", "intact")
    (saved / "checksums.json").unlink()
    document = unsealed(read_json(saved / name))
    write_json(saved / name, sealed(document | change))
    with pytest.raises(RunError, match=str(saved)):
        sf.load(saved)
