r"""Named ways to split labelled nodes into training, validation and test."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specformer.errors import ConfigError
from specformer.graphs import Graph
from specformer.graphs.graph import MASKS

logger = logging.getLogger(__name__)

#: Protocols by name; ``kfold-5`` stands for any number of folds.
PROTOCOLS = ("stratified-60-20-20", "random-60-20-20", "kfold-5", "geom-gcn", "official")
_FOLDS = re.compile(r"kfold-(\d+)")
#: One fold to test on, one to validate on, and at least one to train on.
_FEWEST_FOLDS = 3

#: Sets whose files hold the ten splits of Pei et al. (2020); masks of other files are their own.
GEOM_GCN_SETS = ("cora", "citeseer", "pubmed", "chameleon", "squirrel", "actor")


@dataclass(frozen=True)
class Split:
    """Boolean masks ``[n]`` with a fingerprint that identifies the split in every result."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray

    @classmethod
    def of_numbers(cls, size: int, *parts: Any) -> Split:
        """The split of ``size`` nodes or graphs from the numbers in each of the three parts."""
        masks = np.zeros((3, size), dtype=bool)
        for mask, numbers in zip(masks, parts, strict=True):
            mask[np.asarray(numbers, dtype=np.int64)] = True
        return cls(*masks)

    @property
    def by_name(self) -> dict[str, np.ndarray]:
        """The parts, as messages call them."""
        return {"training": self.train, "validation": self.val, "test": self.test}

    @property
    def is_whole(self) -> bool:
        """Whether every part has a node."""
        return bool(self.train.any() and self.val.any() and self.test.any())

    @property
    def in_words(self) -> str:
        """The sizes of the parts, in words."""
        sizes = [f"{int(part.sum()):,}" for part in (self.train, self.val, self.test)]
        if not self.is_tested:
            return f"{sizes[0]} train, {sizes[1]} validate, and figures called test are theirs too"
        return f"{sizes[0]} train, {sizes[1]} validate and {sizes[2]} test"

    @property
    def is_tested(self) -> bool:
        """Whether the test part differs from the validation part."""
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

    round(0.6·n/C) nodes of each class train, round(0.2·n) of the rest validate, the remaining ones
    test. Nodes labelled −1 are in no part.

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
    train = np.concatenate(chosen)
    rest = generator.permutation(np.setdiff1d(labelled, train))
    count = round(0.2 * labelled.size)
    return Split.of_numbers(y.size, train, rest[:count], rest[count:])


def stratified_60_20_20(y: np.ndarray, seed: int) -> Split:
    """Split every class by itself: a fifth validates, a fifth tests, the rest trains.

    So all parts have the same shares of classes, and a class of three nodes is in each part. Of a
    class of two nodes one trains and one tests. Nodes labelled −1 are in no part.

    Example:
        >>> y = np.repeat([0, 1], [90, 10])
        >>> [int(part.sum()) for part in (stratified_60_20_20(y, seed=0).test, y == 1)]
        [20, 10]
        >>> int((y[stratified_60_20_20(y, seed=0).test] == 1).sum())
        2
    """
    generator = np.random.default_rng(seed)
    part = np.full(y.size, -1)
    for label in np.unique(y[y >= 0]):
        own = generator.permutation(np.flatnonzero(y == label))
        fifth = max(1, round(0.2 * own.size)) if own.size > 1 else 0
        held = fifth if own.size > 2 else 0
        part[own] = 0
        part[own[fifth : fifth + held]] = 1
        part[own[:fifth]] = 2
    return Split(*(part == number for number in range(3)))


def held_back(members: Sequence[np.ndarray], share: float, seed: int) -> np.ndarray:
    """The numbers of a share of every class to validate on, at least one of a class of two."""
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(own) for own in members]
    taken = [own[: max(1, round(share * own.size)) if own.size > 1 else 0] for own in orders]
    return np.concatenate([*taken, np.empty(0)]).astype(np.int64)


def fold_count(protocol: str) -> int | None:
    """The number of folds of a protocol; None if it is not a cross-validation."""
    found = _FOLDS.fullmatch(protocol)
    if found is None:
        return None
    folds = int(found[1])
    if folds < _FEWEST_FOLDS:
        raise ConfigError(
            f"split {protocol!r}: use at least {_FEWEST_FOLDS} folds, so that one is left to train."
        )
    return folds


def fold_splits(
    groups: Sequence[np.ndarray], size: int, folds: int, count: int, seed: int, name: str
) -> list[Split]:
    """The first ``count`` splits of a cross-validation in which everything is tested once.

    Split i tests on fold i, validates on the next, and trains on the others. ``groups`` holds the
    numbers of each class; each class is spread over all folds.
    """
    known = sum(map(len, groups))
    if known < folds:
        raise ConfigError(f"{name}: {known} labels are too few for {folds} folds; use fewer folds.")
    if count > folds:
        raise ConfigError(f"{name}: {count} runs asked for; {folds} folds allow at most {folds}.")
    generator = np.random.default_rng(seed)
    order = np.concatenate([generator.permutation(group) for group in groups])
    fold = np.full(size, -1)
    fold[order] = np.arange(known) % folds
    parts = [(fold == i, fold == (i + 1) % folds) for i in range(count)]
    return [Split((fold >= 0) & ~test & ~val, val, test) for test, val in parts]


def settled_protocol(graph: Graph, protocol: str, *, named: bool = False) -> str:
    """The protocol that ``"auto"`` means for a graph; any other protocol is returned unchanged.

    A user's file that says which nodes train and test is split that way, any other file class by
    class; ``named`` sets are split as in the paper.
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
#: The share of the training nodes that validates if a file marks no validation nodes.
_VALIDATES = 0.2
#: The number of splits by default.
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
            with: Penn94's five, ogbn-arxiv's one, those of your own file, where a fifth of the
            training nodes validates if it marks no validation nodes; ``"auto"`` is one of them,
            see :func:`settled_protocol`.
        count: how many; None for ten, for all folds, or for all splits of a file with fewer than
            ten. If a file holds a single split, all runs use it.
        seed: the first split's.

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
    # The masks of a file have one name, which results record.
    if graph.train_mask is None or graph.test_mask is None:
        raise ConfigError(
            f"{graph.name}: the file does not mark training and test nodes; use "
            "split=stratified-60-20-20."
        )
    fitting = "geom-gcn" if graph.name in GEOM_GCN_SETS else "official"
    if protocol != fitting:
        raise ConfigError(f"{graph.name}: the masks in its file need split={fitting}.")
    known = _splits_of_masks(graph, seed)
    if len(known) == 1:
        return known * (count or _USUAL)
    if count is not None and count > len(known):
        raise ConfigError(f"{graph.name}: {count} runs asked for, but it has {len(known)} splits.")
    return known[: count or _USUAL]


def _strata(graph: Graph) -> np.ndarray:
    """The classes ``[n]`` to split one by one; all the same for numbers and for several labels."""
    assert graph.y is not None
    return np.where(graph.is_labelled, 0, -1) if graph.num_targets else graph.y


def _splits_of_masks(graph: Graph, seed: int) -> list[Split]:
    """The splits in a graph's masks; nodes without a label are in no part."""
    assert graph.train_mask is not None
    none = np.zeros_like(graph.train_mask)
    masks = (none if getattr(graph, mask) is None else getattr(graph, mask) for mask in MASKS)
    columns = (np.asarray(mask).T & graph.is_labelled for mask in masks)
    splits = [Split(*parts) for parts in zip(*columns, strict=True)]
    for number, split in enumerate(splits):
        if (twice := np.sum([split.train, split.val, split.test], axis=0) > 1).any():
            node = int(twice.argmax())
            where = " and ".join(name for name, part in split.by_name.items() if part[node])
            called = graph.node_ids[node] if graph.node_ids else node
            raise ConfigError(
                f"{graph.name}: split {number} has node {called} in {where}; leave it in one."
            )
    if not any(split.val.any() for split in splits):
        logger.info(
            "%s: its split has no validation part; a fifth of the training nodes validates",
            graph.name,
        )
        strata = _strata(graph)
        for number, split in enumerate(splits):
            groups = [
                np.flatnonzero(split.train & (strata == label)) for label in np.unique(strata)
            ]
            val = np.zeros_like(split.train)
            val[held_back(groups, _VALIDATES, seed)] = True
            splits[number] = Split(split.train & ~val, val, split.test)
    for number, split in enumerate(splits):
        if not split.is_whole:
            empty = next(name for name, part in split.by_name.items() if not part.any())
            raise ConfigError(
                f"{graph.name}: split {number} has no labelled {empty} node; mark some, or use "
                "split=stratified-60-20-20."
            )
    return splits
