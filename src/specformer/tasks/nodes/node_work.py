r"""What a recipe needs to train on the nodes of one graph: spectrum, task, models."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from specformer.baselines import Propagation
from specformer.datasets import FeaturePreparation, Split, prepare_features, sparse_features
from specformer.datasets.parts import GraphPart
from specformer.errors import ConfigError
from specformer.graphs import Graph
from specformer.spectrum import AnySpectrum, Keys, Spectrum, approximate, decompose
from specformer.spectrum.decompose import (
    decompose_rows,
    decompose_streamed,
    vector_bytes,
    vectors_fit,
)
from specformer.spectrum.products import read_briefly
from specformer.spectrum.sharded import ShardedSpectrum, approximate_rows
from specformer.tasks.job import Workplace, run_seed
from specformer.tasks.nodes.node_recipe import NodeRecipe, node_model
from specformer.training.engine.distributed import ALONE, Share, Workers
from specformer.training.loops.nodes import FullBatchTask, NodeTask

logger = logging.getLogger(__name__)

#: The largest share of features that are not zero, of those that are kept sparse.
_SPARSE = 0.1
#: Landmarks of a long spectrum, one of more distinct eigenvalues than the second number.
_LANDMARKS, _LONG = 512, 2048


@dataclass(frozen=True)
class NodeWork:
    """A graph with labels, one split per run, a model, and a recipe settled for the graph.

    ``spectrum`` is None until it is computed, and for other models than Specformer. ``prepared``
    says how each split's features are prepared; None until that is known.
    """

    graph: Graph
    splits: Sequence[Split]
    model: str
    recipe: NodeRecipe
    seed: int
    spectrum: AnySpectrum | None = None
    prepared: Sequence[FeaturePreparation] | None = None

    @property
    def drawn(self) -> list[str]:
        """The splits' fingerprints."""
        return [split.fingerprint for split in self.splits]

    @property
    def fingerprint(self) -> str:
        """The data's fingerprint."""
        return self.graph.fingerprint

    @property
    def outputs(self) -> int:
        """How many numbers a model puts out for each node."""
        return self.graph.num_targets or self.graph.num_classes

    @property
    def feature_splits(self) -> Sequence[Split]:
        """The splits whose training nodes decide how features are prepared."""
        return self.splits

    @property
    def features(self) -> Sequence[FeaturePreparation]:
        """How the recipe prepares the features, once for each of the :attr:`feature_splits`."""
        how = self.recipe.features, self.recipe.columns
        return self.prepared or prepare_features(self.graph, self.feature_splits, *how)

    def decomposed(self, place: Workplace) -> AnySpectrum:
        """The spectrum that the recipe asks for."""
        with place.progress.stage(f"{self.graph.name}: spectrum", 1, ""):
            return node_spectrum(self.graph, self.recipe, place.device, place.cache, place.workers)

    def task(self, device: torch.device, workers: Workers = ALONE) -> FullBatchTask:
        """Features, labels and splits on a device, those of this worker's nodes.

        Specformer takes features as sparse where at most a tenth of them are not zero, unless it
        filters them. Where splits prepare features in different ways, each run has its own.
        """
        assert self.graph.y is not None
        return NodeTask.from_splits(
            model_input(self.graph, self.features, self.recipe, self.model),
            self.graph.y,
            self.splits,
            device,
            self.recipe.loss or "ce",
            self.recipe.metric or "accuracy",
            Share(workers, self.graph.num_nodes),
        )

    def operator(self, device: torch.device) -> AnySpectrum | Propagation:
        """The models' second argument, after the features."""
        if self.spectrum is None or self.model != "specformer":
            return Propagation(self.graph.adjacency, device=device)
        return self.spectrum

    def fresh_models(self, in_channels: int | None = None) -> list[nn.Module]:
        """Untrained models, each run's from a seed of its own.

        ``in_channels``: features of a node as they are prepared, if not as many as the graph has.
        """
        width = self.graph.num_features if in_channels is None else in_channels
        models = []
        for run in range(len(self.splits)):
            torch.manual_seed(run_seed(self.seed, run))
            models.append(node_model(self.model, self.recipe, width, self.outputs))
        return models


def node_spectrum(
    graph: Graph,
    recipe: NodeRecipe,
    device: torch.device,
    cache: str | Path | None,
    workers: Workers = ALONE,
) -> AnySpectrum:
    """The eigenpairs a recipe asks for, or the density, which is not cached.

    Of several workers, each has the rows of its own nodes: of the eigenvectors, which the first
    computes where the cache does not have them, or of the Laplacian, whose density all compute.
    """
    if recipe.loops:
        first = graph.parts.rows.start if isinstance(graph, GraphPart) else 0
        loops = sp.eye_array(*graph.adjacency.shape, k=first, format="csr")
        graph = replace(graph, adjacency=graph.adjacency + loops)
    if workers.size > 1 and recipe.spectrum == "density":
        share = Share(workers, graph.num_nodes)
        own = graph.adjacency
        if not isinstance(graph, GraphPart):
            own = sp.csr_array(own[share.rows])
        return approximate_rows(own, share, degree=recipe.degree, device=device)
    if workers.size > 1:
        return _sharded_spectrum(graph, recipe, device, cache, workers)
    if recipe.spectrum == "density":
        return approximate(graph, degree=recipe.degree, device=device)
    size = graph.num_nodes, recipe.pairs
    too_large = recipe.vectors == "auto" and not vectors_fit(*size, device, recipe.stored)
    if too_large:
        gib = vector_bytes(*size, recipe.stored) / 2**30
        logger.warning("eigenvectors of %.1f GiB are streamed: %s is too small", gib, device)
    if too_large or recipe.vectors == "streamed":
        return decompose_streamed(
            graph, k=recipe.pairs, device=device, storage=recipe.stored, cache=cache
        )
    whole = decompose(graph, k=recipe.pairs, device=device, cache=cache)
    return kept_spectrum(whole, recipe, device)


def _sharded_spectrum(
    graph: Graph,
    recipe: NodeRecipe,
    device: torch.device,
    cache: str | Path | None,
    workers: Workers,
) -> Spectrum:
    if cache is None:
        raise ConfigError(f"{graph.name}: workers share a spectrum through a cache; name one.")
    share = Share(workers, graph.num_nodes)
    part = decompose_rows(
        graph,
        share.rows,
        k=recipe.pairs,
        device=device,
        cache=cache,
        solve=workers.is_first,
        content=graph.content if isinstance(graph, GraphPart) else None,
    )
    own = ShardedSpectrum(
        part.eigenvalues,
        part.eigenvectors,
        part.report,
        across=share.sum,
        all_nodes=graph.num_nodes,
    )
    fits = vectors_fit(own.num_nodes, own.num_eigenpairs, device, recipe.stored)
    if recipe.vectors == "streamed" or (recipe.vectors == "auto" and not fits):
        return own.streamed(device, storage=recipe.stored)
    return kept_spectrum(own, recipe, device)


def kept_spectrum(spectrum: Spectrum, recipe: NodeRecipe, device: torch.device) -> Spectrum:
    """All of a spectrum on a device, its eigenvectors in the precision they are to be kept in."""
    entries = spectrum.eigenvectors.numel()
    brief = recipe.storage == "auto" and read_briefly(entries, device, recipe.precision)
    return spectrum.to(device, storage=torch.bfloat16 if brief else recipe.stored)


def node_landmarks(operator: AnySpectrum | Propagation, recipe: NodeRecipe) -> Keys | None:
    """The landmarks of attention while training; None to take all eigenvalues."""
    if not isinstance(operator, Spectrum) or recipe.landmarks is None or not recipe.model.attention:
        return None
    tokens, count = len(operator.distinct.values), recipe.landmarks
    if count == "auto":
        count = _LANDMARKS if tokens > _LONG else tokens
    if count < 1:
        raise ConfigError(f"landmarks={count} must be at least 1, auto, or empty.")
    return operator.landmarks(count, points=count) if count < tokens else None


def model_input(
    graph: Graph, prepared: Sequence[FeaturePreparation], recipe: NodeRecipe, model: str
) -> np.ndarray | sp.csr_array:
    """Features ``[n, in]``, or ``[runs, n, in]`` where runs prepare them in different ways."""
    first, rest = prepared[0], prepared[1:]
    rare = isinstance(graph.x, sp.csr_array) and graph.x.nnz <= _SPARSE * np.prod(graph.x.shape)
    maps = model == "specformer" and recipe.model.space != "input"
    if any(each != first for each in rest):
        return np.stack([each.dense(graph) for each in prepared])
    if rare and maps and first.scaling != "columns":
        return sparse_features(graph, first.scaling)
    return first.dense(graph)
