r"""Named ways to split labelled nodes into training, validation and test."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specformer.errors import ConfigError
from specformer.graphs import Graph
from specformer.graphs.graph import MASKS

logger = logging.getLogger(__name__)

#: Protocols by name; ``kfold-5`` stands for any number of folds.
PROTOCOLS = ("stratified-60-20-20", "random-60-20-20", "kfold-5", "geom-gcn", "official")
_FOLDS = re.compile(r"kfold-(\d+)")
#: One to test on, one to validate on, and the rest to train on.
_FEWEST_FOLDS = 3

#: Sets whose files carry the ten splits of Pei et al. (2020); any other file's masks are its own.
GEOM_GCN_SETS = ("cora", "citeseer", "pubmed", "chameleon", "squirrel", "actor")


@dataclass(frozen=True)
class Split:
    """Boolean masks ``[n]`` with a fingerprint that identifies the split in every result."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray

    @property
    def is_whole(self) -> bool:
        """Whether every part has a node."""
        return bool(self.train.any() and self.val.any() and self.test.any())

    @property
    def in_words(self) -> str:
        """How many there are in each part."""
        sizes = [f"{int(part.sum()):,}" for part in (self.train, self.val, self.test)]
        if not self.is_tested:
            return f"{sizes[0]} train, {sizes[1]} validate, and figures called test are theirs too"
        return f"{sizes[0]} train, {sizes[1]} validate and {sizes[2]} test"

    @property
    def is_tested(self) -> bool:
        """Whether others are tested than those that validate."""
        return not np.array_equal(self.val, self.test)

    @property
    def fingerprint(self) -> str:
        """A short hash of the three index lists."""
        digest = hashlib.sha256()
        for mask in (self.train, self.val, self.test):
            digest.update(np.flatnonzero(mask).astype(np.int64).tobytes() + b"|")
        return digest.hexdigest()[:16]


def random_60_20_20(y: np.ndarray, seed: int) -> Split:
    """Split as the paper does.

    round(0.6·n/C) nodes of each class train, round(0.2·n) of the rest validate, what remains
    tests. Nodes labelled −1 are in none of them.

    Example:
        >>> split = random_60_20_20(np.arange(100) % 4, seed=0)
        >>> int(split.train.sum()), int(split.val.sum()), int(split.test.sum())
        (60, 20, 20)
    """
    generator = np.random.default_rng(seed)
    labelled = np.flatnonzero(y >= 0)
    classes = np.unique(y[labelled])
    per_class = round(0.6 * labelled.size / classes.size)
    chosen = [generator.permutation(np.flatnonzero(y == label))[:per_class] for label in classes]
    train = np.zeros(y.shape, dtype=bool)
    train[np.concatenate(chosen)] = True
    rest = generator.permutation(labelled[~train[labelled]])
    count = round(0.2 * labelled.size)
    val, test = np.zeros_like(train), np.zeros_like(train)
    val[rest[:count]] = True
    test[rest[count:]] = True
    return Split(train, val, test)


def stratified_60_20_20(y: np.ndarray, seed: int) -> Split:
    """Split every class by itself: a fifth validates, a fifth tests, the rest trains.

    So all parts are composed as the whole is, and a class of three nodes is in each of them. Of one
    of two nodes one trains and one tests. Nodes labelled −1 are in no part.

    Example:
        >>> y = np.repeat([0, 1], [90, 10])
        >>> [int(part.sum()) for part in (stratified_60_20_20(y, seed=0).test, y == 1)]
        [20, 10]
        >>> int((y[stratified_60_20_20(y, seed=0).test] == 1).sum())
        2
    """
    generator = np.random.default_rng(seed)
    train, val, test = (np.zeros(y.shape, dtype=bool) for _ in range(3))
    for label in np.unique(y[y >= 0]):
        own = generator.permutation(np.flatnonzero(y == label))
        fifth = max(1, round(0.2 * own.size)) if own.size > 1 else 0
        held = fifth if own.size > 2 else 0
        test[own[:fifth]] = True
        val[own[fifth : fifth + held]] = True
        train[own[fifth + held :]] = True
    return Split(train, val, test)


def held_back(members: Sequence[np.ndarray], share: float, seed: int) -> np.ndarray:
    """Numbers of a share of every class, one at least of those with two, to validate on."""
    generator = np.random.default_rng(seed)
    taken = [
        generator.permutation(own)[: max(1, round(share * own.size)) if own.size > 1 else 0]
        for own in members
    ]
    return np.concatenate([*taken, np.empty(0, dtype=np.int64)]).astype(np.int64)


def fold_count(protocol: str) -> int | None:
    """How many folds a protocol has; None if it is no cross-validation."""
    found = _FOLDS.fullmatch(protocol)
    if found is None:
        return None
    folds = int(found[1])
    if folds < _FEWEST_FOLDS:
        raise ConfigError(
            f"split {protocol!r}: at least {_FEWEST_FOLDS} folds are needed, to train on one."
        )
    return folds


def fold_splits(
    groups: Sequence[np.ndarray], size: int, folds: int, count: int, seed: int, name: str
) -> list[Split]:
    """The first ``count`` splits of a cross-validation in which everything is tested once.

    Split i tests on fold i, validates on the next, and trains on the others. ``groups`` are the
    numbers of what is split, class by class; each class is spread over all folds.
    """
    known = sum(map(len, groups))
    if known < folds:
        raise ConfigError(f"{name}: {known} with labels are too few for {folds} folds.")
    if count > folds:
        raise ConfigError(f"{name}: {count} runs asked for, {folds} folds; take as many at most.")
    generator = np.random.default_rng(seed)
    order = np.concatenate([generator.permutation(group) for group in groups])
    fold = np.full(size, -1)
    fold[order] = np.arange(known) % folds
    parts = [(fold == i, fold == (i + 1) % folds) for i in range(count)]
    return [Split((fold >= 0) & ~test & ~val, val, test) for test, val in parts]


def settled_protocol(graph: Graph, protocol: str, *, named: bool = False) -> str:
    """The protocol that ``"auto"`` is on a graph, or the one that is asked for.

    A file of one's own that says which nodes train and test is taken at its word, and one that says
    nothing is split class by class; ``named`` sets are split as the paper does.
    """
    if protocol != "auto":
        return protocol
    missing = [mask for mask in MASKS if getattr(graph, mask) is None]
    drawn = "random-60-20-20" if named else "stratified-60-20-20"
    if graph.name in GEOM_GCN_SETS:
        return "random-60-20-20"
    if len(missing) == len(MASKS):
        return drawn
    if missing not in ([], ["val_mask"]):
        logger.warning("%s: has no %s, so its other masks are not used", graph.name, missing[0])
        return drawn
    logger.info("%s: its own split is used (split=official)", graph.name)
    return "official"


_DRAWN = {"stratified-60-20-20": stratified_60_20_20, "random-60-20-20": random_60_20_20}
#: Of the training nodes, where a file marks none to validate.
_VALIDATES = 0.2
#: How many there are unless someone says, or the file holds fewer.
_USUAL = 10


def make_splits(graph: Graph, protocol: str, count: int | None, seed: int) -> list[Split]:
    """``count`` splits of a graph's labelled nodes by a named protocol.

    Args:
        graph: with labels.
        protocol: ``"stratified-60-20-20"`` and ``"random-60-20-20"`` draw them as
            :func:`stratified_60_20_20` and :func:`random_60_20_20` do, with the seeds
            ``seed``, ``seed + 1``, …; ``"kfold-5"`` tests on each of five folds in turn, see
            :func:`fold_splits`; ``"geom-gcn"`` takes the ten of Pei et al. (2020) in the
            files of ``GEOM_GCN_SETS``; ``"official"`` takes the masks that any other file comes
            with: Penn94's five, ogbn-arxiv's one, those of a file of your own, where a fifth of
            the training nodes validates if none is marked to; ``"auto"`` is one of them, see
            :func:`settled_protocol`.
        count: how many; None for ten, for all folds, or for all of the file's where it holds fewer
            than ten. Where it holds a single split, all runs are given that one.
        seed: of the first drawn.

    Example:
        >>> from specformer.datasets import csbm
        >>> [split.fingerprint for split in make_splits(csbm(0.5), "random-60-20-20", 2, seed=0)]
        ['...', '...']
    """
    if count is not None and count < 1:
        raise ConfigError(f"{count} runs asked for; at least one is needed.")
    protocol = settled_protocol(graph, protocol)
    folds = fold_count(protocol)
    if folds is not None:
        strata = _strata(graph)
        groups = [np.flatnonzero(strata == label) for label in np.unique(strata[strata >= 0])]
        return fold_splits(groups, graph.num_nodes, folds, count or folds, seed, graph.name)
    if protocol not in PROTOCOLS:
        raise ConfigError(f"split {protocol!r}: choose from auto, {', '.join(PROTOCOLS)}.")
    if protocol in _DRAWN:
        classes = _strata(graph)
        drawn = [_DRAWN[protocol](classes, seed + number) for number in range(count or _USUAL)]
        if not all(split.is_whole for split in drawn):
            labels = classes[classes >= 0]
            of = "" if graph.num_targets else f" of {len(np.unique(labels))} classes"
            raise ConfigError(
                f"{graph.name}: {len(labels)} labelled nodes{of} are too few to split; label more, "
                "at least three of a class."
            )
        return drawn
    _check_protocol(graph, protocol)
    known = _splits_of_masks(graph, seed)
    if len(known) == 1:
        return known * (count or _USUAL)
    if count is None:
        return known[:_USUAL]
    if count > len(known):
        raise ConfigError(f"{graph.name}: {count} runs asked for, {len(known)} splits in it.")
    return known[:count]


def _strata(graph: Graph) -> np.ndarray:
    """The classes ``[n]`` that a split takes its share of each; of numbers and labels, one."""
    assert graph.y is not None
    return np.where(graph.is_labelled, 0, -1) if graph.num_targets else graph.y


def _check_protocol(graph: Graph, protocol: str) -> None:
    """Refuse a name that is not that of the masks in the file: results are filed under it."""
    if graph.train_mask is None or graph.test_mask is None:
        raise ConfigError(
            f"{graph.name}: the file does not say which nodes train and test; use "
            "split=stratified-60-20-20."
        )
    fitting = "geom-gcn" if graph.name in GEOM_GCN_SETS else "official"
    if protocol != fitting:
        raise ConfigError(f"{graph.name}: the masks in its file are split={fitting}.")


def _splits_of_masks(graph: Graph, seed: int) -> list[Split]:
    """The splits in a graph's masks; nodes without a label are in no part."""
    assert graph.train_mask is not None
    none = np.zeros_like(graph.train_mask)
    masks = (none if getattr(graph, mask) is None else getattr(graph, mask) for mask in MASKS)
    columns = (np.asarray(mask).T & graph.is_labelled for mask in masks)
    splits = [Split(*parts) for parts in zip(*columns, strict=True)]
    if not any(split.val.any() for split in splits):
        logger.info(
            "%s: its split has no validation part; a fifth of the training nodes validates",
            graph.name,
        )
        splits = [_with_validation(split, _strata(graph), seed) for split in splits]
    for number, split in enumerate(splits):
        if not split.is_whole:
            parts = {"training": split.train, "validation": split.val, "test": split.test}
            empty = next(name for name, part in parts.items() if not part.any())
            raise ConfigError(
                f"{graph.name}: split {number} has no labelled {empty} node; mark some, or use "
                "split=stratified-60-20-20."
            )
        if (split.test & (split.train | split.val)).any() or (split.train & split.val).any():
            raise ConfigError(f"{graph.name}: split {number} has a node in two of its parts.")
    return splits


def _with_validation(split: Split, strata: np.ndarray, seed: int) -> Split:
    """The split with some training nodes of every class to validate on."""
    members = [np.flatnonzero(split.train & (strata == label)) for label in np.unique(strata)]
    val = np.zeros_like(split.train)
    val[held_back(members, _VALIDATES, seed)] = True
    return Split(split.train & ~val, val, split.test)
