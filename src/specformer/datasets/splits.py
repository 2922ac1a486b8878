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
PROTOCOLS = ("random-60-20-20", "kfold-5", "geom-gcn", "official")
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


def settled_protocol(graph: Graph, protocol: str) -> str:
    """The protocol that ``"auto"`` is on a graph, or the one that is named.

    A file of one's own that says which nodes train, validate and test is taken at its word; named
    sets, and files that say nothing, are split at random.
    """
    if protocol != "auto":
        return protocol
    missing = [mask for mask in MASKS if getattr(graph, mask) is None]
    if graph.name in GEOM_GCN_SETS or len(missing) == 3:
        return "random-60-20-20"
    if missing:
        logger.warning("%s: has no %s, so its other masks are not used", graph.name, missing[0])
        return "random-60-20-20"
    logger.info("%s: its own split is used (split=official)", graph.name)
    return "official"


#: How many there are unless someone says, or the file holds fewer.
_USUAL = 10


def make_splits(graph: Graph, protocol: str, count: int | None, seed: int) -> list[Split]:
    """``count`` splits of a graph's labelled nodes by a named protocol.

    Args:
        graph: with labels.
        protocol: ``"random-60-20-20"`` draws them as :func:`random_60_20_20` does, with the seeds
            ``seed``, ``seed + 1``, …; ``"kfold-5"`` tests on each of five folds in turn, see
            :func:`fold_splits`; ``"geom-gcn"`` takes the ten of Pei et al. (2020) in the
            files of ``GEOM_GCN_SETS``; ``"official"`` takes the masks that any other file comes
            with: Penn94's five, ogbn-arxiv's one, those of a file of your own; ``"auto"`` is
            one of them, see :func:`settled_protocol`.
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
    if protocol == "random-60-20-20":
        classes = _strata(graph)
        drawn = [random_60_20_20(classes, seed + number) for number in range(count or _USUAL)]
        if not all(split.is_whole for split in drawn):
            labels = classes[classes >= 0]
            of = "" if graph.num_targets else f" of {len(np.unique(labels))} classes"
            raise ConfigError(
                f"{graph.name}: {len(labels)} labelled nodes{of} are too few to split."
            )
        return drawn
    _check_protocol(graph, protocol)
    known = _splits_of_masks(graph)
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
    if any(getattr(graph, mask) is None for mask in MASKS):
        raise ConfigError(
            f"{graph.name}: the file holds no train, validation and test masks; "
            "use split=random-60-20-20."
        )
    fitting = "geom-gcn" if graph.name in GEOM_GCN_SETS else "official"
    if protocol != fitting:
        raise ConfigError(f"{graph.name}: the masks in its file are split={fitting}.")


def _splits_of_masks(graph: Graph) -> list[Split]:
    """The splits in a graph's masks; nodes without a label are in no part."""
    columns = (np.asarray(getattr(graph, mask)).T & graph.is_labelled for mask in MASKS)
    splits = [Split(*parts) for parts in zip(*columns, strict=True)]
    for number, split in enumerate(splits):
        if not split.is_whole:
            parts = {"training": split.train, "validation": split.val, "test": split.test}
            empty = next(name for name, part in parts.items() if not part.any())
            raise ConfigError(
                f"{graph.name}: split {number} has no labelled {empty} node; mark some, or use "
                "split=random-60-20-20."
            )
        if (split.test & (split.train | split.val)).any() or (split.train & split.val).any():
            raise ConfigError(f"{graph.name}: split {number} has a node in two of its parts.")
    return splits
