r"""Links of one graph: which train, validate and test, and pairs of nodes that are none."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.datasets.features import STRUCTURAL, with_structural_features
from specformer.datasets.splits import Split
from specformer.errors import ConfigError
from specformer.graphs import Graph

_PROTOCOL = re.compile(r"random-(\d+)-(\d+)-(\d+)")


class NonLinks:
    """Pairs of different nodes without an edge, drawn evenly, where the device draws them.

    Pair (u, v) of n nodes has the number u n + v. Of the numbers that are taken, sorted, the i-th
    has ``free[i]`` others before it, which says where the r-th pair that is not taken lies: every
    draw is right at once, and nothing waits for the host.
    """

    def __init__(self, adjacency: sp.csr_array, device: torch.device | str = "cpu") -> None:
        self._nodes = int(adjacency.shape[0])
        rows, columns = (ends.astype(np.int64) for ends in adjacency.nonzero())
        loops = np.arange(self._nodes) * (self._nodes + 1)
        taken = np.unique(np.concatenate([rows * self._nodes + columns, loops]))
        #: How many pairs there are, each in both orders.
        self.count = self._nodes**2 - len(taken)
        self._free = torch.as_tensor(taken - np.arange(len(taken))).to(device)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """So many pairs ``[2, count]``; without a generator, by the device's own."""
        number = torch.randint(self.count, (count,), device=self._free.device, generator=generator)
        number = number + torch.searchsorted(self._free, number, right=True)
        return torch.stack([number // self._nodes, number % self._nodes])


@dataclass(frozen=True)
class LinkSplit:
    """A graph's links in three parts, and as many pairs without a link beside the held-out ones.

    Args:
        parts: masks over the links, in the order of :func:`links_of`.
        graph: the graph with the training links alone. Whatever models know of edges is from it.
        train, val, test: links ``[2, count]`` of each part.
        val_others, test_others: pairs that are no link of the whole graph.
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

    Features of the structure are those of the training links.
    """
    links, shares = links_of(graph), _shares(protocol)
    total = links.shape[1]
    val, test = (round(share * total) for share in shares)
    if not min(val, test, total - val - test) > 0:
        raise ConfigError(f"{graph.name}: {total} edges are too few for split={protocol}.")
    others = NonLinks(graph.adjacency)
    if not others.count:
        raise ConfigError(f"{graph.name}: every two nodes are joined; no link can be missing.")
    order = np.random.default_rng(seed).permutation(total)
    places = {"val": order[:val], "test": order[val : val + test], "train": order[val + test :]}
    parts = {name: np.isin(np.arange(total), own) for name, own in places.items()}
    drawn = others.draw(val + test, torch.Generator().manual_seed(seed)).numpy()
    return LinkSplit(
        Split(**parts),
        _without(graph, links[:, ~parts["train"]]),
        **{name: links[:, mask] for name, mask in parts.items()},
        val_others=drawn[:, :val],
        test_others=drawn[:, val:],
    )


def _shares(protocol: str) -> tuple[float, float]:
    """The shares that validate and test."""
    found = _PROTOCOL.fullmatch(protocol)
    per_cent = [int(part) for part in found.groups()] if found else []
    if sum(per_cent) != 100:
        raise ConfigError(
            f"split {protocol!r}: links are split by percentages that add up to 100, as in "
            "random-85-5-10."
        )
    return per_cent[1] / 100, per_cent[2] / 100


def _without(graph: Graph, links: np.ndarray) -> Graph:
    """The graph without these links, and without what is known of its nodes' labels."""
    ends = np.concatenate([links, links[::-1]], axis=1)
    held_out = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), graph.adjacency.shape)
    adjacency = sp.csr_array(graph.adjacency - graph.adjacency.multiply(held_out))
    adjacency.eliminate_zeros()
    nothing = dict.fromkeys(("y", "class_names", "train_mask", "val_mask", "test_mask"))
    left = replace(graph, adjacency=adjacency, **nothing)  # type: ignore[arg-type]
    return with_structural_features(left) if graph.feature_names == STRUCTURAL else left
