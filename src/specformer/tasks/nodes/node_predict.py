r"""Predict for the nodes of a graph with a trained model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from specformer.baselines import BASELINES, Propagation
from specformer.datasets import FeaturePreparation, node_graph
from specformer.datasets.parts import GraphPart
from specformer.datasets.structural_features import STRUCTURAL, with_structural_features
from specformer.errors import ConfigError, RunError
from specformer.files.documents import MALFORMED, read_json, unsealed
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.nn.pretrained import Pretrained
from specformer.spectrum import AnySpectrum, ImplicitSpectrum
from specformer.tasks.job import Workplace
from specformer.tasks.nodes.node_fit import interpolation_error
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.nodes.node_work import node_spectrum, quantiles
from specformer.tasks.recipes.settings import build
from specformer.tasks.task import (
    Outcome,
    PredictionRequest,
    Predictions,
    cells,
    csv_text,
    target_columns,
)
from specformer.training.engine.distributed import WHOLE, Share
from specformer.training.evaluation.graph_metrics import Loss, Scale, predictions
from specformer.training.runs.folder import FEATURES, TARGETS, RunFolder

logger = logging.getLogger(__name__)

Kept = TypeVar("Kept")

#: Keys of a result that predictions need.
_NEEDED = ("model", "settings", "num_features")
#: Distances below the first are rounding: it is the training graph. Above the second, a share of
#: the spread of the training graph's eigenvalues, there is a warning.
_SAME, _FAR = 1e-5, 0.25


def load_features(run: RunFolder) -> list[FeaturePreparation]:
    """How each run's features were prepared; for older runs, as their recipe says."""
    result = run.result(*_NEEDED)
    how, folders = result["settings"].get("features", "rows"), run.model_folders()
    if how in ("rows", "none") and not (folders[0] / FEATURES).exists():
        return [FeaturePreparation(how, result["num_features"])] * len(folders)
    return _beside(run, FEATURES, FeaturePreparation.from_json)


def load_scales(run: RunFolder) -> list[Scale]:
    """Mean and standard deviation of each run's targets; empty where classes were learned."""
    is_scaled = run.result(*_NEEDED)["settings"].get("loss") in ("mse", "l1")
    return _beside(run, TARGETS, _scale) if is_scaled else []


def _beside(run: RunFolder, name: str, read: Callable[[Any], Kept]) -> list[Kept]:
    """What was kept under a name beside the model of each run."""
    found = []
    for path in (folder / name for folder in run.model_folders()):
        try:
            found.append(read(unsealed(read_json(path))))
        except (OSError, *MALFORMED, RuntimeError, RunError) as error:
            raise RunError(f"{path}: missing or damaged ({error}).") from error
    return found


def _scale(document: Mapping[str, Any]) -> Scale:
    return Scale(*(torch.tensor(document[key]) for key in ("mean", "std")))


@dataclass(frozen=True)
class NodePredictor:
    """Trained models of nodes, one per run, with what predictions need beside them.

    ``prepared`` says how each run's features were prepared, ``scales`` has the mean and deviation
    of each run's targets, and ``result`` is that of the run.
    """

    recipe_class: ClassVar[type[NodeRecipe]] = NodeRecipe

    models: Sequence[nn.Module]
    prepared: Sequence[FeaturePreparation]
    scales: Sequence[Scale]
    result: Mapping[str, Any]

    @classmethod
    def of_run(cls, run: RunFolder) -> Self:
        """The predictor of a finished run."""
        result = run.result(*_NEEDED)
        kind: type[Pretrained] = BASELINES.get(result["model"], Specformer)
        models = [kind.from_pretrained(folder) for folder in run.model_folders()]
        return cls(models, load_features(run), load_scales(run), result)

    @classmethod
    def of_outcome(cls, outcome: Outcome, result: Mapping[str, Any]) -> Self:
        """The predictor of a training that has just ended."""
        prepared = [FeaturePreparation.from_json(own[FEATURES]) for own in outcome.beside]
        scales = [_scale(own[TARGETS]) for own in outcome.beside if TARGETS in own]
        models = [model.cpu().eval() for model in outcome.models]
        return cls(models, prepared, scales, result)

    @property
    def recipe(self) -> NodeRecipe:
        """The run's recipe without batches: all nodes are predicted at once."""
        settings = {**self.result["settings"], "batch_size": None}
        return build(self.recipe_class, settings, "result.json: settings")

    @property
    def loss(self) -> Loss | None:
        """The loss of training, by which outputs are read; None to leave them as they are."""
        return self.recipe.loss or "ce"

    def each(
        self, graph: Graph, place: Workplace, request: PredictionRequest, source: str
    ) -> Tensor:
        """Predictions of every model, ``[models, n, classes or targets]``.

        ``source`` names the graph in errors. It must have the features of the training graph, in
        any order if both graphs name them.
        """
        graph = _as_trained_on(graph, source, self.result, self.prepared)
        for doubt in self.prepared[0].doubts(graph) if self.prepared else ():
            logger.warning("%s: %s", source, doubt)
        given = {"spectrum": request.spectrum, "degree": request.degree}
        changes = {key: value for key, value in given.items() if value is not None}
        if changes and self.result["model"] != "specformer":
            told = f"{self.result['model']} takes no spectrum; leave it out."
            raise ConfigError(f"--{next(iter(changes))}: {told}")
        recipe = build(self.recipe_class, {**asdict(self.recipe), **changes}, "predict")
        if request.degree is not None and recipe.spectrum != "density":
            raise ConfigError(
                f"--degree {request.degree}: add --spectrum density, the only one with a degree."
            )
        name, workers = self.result["model"], place.workers
        operator: AnySpectrum | Propagation
        if name != "specformer":
            if workers.size > 1:
                raise ConfigError(f"{name} predicts in one process only.")
            operator = Propagation(graph.adjacency, device=place.device)
        else:
            # Otherwise all workers compute together, or read the cache.
            alone = recipe.spectrum != "density" and not isinstance(graph, GraphPart)
            with workers.first_before_others() if alone else nullcontext():
                operator = node_spectrum(graph, recipe, place)
            if "quantiles" in self.result:
                say_distance(self.result["quantiles"], operator, source)
        return self.with_operator(graph, operator, place.device, Share(workers, graph.num_nodes))

    @torch.no_grad()
    def with_operator(
        self,
        graph: Graph,
        operator: AnySpectrum | Propagation,
        device: torch.device,
        share: Share = WHOLE,
    ) -> Tensor:
        """As :meth:`each`, for a graph with the training graph's features and its operator.

        Classes and labels have probabilities, numbers are in their own units. Each worker has its
        ``share`` of the nodes.
        """
        if isinstance(operator, ImplicitSpectrum):
            interpolation_error(self.models, operator)
        found, loss = [], self.loss
        known: FeaturePreparation | None = None
        for run, (model, own) in enumerate(zip(self.models, self.prepared, strict=True)):
            if own != known:
                known, x = own, torch.as_tensor(share.own(own.dense(graph))).to(device)
            outputs = predictions(loss, model.to(device).eval()(x, operator))
            found.append(self.scales[run].original(outputs) if self.scales else outputs)
        return torch.stack(found).cpu()


def predict_nodes(run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
    """Predictions for every node, or every one of this worker: id, prediction, probabilities.

    Labels and numbers have the columns of :func:`~specformer.tasks.task.target_columns`.
    """
    predictor = NodePredictor.of_run(run)
    source, columns = request.source_of(run)
    share = partial(Share, place.workers)
    graph = node_graph(source, place.data, columns, labels=False, share=share, device=place.device)
    each = predictor.each(graph, place, request, source)
    if predictor.loss == "ce":
        names, chances = run.result("classes")["classes"], each.mean(dim=0)
        written = {"prediction": [names[number] for number in chances.argmax(dim=1).tolist()]}
        for number, name in enumerate(names):
            written[f"p({name})"] = cells(chances[:, number], ".6f")
    else:
        targets = run.result("targets")["targets"]
        written = target_columns(each, targets, labels=predictor.loss == "bce")
    ids = graph.node_ids or range(graph.num_nodes)
    own = map(str, ids[share(graph.num_nodes).rows])
    header = ["id", *written] if place.workers.is_first else None
    text = csv_text(header, zip(own, *written.values(), strict=True))
    return Predictions(text, graph.num_nodes)


def _as_trained_on(
    graph: Graph, source: str, result: Mapping[str, Any], prepared: Sequence[FeaturePreparation]
) -> Graph:
    """The graph with the features of the training graph, in its order."""
    names: Sequence[str] | None = result.get("feature_names")
    known = None if names is None else tuple(names)
    if known == STRUCTURAL and graph.feature_names != STRUCTURAL:
        graph = with_structural_features(graph)
    elif known != STRUCTURAL and graph.feature_names == STRUCTURAL:
        raise RunError(f"{source}: a node has no features, which the model was trained on.")
    if known is None or graph.feature_names is None:
        if graph.num_features != result["num_features"]:
            raise RunError(
                f"{source}: a node has {graph.num_features} features where the model was trained "
                f"on {result['num_features']}."
            )
        return replace(graph, feature_names=known, feature_words=None)
    needed = {name for each in prepared for name in each.needed} or set(known)
    wanted = [name for name in known if name in needed]
    places = {name: place for place, name in enumerate(graph.feature_names)}
    missing = [name for name in wanted if name not in places]
    if missing:
        raise RunError(
            f"{source}: a node has no feature {missing[0]!r}, which the model was trained on."
        )
    assert graph.x is not None
    columns = [places[name] for name in wanted]
    words = {name: own for name, own in (graph.feature_words or {}).items() if name in needed}
    return replace(
        graph, x=graph.x[:, columns], feature_names=tuple(wanted), feature_words=words or None
    )


def say_distance(trained: Sequence[float], spectrum: AnySpectrum, name: str) -> float:
    """Say how far a graph's spectrum is from the training graph's; returns the distance.

    A filter is only tested at the eigenvalues of the training graph. The distance is the mean one
    between eigenvalues of the same rank (Wasserstein); the reference is the mean distance of the
    training graph's eigenvalues to their median.
    """
    distance = float(np.abs(np.subtract(trained, quantiles(spectrum))).mean())
    if distance < _SAME:
        return distance
    reference = float(np.abs(np.subtract(trained, np.median(trained))).mean())
    share = distance / max(reference, 1e-12)
    far = share > _FAR
    logger.log(
        logging.WARNING if far else logging.INFO,
        "%s: its eigenvalues are %.3f from those trained on, on average; those spread by %.3f "
        "(%.0f%%)%s",
        name, distance, reference, 100 * share,
        ", so that the filters are used where they were not tested" if far else "",
    )  # fmt: skip
    return distance
