r"""The nodes of one graph: data, splits, spectrum and models of a job, and its training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from specformer.baselines import Propagation
from specformer.datasets import (
    FeaturePreparation,
    Split,
    make_splits,
    node_graph,
    prepare_features,
    sparse_features,
)
from specformer.datasets.features import preparation_lines
from specformer.datasets.parts import GraphPart, is_in_parts
from specformer.errors import ConfigError, SpectrumError
from specformer.graphs import Graph
from specformer.spectrum import AnySpectrum, Spectrum, approximate, decompose
from specformer.spectrum.decompose import (
    decompose_rows,
    decompose_streamed,
    vector_bytes,
    vectors_fit,
)
from specformer.spectrum.products import read_briefly
from specformer.spectrum.sharded import ShardedSpectrum, approximate_rows
from specformer.spectrum.solvers import dense
from specformer.tasks import estimate, overview
from specformer.tasks.estimate import Estimate
from specformer.tasks.job import Job, Kind, Request, Workplace, run_seed
from specformer.tasks.nodes.node_fit import learn_nodes, with_best_form
from specformer.tasks.nodes.node_recipe import (
    NODE_MODELS,
    OURS,
    NodeRecipe,
    node_model,
    node_recipe,
    refuse_idle_settings,
)
from specformer.tasks.task import Outcome, Work, check_parts
from specformer.training.engine.distributed import ALONE, Share, Workers
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops.nodes import FullBatchTask

logger = logging.getLogger(__name__)

#: The largest share of features that are not zero, of those that are kept sparse.
_SPARSE = 0.1
#: Quantiles that stand for a spectrum.
_LEVELS = 101
#: Most classes that a warning names.
_NAMED = 8


@dataclass(frozen=True)
class NodeWork(Work):
    """A graph with labels, one split per run, a model, and a recipe settled for the graph.

    ``spectrum`` is None until it is computed, and for other models than Specformer. ``prepared``
    says how each split's features are prepared; None until that is known.
    """

    kind: ClassVar[Kind] = "nodes"
    noun, plural = "a single graph", "single graphs"
    models = NODE_MODELS
    options: ClassVar[frozenset[str]] = frozenset(
        {"task", "metric", "spectrum", "degree", "label", "id", "source", "target", "weight"}
    ) | {"features", "split-column"}

    graph: Graph
    splits: Sequence[Split]
    model: str
    recipe: NodeRecipe
    seed: int
    spectrum: AnySpectrum | None = None
    prepared: Sequence[FeaturePreparation] | None = None

    @classmethod
    def recipe_class(cls, model: str | None) -> tuple[type, Sequence[str]]:
        return NodeRecipe, {None: (), "specformer": ("baseline",)}.get(model, OURS)

    @classmethod
    def resolve(cls, request: Request) -> tuple[str, NodeRecipe]:
        model, changes = request.model, request.changes
        chosen, recipe = node_recipe(
            request.recipe, request.source, changes, model, request.learned
        )
        refuse_idle_settings(model, recipe, changes)
        return chosen, recipe

    @classmethod
    def refuse_workers(cls, job: Job) -> None:
        if job.model != "specformer":
            raise ConfigError(
                f"{job.source}: {job.model} needs all nodes in one process; of the models of "
                "single graphs, only specformer trains in several."
            )

    @classmethod
    def together(cls, job: Job) -> tuple[bool, bool]:
        in_parts = is_in_parts(job.source)
        return in_parts, in_parts or job.settings.spectrum == "density"

    @classmethod
    def load(cls, job: Job, place: Workplace) -> Self:
        graph = node_graph(
            job.source,
            place.data,
            job.columns,
            task=job.settings.task,
            share=partial(Share, place.workers),
            device=place.device,
        )
        return cls.on(job, graph)

    @classmethod
    def on(cls, job: Job, graph: Graph, splits: Sequence[Split] | None = None) -> Self:
        """The work on a graph with prepared labels; ``splits`` if not the recipe's."""
        recipe = job.settings.settled(graph)
        if splits is None:
            splits = make_splits(graph, recipe.split, job.runs, job.seed)
        else:
            recipe = replace(recipe, split="given")
        work = cls(graph, splits, job.model, recipe, job.seed)._checked()
        _warn_of_absent(graph, splits, recipe.split)
        return work

    def beside(self, job: Job, place: Workplace) -> Self:
        recipe = job.settings.settled(self.graph)
        if (recipe.split, recipe.task) != (self.recipe.split, self.recipe.task):
            return self.load(job, place)
        other = replace(self, model=job.model, recipe=recipe, seed=job.seed)
        return replace(other, spectrum=None, prepared=None)._checked()

    def _checked(self) -> Self:
        """The work with its features prepared, checked before a long decomposition."""
        check_parts(self.graph.name, self.graph.y, self.recipe.metric, self.splits, "nodes")
        self.check_models()
        return replace(self, prepared=self.features)

    def check_models(self) -> None:
        """Refuse settings that no model can have; of the recipe, or of each of its forms."""
        recipe = self.recipe
        for each in [recipe.taking(form) for form in recipe.forms] or [recipe]:
            node_model(self.model, each, self.graph.num_features, self.outputs)

    def resplit(self, count: int) -> Sequence[Split]:
        """That many splits of the graph."""
        return make_splits(self.graph, self.recipe.split, count, self.seed)

    def overview(self) -> dict[str, Any]:
        found = overview.of_nodes(self.graph, self.recipe, self.splits)
        return found | {"prepared": preparation_lines(self.prepared[0])} if self.prepared else found

    def estimate(self, device: torch.device) -> Estimate | None:
        if self.refusal(device):
            return None
        return estimate.of_nodes(self.graph, self.recipe, self.model, len(self.splits), device)

    def refusal(self, device: torch.device) -> str | None:
        whole = (self.recipe.spectrum, self.recipe.k) == ("decomposed", None)
        if self.model != "specformer" or not whole:
            return None
        reason = dense.refusal(self.graph.num_nodes, device)
        fix = "--set k=[500,500] takes the ends of the spectrum, --set spectrum=density none of it"
        return reason and f"{reason}; {fix}."

    def with_spectra(self, place: Workplace, beside: Self | None = None) -> Self:
        if self.model != "specformer":
            return self
        if beside and beside.spectrum and beside.recipe.spectrum_key == self.recipe.spectrum_key:
            return replace(self, spectrum=beside.spectrum)
        with place.progress.stage(f"{self.graph.name}: spectrum", 1, ""):
            try:
                return replace(self, spectrum=node_spectrum(self.graph, self.recipe, place))
            except SpectrumError as error:  # it speaks of decompose's arguments
                raise SpectrumError(self.refusal(place.device) or str(error)) from error

    def train(self, place: Workplace, checkpoint: Path | None, label: str | None = None) -> Outcome:
        chosen, told = with_best_form(self, place, checkpoint)
        outcome = learn_nodes(chosen, place, checkpoint, label)
        if words := told.pop("description", ""):
            told["description"] = f"{outcome.row['description']}. {words}"
        return replace(outcome, row={**outcome.row, **told}, more=chosen.input)

    def summarise(self, outcome: Outcome) -> dict[str, Any]:
        graph, row, recipe = self.graph, outcome.row, self.recipe
        if recipe.forms:
            recipe = recipe.taking(row["form"])
        rule, words = f"by_{recipe.metric}", "Classifying" if graph.num_classes else "Learning on"
        of = "" if recipe.monitor == "loss" else f"_{rule}"
        kept = {"test": row[f"test{of}"], "val": row[f"val{of}"]}
        return {
            "title": f"{words} the nodes of {graph.name}",
            "dataset": graph.name,
            "split": recipe.split,
            "runs": len(self.splits),
            "task": recipe.task,
            "metric": recipe.metric,
            **kept,  # of the models that are kept; then of both rules
            "test_by_loss": row["test"],
            f"test_{rule}": row[f"test_{rule}"],
            "settings": asdict(recipe),
            **{key: row[key] for key in ("classes", "targets", "form") if key in row},
            **outcome.more,
            "nodes": [{**row, **kept}],
        }

    @property
    def input(self) -> dict[str, Any]:
        """The keys of a result about the features and the spectrum that models take."""
        found: dict[str, Any] = {"num_features": self.graph.num_features}
        if self.graph.feature_names is not None:
            found["feature_names"] = list(self.graph.feature_names)
        if self.spectrum is not None:
            found["spectra"] = [{"name": self.graph.name, **self.spectrum.summary()}]
            if not isinstance(self.spectrum, Spectrum) or self.spectrum.is_complete:
                found["quantiles"] = quantiles(self.spectrum)
        return found

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
    def features(self) -> Sequence[FeaturePreparation]:
        """How the recipe prepares the features, by the training nodes of each split."""
        how = self.recipe.features, self.recipe.columns
        return self.prepared or prepare_features(self.graph, self.splits, *how)

    @property
    def x(self) -> np.ndarray | sp.csr_array:
        """Features ``[n, in]``, or ``[runs, n, in]`` where runs prepare them in different ways.

        Specformer takes them as sparse where at most a tenth of them are not zero, unless it
        filters them.
        """
        graph, (first, *rest) = self.graph, self.features
        if any(each != first for each in rest):
            return np.stack([first.dense(graph), *(each.dense(graph) for each in rest)])
        rare = isinstance(graph.x, sp.csr_array) and graph.x.nnz <= _SPARSE * np.prod(graph.x.shape)
        maps = self.model == "specformer" and self.recipe.model.space != "input"
        if rare and maps and first.scaling != "columns":
            return sparse_features(graph, first.scaling)
        return first.dense(graph)

    def task(self, device: torch.device, workers: Workers = ALONE) -> FullBatchTask:
        """Features, labels and splits on a device, those of this worker's nodes."""
        assert self.graph.y is not None
        return NodeTask.from_splits(
            self.x,
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


def _warn_of_absent(graph: Graph, splits: Sequence[Split], protocol: str) -> None:
    """Warn of classes that no split learns, or tests: the paper's rule only trains on rare ones."""
    if graph.num_targets:
        return
    assert graph.y is not None
    names = graph.class_names or range(graph.num_classes)
    drawn = protocol == "random-60-20-20"
    rule = "; all nodes of a rare class train, unless you bring masks (split=official)"
    for part, so, hint in (
        ("training", "it is not learned", ""),
        ("test", "it is not tested", rule if drawn else ""),
    ):
        there = graph.y[np.logical_or.reduce([split.by_name[part] for split in splits])]
        if (absent := np.setdiff1d(graph.y[graph.y >= 0], there)).size:
            shown = [repr(str(names[label])) for label in absent[:_NAMED]]
            more = [f"{len(absent) - _NAMED} more"] if len(absent) > _NAMED else []
            told = " or ".join(shown + more)
            logger.warning(
                "%s: no %s node is of class %s, so that %s%s", graph.name, part, told, so, hint
            )


def node_spectrum(graph: Graph, recipe: NodeRecipe, place: Workplace) -> AnySpectrum:
    """The eigenpairs a recipe asks for, or the density, which is not cached.

    Of several workers, each has the rows of its own nodes: of the eigenvectors, which the first
    computes where the cache does not have them, or of the Laplacian, whose density all compute.
    """
    device = place.device
    if recipe.loops:
        first = graph.parts.rows.start if isinstance(graph, GraphPart) else 0
        loops = sp.eye_array(*graph.adjacency.shape, k=first, format="csr")
        graph = replace(graph, adjacency=graph.adjacency + loops)
    if place.workers.size > 1:
        return _own_rows(graph, recipe, place)
    if recipe.spectrum == "density":
        return approximate(graph, degree=recipe.degree, device=device)
    size = graph.num_nodes, recipe.pairs
    too_large = recipe.vectors == "auto" and not vectors_fit(*size, device, recipe.stored)
    if too_large:
        gib = vector_bytes(*size, recipe.stored) / 2**30
        logger.warning("eigenvectors of %.1f GiB are streamed: %s is too small", gib, device)
    how: dict[str, Any] = {"k": recipe.pairs, "device": device, "cache": place.cache}
    if too_large or recipe.vectors == "streamed":
        return decompose_streamed(graph, storage=recipe.stored, **how)
    return kept_spectrum(decompose(graph, **how), recipe, device)


def _own_rows(graph: Graph, recipe: NodeRecipe, place: Workplace) -> AnySpectrum:
    """One of several workers' part of a spectrum."""
    share, device = Share(place.workers, graph.num_nodes), place.device
    if recipe.spectrum == "density":
        own = graph.adjacency
        if not isinstance(graph, GraphPart):
            own = sp.csr_array(own[share.rows])
        return approximate_rows(own, share, degree=recipe.degree, device=device)
    if place.cache is None:
        raise ConfigError(f"{graph.name}: workers share a spectrum through a cache; name one.")
    part = decompose_rows(
        graph,
        share.rows,
        k=recipe.pairs,
        device=device,
        cache=place.cache,
        solve=place.workers.is_first,
        content=graph.content if isinstance(graph, GraphPart) else None,
    )
    pairs = part.eigenvalues, part.eigenvectors, part.report
    spectrum = ShardedSpectrum(*pairs, across=share.sum, all_nodes=graph.num_nodes)
    fits = vectors_fit(spectrum.num_nodes, spectrum.num_eigenpairs, device, recipe.stored)
    if recipe.vectors == "streamed" or (recipe.vectors == "auto" and not fits):
        return spectrum.streamed(device, storage=recipe.stored)
    return kept_spectrum(spectrum, recipe, device)


def kept_spectrum(spectrum: Spectrum, recipe: NodeRecipe, device: torch.device) -> Spectrum:
    """All of a spectrum on a device, its eigenvectors in the precision they are to be kept in."""
    entries = spectrum.eigenvectors.numel()
    brief = recipe.storage == "auto" and read_briefly(entries, device, recipe.precision)
    return spectrum.to(device, storage=torch.bfloat16 if brief else recipe.stored)


def quantiles(spectrum: AnySpectrum) -> list[float]:
    """Quantiles of the eigenvalues, or of their estimated density, ascending."""
    if isinstance(spectrum, Spectrum):
        levels = torch.linspace(0, 1, _LEVELS, dtype=torch.float64)
        values = torch.quantile(spectrum.eigenvalues.double().cpu(), levels)
    else:
        values = spectrum.quantiles(_LEVELS).double().cpu()
    return values.tolist()
