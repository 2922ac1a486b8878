r"""Links of one graph: which train, validate and test, and pairs of nodes without a link."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.datasets.splits import Split
from specformer.datasets.structural_features import STRUCTURAL, with_structural_features
from specformer.errors import ConfigError
from specformer.graphs import Graph

_PROTOCOL = re.compile(r"random-(\d+)-(\d+)-(\d+)")


class NonLinks:
    """Draws pairs of different nodes without an edge, with equal chances, on the device.

    Pair (u, v) of n nodes has the number u n + v. ``free[i]`` counts the free numbers before the
    i-th taken one, in order; a binary search in it finds the r-th free pair. So no draw is
    rejected, and nothing waits for the host.
    """

    def __init__(self, adjacency: sp.csr_array, device: torch.device | str = "cpu") -> None:
        self._nodes = int(adjacency.shape[0])
        rows, columns = (ends.astype(np.int64) for ends in adjacency.nonzero())
        loops = np.arange(self._nodes) * (self._nodes + 1)
        taken = np.unique(np.concatenate([rows * self._nodes + columns, loops]))
        #: The number of free pairs; (u, v) and (v, u) count as two.
        self.count = self._nodes**2 - len(taken)
        self._free = torch.as_tensor(taken - np.arange(len(taken))).to(device)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw pairs ``[2, count]``; without a generator, by the device's own."""
        number = torch.randint(self.count, (count,), device=self._free.device, generator=generator)
        number = number + torch.searchsorted(self._free, number, right=True)
        return torch.stack([number // self._nodes, number % self._nodes])


@dataclass(frozen=True)
class LinkSplit:
    """A graph's links in three parts, and as many pairs without a link as are held out.

    Args:
        parts: masks over the links, in the order of :func:`links_of`.
        graph: the graph with the training links alone, the only one that models see.
        train, val, test: links ``[2, count]`` of each part.
        val_others, test_others: pairs that are not links of the whole graph.
    """

    parts: Split
    graph: Graph
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    val_others: np.ndarray
    test_others: np.ndarray


def links_of(graph: Graph) -> np.ndarray:
    """Every edge between two nodes once, ``[2, links]``, the lower node first, in order."""
    upper = sp.csr_array(sp.triu(graph.adjacency, 1))
    upper.sort_indices()
    return np.stack(upper.nonzero()).astype(np.int64)


def split_links(graph: Graph, protocol: str, seed: int) -> LinkSplit:
    """Draw the parts; ``"random-85-5-10"`` trains on 85%, validates on 5% and tests on 10%.

    Structural features are computed from the training links alone.
    """
    links, shares = links_of(graph), _shares(protocol)
    total = links.shape[1]
    val, test = (round(share * total) for share in shares)
    if not min(val, test, total - val - test) > 0:
        raise ConfigError(
            f"{graph.name}: {total} edges are too few for split={protocol}; every part needs one."
        )
    others = NonLinks(graph.adjacency)
    if not others.count:
        raise ConfigError(f"{graph.name}: all nodes are linked to one another; no link is missing.")
    order = np.random.default_rng(seed).permutation(total)
    held = val + test
    parts = Split.of_numbers(total, order[held:], order[:val], order[val:held])
    drawn = others.draw(held, torch.Generator().manual_seed(seed)).numpy()
    return LinkSplit(
        parts,
        _without(graph, links[:, ~parts.train]),
        train=links[:, parts.train],
        val=links[:, parts.val],
        test=links[:, parts.test],
        val_others=drawn[:, :val],
        test_others=drawn[:, val:],
    )


def _shares(protocol: str) -> tuple[float, float]:
    """The shares of the validation and the test part."""
    found = _PROTOCOL.fullmatch(protocol)
    per_cent = [int(part) for part in found.groups()] if found else []
    if sum(per_cent) != 100 or 0 in per_cent:
        raise ConfigError(
            f"split {protocol!r}: links are split by three percentages above 0 that add up to 100, "
            "as in random-85-5-10."
        )
    return per_cent[1] / 100, per_cent[2] / 100


def _without(graph: Graph, links: np.ndarray) -> Graph:
    """The graph without these links, and without labels and masks of its nodes."""
    ends = np.concatenate([links, links[::-1]], axis=1)
    held_out = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), graph.adjacency.shape)
    adjacency = sp.csr_array(graph.adjacency - graph.adjacency.multiply(held_out))
    adjacency.eliminate_zeros()
    nothing = dict.fromkeys(("y", "class_names", "train_mask", "val_mask", "test_mask"))
    left = replace(graph, adjacency=adjacency, **nothing)  # type: ignore[arg-type]
    return with_structural_features(left) if graph.feature_names == STRUCTURAL else left
