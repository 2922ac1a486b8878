r"""Settings of learning links, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specformer.datasets import FeaturePreparation, Split
from specformer.datasets.link_splits import LinkSplit
from specformer.errors import ConfigError
from specformer.graphs import Graph
from specformer.nn.layers.sparse_features import SparseFeatures
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.nodes.node_work import NodeWork, model_input, node_features
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.evaluation.link_objectives import LINK_METRICS, LinkTask


@dataclass(frozen=True)
class LinkRecipe(NodeRecipe):
    """How to learn links: as :class:`NodeRecipe` says, of which labels and batches do not apply.

    Args:
        out_channels: numbers that a model puts out for each node; their inner products are scores.
        metric: ``"rocauc"`` or ``"ap"``, of the validation links.
        split: percentages of the links that train, validate and test.
    """

    out_channels: int = 64
    metric: str = "rocauc"
    split: str = "random-85-5-10"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out_channels < 1:
            raise ConfigError(f"out_channels={self.out_channels} must be at least 1.")
        if self.metric not in LINK_METRICS:
            choices = " or ".join(LINK_METRICS)
            raise ConfigError(f"metric={self.metric} does not go with links; choose {choices}.")

    def settled(self, graph: Graph) -> LinkRecipe:  # noqa: ARG002
        """Itself: no label decides anything."""
        return self


@dataclass(frozen=True, kw_only=True)
class LinkWork(NodeWork):
    """As :class:`NodeWork`, with the training links for a graph and one split for all runs.

    ``whole`` is the graph with all links, and with nothing that a model is trained on.
    """

    whole: Graph
    links: LinkSplit
    recipe: LinkRecipe

    @property
    def fingerprint(self) -> str:
        return self.whole.fingerprint

    @property
    def outputs(self) -> int:
        return self.recipe.out_channels

    @property
    def features(self) -> Sequence[FeaturePreparation]:
        """How the features of all nodes are prepared, none of which is held out."""
        every = np.ones(self.graph.num_nodes, dtype=bool)
        parts = [Split(every, every, every)]
        return self.prepared or node_features(self.graph, parts, self.recipe)

    def task(self, device: torch.device, workers: Workers = ALONE) -> LinkTask:  # noqa: ARG002
        found = model_input(self.graph, self.features, self.recipe, self.model)
        x: Tensor | SparseFeatures
        if isinstance(found, np.ndarray):
            x = torch.as_tensor(found, dtype=torch.float32).to(device)
        else:
            x = SparseFeatures.from_scipy(found).to(device)
        return LinkTask(x, self.links, len(self.splits), self.recipe.metric)
