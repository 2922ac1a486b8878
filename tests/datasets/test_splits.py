"""Splits: counts as the reading notes give them, nothing in two parts, a hash that notices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from specformer.datasets import Split, csbm, make_splits, node_graph, random_60_20_20
from specformer.datasets.splits import settled_protocol, stratified_60_20_20
from specformer.errors import ConfigError
from specformer.graphs import Graph


def parts(split: Split) -> list[np.ndarray]:
    return [split.train, split.val, split.test]


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    unlabelled=st.integers(0, 10),
    seed=st.integers(0, 100),
)
def test_counts_as_the_paper_has_them(counts, unlabelled, seed):
    y = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.full(unlabelled, -1)])
    y = np.random.default_rng(seed).permutation(y)
    split = random_60_20_20(y, seed)
    n, classes = sum(counts), len(counts)
    per_class = round(0.6 * n / classes)
    for label, count in enumerate(counts):
        assert split.train[y == label].sum() == min(per_class, count)
    rest = n - split.train.sum()
    assert split.val.sum() == min(round(0.2 * n), rest)
    # Every labelled node is in exactly one part, no other node is in any.
    np.testing.assert_array_equal(np.sum(parts(split), axis=0), (y >= 0).astype(int))


@pytest.mark.parametrize("y", [[0, 1, -1], [0, 1, 0], [0, 1, 2, 3]])
def test_a_few_nodes_are_no_split(y):
    graph = Graph(sp.csr_array((len(y), len(y))), y=np.array(y), name="few")
    known = [label for label in y if label >= 0]
    counted = f"{len(known)} labelled nodes of {len(set(known))} classes"
    with pytest.raises(ConfigError, match=f"few: {counted} are too few to split"):
        make_splits(graph, "random-60-20-20", 2, seed=0)


def test_seeds_choose_the_split():
    y = np.arange(200) % 5
    fingerprints = {random_60_20_20(y, seed).fingerprint for seed in range(10)}
    assert len(fingerprints) == 10
    assert random_60_20_20(y, 3).fingerprint == random_60_20_20(y, 3).fingerprint


def test_cora_counts(shared_data):
    with np.load(shared_data / "cora.npz", allow_pickle=False) as file:
        y = file["y"]
    split = random_60_20_20(y, 0)
    # 2,708 nodes of 7 classes: 232 a class where it has that many, 542 of the rest.
    expected = np.minimum(np.bincount(y), 232)
    np.testing.assert_array_equal(np.bincount(y[split.train]), expected)
    assert split.val.sum() == 542


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("node", [0, 7, 19])
def test_fingerprint_changes_with_any_index(part, node):
    split = random_60_20_20(np.arange(20) % 2, 0)
    changed = [mask.copy() for mask in parts(split)]
    changed[part][node] ^= True
    assert Split(*changed).fingerprint != split.fingerprint


def test_fingerprint_tells_the_parts_apart():
    split = random_60_20_20(np.arange(20) % 2, 0)
    swapped = Split(split.train, split.test, split.val)
    assert swapped.fingerprint != split.fingerprint
    assert len(split.fingerprint) == 16


def masked(name: str, *, splits: int, nodes: int = 30, unlabelled: int = 0) -> Graph:
    """A graph whose file holds that many splits, every node in one part of each."""
    graph = csbm(0.5, num_nodes=nodes)
    part = (np.arange(nodes)[:, None] + np.arange(splits)) % 3
    y = graph.y.copy()
    y[:unlabelled] = -1
    masks = {f"{key}_mask": part == i for i, key in enumerate(("train", "val", "test"))}
    return replace(graph, name=name, y=y, **masks)


def test_geom_gcn_takes_the_masks_of_the_file():
    graph = masked("cora", splits=3)
    for run, split in enumerate(make_splits(graph, "geom-gcn", 2, seed=5)):
        np.testing.assert_array_equal(split.train, graph.train_mask[:, run])
        np.testing.assert_array_equal(split.val, graph.val_mask[:, run])
        np.testing.assert_array_equal(split.test, graph.test_mask[:, run])
    with pytest.raises(ConfigError, match="cora: 4 runs asked for, but it has 3 splits"):
        make_splits(graph, "geom-gcn", 4, seed=0)


def test_a_split_goes_by_the_name_of_the_masks_in_the_file():
    with pytest.raises(ConfigError, match="cora: the masks in its file need split=geom-gcn"):
        make_splits(masked("cora", splits=3), "official", 1, seed=0)
    with pytest.raises(ConfigError, match="penn94: the masks in its file need split=official"):
        make_splits(masked("penn94", splits=5), "geom-gcn", 1, seed=0)
    with pytest.raises(ConfigError, match="choose from auto, stratified-60-20-20, random-60"):
        make_splits(masked("cora", splits=3), "masks", 1, seed=0)


@pytest.mark.parametrize("protocol", ["geom-gcn", "official"])
def test_a_file_without_masks(protocol):
    with pytest.raises(ConfigError, match="does not mark training and test nodes; use"):
        make_splits(csbm(0.5, num_nodes=20), protocol, 1, seed=0)


def test_one_official_split_serves_every_run():
    graph = masked("my-graph", splits=1)
    splits = make_splits(graph, "official", 4, seed=0)
    assert len(splits) == 4
    assert {split.fingerprint for split in splits} == {splits[0].fingerprint}


@pytest.mark.parametrize(("held", "given"), [(1, 10), (5, 5), (12, 10)])
def test_without_a_number_there_are_ten_splits_or_those_of_the_file(held, given):
    graph = masked("penn94", splits=held)
    splits = make_splits(graph, "official", None, seed=0)
    assert len(splits) == given
    np.testing.assert_array_equal(splits[-1].train, graph.train_mask[:, (given - 1) % held])
    assert len(make_splits(graph, "random-60-20-20", None, seed=0)) == 10


def test_nodes_without_a_label_are_in_no_part():
    for split in make_splits(masked("penn94", splits=5, unlabelled=7), "official", 5, seed=0):
        assert not np.any([part[:7] for part in parts(split)])
        assert np.all(np.sum([part[7:] for part in parts(split)], axis=0) == 1)


def test_masks_that_cannot_be_a_split():
    graph = masked("mine", splits=1)
    nothing = np.zeros(graph.num_nodes, dtype=bool)
    with pytest.raises(ConfigError, match="split 0 has no labelled test node; mark some"):
        make_splits(replace(graph, test_mask=nothing), "official", 1, seed=0)
    one = np.arange(graph.num_nodes) == 0
    with pytest.raises(ConfigError, match="split 0 has no labelled validation node; mark some"):
        make_splits(replace(graph, train_mask=one, val_mask=nothing), "official", 1, seed=0)
    both = replace(graph, test_mask=~nothing)
    first = "training" if graph.train_mask[0, 0] else "validation"
    with pytest.raises(ConfigError, match=f"mine: split 0 has node 0 in {first} and test; leave"):
        make_splits(both, "official", 1, seed=0)
    names = tuple(f"n{i}" for i in range(graph.num_nodes))
    everywhere = replace(both, train_mask=~nothing, val_mask=None, node_ids=names)
    with pytest.raises(ConfigError, match="split 0 has node n0 in training and test"):
        make_splits(everywhere, "official", 1, seed=0)


def test_own_masks_are_used_and_named_sets_are_drawn(caplog):
    graph = masked("mine", splits=1)
    assert settled_protocol(graph, "auto") == "official"
    assert settled_protocol(graph, "random-60-20-20") == "random-60-20-20"
    assert settled_protocol(replace(graph, name="cora"), "auto") == "random-60-20-20"
    bare = replace(graph, train_mask=None, val_mask=None, test_mask=None)
    assert settled_protocol(bare, "auto", named=True) == "random-60-20-20"
    assert settled_protocol(bare, "auto") == "stratified-60-20-20"
    assert settled_protocol(replace(graph, val_mask=None), "auto") == "official"
    assert not caplog.messages
    assert settled_protocol(replace(graph, test_mask=None), "auto") == "stratified-60-20-20"
    assert caplog.messages == ["mine: has no test_mask, so its other masks are not used"]


@pytest.mark.parametrize("nothing", [None, np.zeros(30, dtype=bool)])
def test_without_a_validation_part_a_fifth_of_the_training_nodes_validates(nothing, caplog):
    caplog.set_level("INFO")
    graph = replace(masked("mine", splits=1), val_mask=nothing)
    split, again = make_splits(graph, "official", 2, seed=0)
    assert split.fingerprint == again.fingerprint
    np.testing.assert_array_equal(split.test, graph.test_mask[:, 0])
    np.testing.assert_array_equal(split.train | split.val, graph.train_mask[:, 0])
    assert not (split.train & split.val).any()
    for label in (0, 1):  # a fifth of each class
        own = graph.train_mask[:, 0] & (graph.y == label)
        assert (split.val & own).sum() == round(0.2 * own.sum())
    assert "a fifth of the training nodes validates" in caplog.text


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 50)
)  # fmt: skip
def test_every_class_is_split_by_itself(counts, seed):
    y = np.concatenate([np.repeat(np.arange(len(counts)), counts), [-1, -1]])
    split = stratified_60_20_20(y, seed)
    np.testing.assert_array_equal(np.sum(parts(split), axis=0), (y >= 0).astype(int))
    for label, count in enumerate(counts):
        train, val, test = (int((part & (y == label)).sum()) for part in parts(split))
        assert train >= 1
        if count >= 3:
            assert val == test == max(1, round(0.2 * count))
        else:
            assert (val, test) == (0, count - 1)


def test_real_files_go_by_their_protocol(shared_data):
    cora = node_graph("cora", shared_data)
    assert len({split.fingerprint for split in make_splits(cora, "geom-gcn", 10, 0)}) == 10
    filtered = node_graph("chameleon-filtered", shared_data)
    assert len({split.fingerprint for split in make_splits(filtered, "official", 10, 0)}) == 10


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    folds=st.integers(3, 7),
    seed=st.integers(0, 50),
)
def test_folds_test_everything_once_and_spread_every_class(counts, folds, seed):
    y = np.concatenate([np.repeat(np.arange(len(counts)), counts), [-1, -1]])
    graph = Graph(sp.csr_array((len(y), len(y))), y=y, name="own")
    if sum(counts) < folds:
        with pytest.raises(ConfigError, match=f"own: {sum(counts)} labels are too few for"):
            make_splits(graph, f"kfold-{folds}", None, seed)
        return
    splits = make_splits(graph, f"kfold-{folds}", None, seed)
    assert len(splits) == folds
    known = (y >= 0).astype(int)
    np.testing.assert_array_equal(sum(split.test.astype(int) for split in splits), known)
    np.testing.assert_array_equal(sum(split.val.astype(int) for split in splits), known)
    for split in splits:
        np.testing.assert_array_equal(np.sum(parts(split), axis=0), known)
    for label in range(len(counts)):
        tested = [int((split.test & (y == label)).sum()) for split in splits]
        assert max(tested) - min(tested) <= 1
    first, *_ = make_splits(graph, f"kfold-{folds}", 1, seed)
    assert first.fingerprint == splits[0].fingerprint


@pytest.mark.parametrize(
    ("protocol", "count", "message"),
    [
        ("kfold-2", None, "split 'kfold-2': use at least 3 folds, so that one is left to train."),
        ("kfold-5", 6, "own: 6 runs asked for; 5 folds allow at most 5."),
        (
            "kfold",
            None,
            "split 'kfold': choose from auto, stratified-60-20-20, random-60-20-20, kfold-5,",
        ),
    ],
)
def test_folds_that_cannot_be(protocol, count, message):
    graph = Graph(sp.csr_array((20, 20)), y=np.arange(20) % 2, name="own")
    with pytest.raises(ConfigError, match=message):
        make_splits(graph, protocol, count, seed=0)


def test_numbers_are_split_without_regard_to_them():
    y = np.linspace(0.0, 1.0, 50)[:, None]
    y[:5] = np.nan
    graph = replace(csbm(0.5, num_nodes=50), y=y)
    for protocol in ("stratified-60-20-20", "random-60-20-20", "kfold-5"):
        for split in make_splits(graph, protocol, 3, seed=0):
            assert [int(part.sum()) for part in (split.train, split.val, split.test)] == [27, 9, 9]
            assert not (split.train | split.val | split.test)[:5].any()
