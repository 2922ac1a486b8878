r"""A random forest on counts of fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.argument_checks import check_arguments
from specformer.nn.pretrained import Pretrained, constructor_arguments
from specformer.spectrum.many.packed_graphs import PackedGraphs, as_packed

#: Values of leaves: means of a target, shares of ones, or shares of every class of one target.
Leaves = Literal["numbers", "ones", "classes"]

#: Shares are kept this far from 0 and 1, whose logits are infinite.
_LEAST = 1e-12


class FragmentForest(Pretrained):
    r"""Random forests trained by scikit-learn, one per target, stored as arrays.

    From `"Random Forests" <https://doi.org/10.1023/A:1010933404324>`_. With :math:`v_t(x)` the
    value of the leaf that a fingerprint x reaches in tree t of T,

    .. math::
        f(x) = \frac1T \sum_t v_t(x)

    Outputs are like those of every model: numbers for regression, logits for classification.

    Args:
        out_channels: number of targets, or of classes of one target.
        leaves: values of the leaves: ``"numbers"``, ``"ones"`` or ``"classes"``.
        num_trees: number T of trees per target.
        fingerprint: length of the fingerprints (:func:`specformer.graphs.fragment_counts`).
        num_nodes: number of nodes of all trees together.
        depth: depth of the deepest tree.
        columns: columns of categories of the nodes, and of the bonds, in the training graphs.

    Shapes: a batch of B graphs with fingerprints; output ``[B, out_channels]``.
    """

    def __init__(
        self,
        out_channels: int,
        leaves: Leaves,
        num_trees: int,
        fingerprint: int,
        num_nodes: int,
        depth: int,
        columns: Sequence[int],
    ) -> None:
        super().__init__()
        self.config = constructor_arguments(locals())
        check_arguments(FragmentForest, self.config, depth=0)
        self.fingerprint, self.depth = fingerprint, depth
        targets, width = (1, out_channels) if leaves == "classes" else (out_channels, 1)
        self.threshold = _fixed(num_nodes)
        self.value = _fixed(num_nodes, width)
        for name, shape in (("feature", num_nodes), ("left", num_nodes), ("right", num_nodes)):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("roots", torch.zeros(targets, num_trees, dtype=torch.int64))
        self.readout = _Link(leaves, out_channels)

    def forward(self, batch: PackedGraphs) -> Tensor:
        batch = as_packed(batch, self.config)
        if batch.fingerprints is None:
            raise ConfigError(
                f"the graphs have no fingerprints: pack them with fingerprint={self.fingerprint}."
            )
        return self.outputs(batch.fingerprints)

    def outputs(self, counts: Tensor) -> Tensor:
        """Outputs ``[B, out_channels]`` for fingerprints ``[B, fingerprint]``."""
        left, right, feature, roots = (
            cast(Tensor, getattr(self, name)) for name in ("left", "right", "feature", "roots")
        )
        place = roots.flatten().expand(len(counts), -1)
        for _ in range(self.depth):  # a leaf leads to itself
            is_left = counts.gather(1, feature[place]) <= self.threshold[place]
            place = torch.where(is_left, left[place], right[place])
        mean = self.value[place].unflatten(1, roots.shape).mean(dim=2)
        return self.readout(mean.flatten(1))

    @classmethod
    def grown(
        cls,
        counts: np.ndarray,
        targets: np.ndarray,
        leaves: Leaves,
        out_channels: int,
        columns: Sequence[int],
        *,
        num_trees: int = 200,
        max_features: float | None = None,
        min_samples_leaf: int = 1,
        seed: int = 0,
        threads: int = 1,
    ) -> Self:
        """Train forests by scikit-learn.

        Args:
            counts: fingerprints ``[n, size]``.
            targets: ``[n, targets]``, NaN for missing values; each target has its own forest.
            leaves: values of the leaves.
            out_channels: number of targets, or of classes of one target.
            columns: columns of categories of the nodes, and of the bonds.
            num_trees: number of trees per target.
            max_features: share of the columns that a split considers; by default a third for
                numbers, and the square root of their number for classes.
            min_samples_leaf: smallest number of molecules in a leaf.
            seed: random seed.
            threads: number of trees that are trained in parallel; does not change the result.
        """
        options: dict[str, Any] = {
            "n_estimators": num_trees,
            "min_samples_leaf": min_samples_leaf,
            "random_state": seed,
            "n_jobs": threads,
            "max_features": max_features or (1 / 3 if leaves == "numbers" else "sqrt"),
        }
        width = out_channels if leaves == "classes" else 1
        trees = [
            tree for column in targets.T for tree in _grow(counts, column, leaves, width, options)
        ]
        sizes = np.array([len(tree["value"]) for tree in trees])
        starts = np.append(0, sizes.cumsum())[:-1]
        joined = {name: np.concatenate([tree[name] for tree in trees]) for name in _ARRAYS}
        for name in ("left", "right"):
            joined[name] += np.repeat(starts, sizes)
        depth = max(int(tree["depth"]) for tree in trees)
        size, num_nodes = counts.shape[1], int(sizes.sum())
        forest = cls(out_channels, leaves, num_trees, size, num_nodes, depth, columns)
        state = {name: torch.from_numpy(array) for name, array in joined.items()}
        forest.load_state_dict({**state, "roots": torch.from_numpy(starts.reshape(-1, num_trees))})
        return forest.eval()


class _Link(nn.Module):
    """Outputs from values of leaves: numbers, or the logits of shares."""

    def __init__(self, leaves: Leaves, out_features: int) -> None:
        super().__init__()
        self.leaves, self.out_features = leaves, out_features

    def forward(self, mean: Tensor) -> Tensor:
        if self.leaves == "numbers":
            return mean
        return mean.logit(_LEAST) if self.leaves == "ones" else mean.clamp_min(_LEAST).log()


_ARRAYS = ("feature", "threshold", "left", "right", "value")


def _grow(
    counts: np.ndarray, target: np.ndarray, leaves: Leaves, width: int, options: dict[str, Any]
) -> Sequence[dict[str, np.ndarray]]:
    """The trees of one target as arrays; if all its values are missing, single leaves of 0."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    known = ~np.isnan(target)
    if not known.any():
        nothing = {name: np.zeros(1, dtype=np.int64) for name in ("feature", "left", "right")}
        leaf = {**nothing, "threshold": np.zeros(1), "value": np.zeros((1, width))}
        return [{**leaf, "depth": np.array(0)}] * int(options["n_estimators"])
    if leaves == "numbers":
        grown = RandomForestRegressor(**options).fit(counts[known], target[known])
        return [_arrays(each.tree_, each.tree_.value[:, 0]) for each in grown.estimators_]
    grown = RandomForestClassifier(**options).fit(counts[known], target[known].astype(np.int64))
    # Classes that are missing in the training set get a share of 0.
    every = max(2, width)
    spread = np.eye(every)[grown.classes_.astype(np.int64)]
    columns = slice(1, 2) if leaves == "ones" else slice(None)
    return [
        _arrays(each.tree_, (each.tree_.value[:, 0] @ spread)[:, columns])
        for each in grown.estimators_
    ]


def _arrays(tree: Any, value: np.ndarray) -> dict[str, np.ndarray]:
    is_leaf = tree.children_left < 0
    own = np.arange(tree.node_count)
    return {
        "feature": np.where(is_leaf, 0, tree.feature).astype(np.int64),
        "threshold": np.where(is_leaf, 0.0, tree.threshold),
        "left": np.where(is_leaf, own, tree.children_left),
        "right": np.where(is_leaf, own, tree.children_right),
        "value": value,
        "depth": np.array(tree.max_depth),
    }


def _fixed(*shape: int) -> nn.Parameter:
    """A parameter without gradient, in scikit-learn's precision."""
    return nn.Parameter(torch.zeros(*shape, dtype=torch.float64), requires_grad=False)
