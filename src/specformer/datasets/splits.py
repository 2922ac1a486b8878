r"""Named ways to split labelled nodes into training, validation and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from specformer.errors import ConfigError
from specformer.graphs import Graph

#: Protocols by name; ``masks`` takes those that come with the file.
PROTOCOLS = ("random-60-20-20", "masks")


@dataclass(frozen=True)
class Split:
    """Boolean masks ``[n]`` with a fingerprint that identifies the split in every result."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray

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


def make_splits(graph: Graph, protocol: str, count: int, seed: int) -> list[Split]:
    """``count`` splits of a graph's labelled nodes by a named protocol.

    Args:
        graph: with labels.
        protocol: ``"random-60-20-20"`` (seeds ``seed``, ``seed + 1``, …) or ``"masks"``: those in
            the file, such as the ten geom-gcn splits.
        count: how many.
        seed: of the first.
    """
    if count < 1:
        raise ConfigError(f"{count} runs asked for; at least one is needed.")
    if protocol == "random-60-20-20":
        assert graph.y is not None
        return [random_60_20_20(graph.y, seed + number) for number in range(count)]
    if protocol != "masks":
        raise ConfigError(f"split {protocol!r}: choose from {', '.join(PROTOCOLS)}.")
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    if any(mask is None for mask in masks):
        raise ConfigError(f"{graph.name}: the file holds no train, validation and test masks.")
    train, val, test = (np.asarray(mask) for mask in masks)
    if count > train.shape[1]:
        raise ConfigError(f"{graph.name}: {count} runs asked for, {train.shape[1]} splits in it.")
    return [Split(train[:, run], val[:, run], test[:, run]) for run in range(count)]
