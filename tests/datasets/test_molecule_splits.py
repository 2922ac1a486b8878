"""Splits of sets of graphs: whole, disjoint, repeatable, and by scaffold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specformer.datasets.molecule_splits import (
    graph_folds,
    graph_split,
    random_80_10_10,
    resampled_splits,
    scaffold_split,
    scaffolds,
    settled_graph_protocol,
)
from specformer.datasets.splits import Split
from specformer.errors import ConfigError
from specformer.graphs import GraphSet, read_molecules


def atoms(count: int, **fields: object) -> GraphSet:
    return GraphSet(np.ones(count, int), np.zeros(count, int), [], **fields)  # type: ignore[arg-type]


def parts_of(split: Split) -> list[int]:
    return [int(mask.sum()) for mask in (split.train, split.val, split.test)]


@pytest.mark.parametrize(
    ("count", "parts"), [(100, [80, 10, 10]), (13, [11, 1, 1]), (3, [1, 1, 1])]
)
def test_a_random_split_is_a_partition(count: int, parts: list[int]) -> None:
    split = random_80_10_10(atoms(count), seed=0)
    assert parts_of(split) == parts
    assert (split.train.astype(int) + split.val + split.test == 1).all()


def test_seeds_repeat_and_differ() -> None:
    graphs = atoms(60)
    prints = [random_80_10_10(graphs, seed).fingerprint for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("seed", range(5))
def test_of_several_targets_the_one_known_of_most_is_in_every_part(seed: int) -> None:
    y = np.full((40, 2), np.nan)
    y[:3, 0], y[2:, 1] = 1.0, np.arange(38) % 10 == 0
    split = random_80_10_10(atoms(40, y=y), seed)
    assert (split.train.astype(int) + split.val + split.test == 1).all()
    for part in (split.train, split.val, split.test):
        assert set(y[part, 1]) >= {0.0, 1.0}


def test_graphs_without_any_target_are_in_no_part() -> None:
    y = np.full((20, 2), np.nan)
    y[5:, 0] = 1.0
    split = random_80_10_10(atoms(20, y=y), seed=0)
    used = split.train | split.val | split.test
    assert used.tolist() == [False] * 5 + [True] * 15
    with pytest.raises(ConfigError, match="2 graphs are too few to split; at least 3"):
        random_80_10_10(atoms(3, y=[1.0, np.nan, 2.0]), seed=0)
    with pytest.raises(ConfigError, match="1 graph is too few to split"):
        random_80_10_10(atoms(3, y=[1.0, np.nan, np.nan]), seed=0)


@pytest.mark.parametrize(
    ("classes", "parts"),
    [([33, 27], [48, 6, 6]), ([3, 3], [2, 2, 2]), ([50, 3, 2], [43, 6, 6]), ([2, 1], [1, 1, 1])],
)
def test_every_part_has_every_class_that_it_can_have(classes, parts) -> None:
    y = np.repeat(np.arange(len(classes)), classes)
    enough = {label for label, count in enumerate(classes) if count >= 3}
    prints = set()
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(y))
        split = random_80_10_10(atoms(len(y), y=y[order]), seed)
        assert parts_of(split) == parts
        assert (split.train.astype(int) + split.val + split.test == 1).all()
        for part in (split.train, split.val, split.test):
            assert set(y[order][part].tolist()) >= enough
        prints.add(split.fingerprint)
    assert len(prints) > 1


def test_numbers_are_split_as_they_come() -> None:
    for y in (np.arange(60.0), np.arange(60) % 10, np.random.default_rng(0).random(60)):
        assert parts_of(random_80_10_10(atoms(60, y=y), seed=0)) == [48, 6, 6]


@pytest.mark.parametrize(("training", "held"), [(40, 4), (4, 1), (2, 1), (1_600_000, 150_000)])
def test_where_test_targets_are_secret_the_validation_part_is_tested_on(training, held) -> None:
    """The paper's rule for PCQM4Mv2, whose 3.4 million training graphs leave 150,000."""
    count = training + 10
    y = np.ones((count, 1))
    y[-5:] = np.nan
    train, valid, test = np.split(np.arange(count), [training, training + 5])
    graphs = atoms(count, y=y, train_idx=train, valid_idx=valid, test_idx=test)
    split, again = (graph_split(graphs, "official", seed) for seed in (0, 1))
    assert np.flatnonzero(split.test).tolist() == valid.tolist()
    assert parts_of(split) == [training - held, held, 5]
    assert (split.train.astype(int) + split.val)[:training].all()
    assert not (split.train | split.val)[training:].any()
    assert split.fingerprint == again.fingerprint


def test_a_single_training_graph_cannot_validate_too() -> None:
    parts = {"train_idx": [0], "valid_idx": [1], "test_idx": [2]}
    graphs = atoms(3, y=[1.0, 2.0, np.nan], **parts)
    with pytest.raises(ConfigError, match="a single training graph cannot be split"):
        graph_split(graphs, "official", seed=0)


def test_the_files_own_split() -> None:
    graphs = atoms(4, train_idx=[3, 0], valid_idx=[1], test_idx=[2])
    split = graph_split(graphs, "official", seed=0)
    assert split.train.tolist() == [True, False, False, True]
    assert parts_of(split) == [2, 1, 1]
    with pytest.raises(ConfigError, match="the file holds no training, validation, test graphs"):
        graph_split(atoms(4), "official", seed=0)
    partly = atoms(4, train_idx=[3, 0], valid_idx=[], test_idx=[2])
    held = graph_split(partly, "official", seed=0)  # one of the training graphs validates
    assert parts_of(held) == [1, 1, 1]
    assert held.test.tolist() == split.test.tolist()
    lonely = atoms(4, train_idx=[3], valid_idx=[], test_idx=[2])
    with pytest.raises(ConfigError, match="the file holds no validation graphs; use split=random"):
        graph_split(lonely, "official", seed=0)
    with pytest.raises(ConfigError, match="split 'random': choose from random-80-10-10, kfold-"):
        graph_split(atoms(4), "random", seed=0)


def test_own_files_are_taken_at_their_word_and_named_sets_are_drawn() -> None:
    told, silent = atoms(4, train_idx=[3, 0], valid_idx=[1], test_idx=[2]), atoms(4)
    assert settled_graph_protocol(told, "auto", named=False) == "official"
    assert settled_graph_protocol(told, "auto", named=True) == "random-80-10-10"
    assert settled_graph_protocol(silent, "auto", named=False) == "random-80-10-10"
    assert settled_graph_protocol(told, "scaffold", named=False) == "scaffold"


class TestScaffolds:
    @pytest.fixture(autouse=True)
    def _chem(self) -> None:
        pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")

    def test_rings_and_what_links_them(self) -> None:
        assert scaffolds(["CCc1ccccc1", "CCO", "OC1CC1Cc1ccncc1"]) == [
            "c1ccccc1",
            "",
            "c1cc(CC2CC2)ccn1",
        ]

    def test_the_commonest_scaffolds_train(self) -> None:
        smiles = ["C1CC1", "Cc1ccccc1", "CC", "Oc1ccccc1", "c1ccccc1"]
        smiles += ["Nc1ccccc1"] * 5 + ["CCO"] + ["C1CCC1"]
        split = scaffold_split(atoms(len(smiles), smiles=tuple(smiles)))
        # Benzenes (8 of 12) train; with the chains (2) that would be more than 80 %, so they
        # validate; cyclopropane still fits into training; cyclobutane fits into neither.
        assert np.flatnonzero(split.train).tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9]
        assert np.flatnonzero(split.val).tolist() == [2, 10]
        assert np.flatnonzero(split.test).tolist() == [11]

    def test_no_scaffold_is_in_two_parts(self, shared_data: Path) -> None:
        graphs = read_molecules(shared_data / "esol.csv").graphs
        split = graph_split(graphs, "scaffold", seed=0)
        assert split.fingerprint == graph_split(graphs, "scaffold", seed=9).fingerprint
        assert parts_of(split) == [902, 113, 113]
        assert graphs.smiles is not None
        names = np.array(scaffolds(graphs.smiles))
        seen = [set(names[mask]) for mask in (split.train, split.val, split.test)]
        assert len(set.union(*seen)) == sum(map(len, seen))

    def test_what_cannot_be_split_is_said(self) -> None:
        with pytest.raises(ConfigError, match="a scaffold split needs SMILES"):
            scaffold_split(atoms(10))
        chains = replace(atoms(10), smiles=("CC",) * 10)
        with pytest.raises(ConfigError, match="is empty, with 1 scaffold in 10"):
            scaffold_split(chains)
        broken = replace(atoms(3), smiles=("CC", "C1CC", "c1ccccc1"))
        with pytest.raises(ConfigError, match="'C1CC' is not a molecule"):
            scaffold_split(broken)

    def test_resampled_ones_keep_scaffolds_together(self, shared_data: Path) -> None:
        graphs = read_molecules(shared_data / "esol.csv").graphs
        drawn = [resampled_splits(graphs, "resampled-scaffold", 2, seed) for seed in range(2)]
        of = np.array(scaffolds(graphs.smiles))
        for split in (each for splits in drawn for each in splits):
            parts = [set(of[mask]) for mask in (split.train, split.val, split.test)]
            assert sum(map(len, parts)) == len(set(of))
            assert min(parts_of(split)[1:]) > 0.09 * len(graphs)
            assert (split.train.astype(int) + split.val + split.test == 1).all()
        np.testing.assert_array_equal(drawn[0][0].test, drawn[0][1].test)
        assert (drawn[0][0].val != drawn[0][1].val).any()
        assert (drawn[0][0].test != drawn[1][0].test).any()
        with pytest.raises(ConfigError, match="a part of the split is empty"):
            resampled_splits(replace(atoms(30), smiles=("CC",) * 30), "resampled-scaffold", 1, 0)

    def test_rdkit_prints_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert scaffolds(["[H+].[Cl-]"]) == [""]  # which RDKit warns of
        assert capfd.readouterr() == ("", "")


def test_resampled_splits_share_their_test_part_and_every_class() -> None:
    y = np.array([*[1.0] * 20, *[0.0] * 40, np.nan])
    splits = resampled_splits(atoms(61, y=y), "resampled", 3, seed=5)
    for split in splits:
        assert parts_of(split) == [48, 6, 6]
        assert (split.train.astype(int) + split.val + split.test == ~np.isnan(y)).all()
        assert [y[part].sum() for part in (split.val, split.test)] == [2, 2]
        np.testing.assert_array_equal(split.test, splits[0].test)
    assert len({split.fingerprint for split in splits}) == 3
    other = resampled_splits(atoms(61, y=y), "resampled", 1, seed=6)
    assert (other[0].test != splits[0].test).any()


def test_folds_spread_two_classes_and_leave_out_what_has_no_target() -> None:
    y = np.array([*[1.0] * 27, *[0.0] * 33, np.nan])
    graphs = atoms(61, y=y)
    splits = graph_folds(graphs, 5, 5, seed=3)
    tested = sum(split.test.astype(int) for split in splits)
    assert tested.tolist() == [1] * 60 + [0]
    for split in splits:
        assert parts_of(split) == [36, 12, 12]
        assert int(y[split.test].sum()) in (5, 6)
