r"""The task of learning the links of one graph: settings, data, training, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from specformer.baselines import Propagation
from specformer.datasets import FeaturePreparation, Split, node_graph, prepare_features
from specformer.datasets.features import preparation_lines
from specformer.datasets.link_splits import LinkSplit, split_links
from specformer.errors import ConfigError, GraphError
from specformer.graphs import Columns, Graph
from specformer.graphs.formats.csv_folder import read_edges
from specformer.tasks import overview
from specformer.tasks.job import Job, Kind, Request, Workplace
from specformer.tasks.nodes.node_fit import Fitted, fit_nodes_of, learned_filters
from specformer.tasks.nodes.node_predict import NodePredictor
from specformer.tasks.nodes.node_recipe import NodeRecipe, refuse_idle_settings
from specformer.tasks.nodes.node_work import NodeWork
from specformer.tasks.recipes.settings import RecipeBook, build, merged, override, refuse_idle
from specformer.tasks.task import Outcome, PredictionRequest, Predictions, cells, csv_text
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.evaluation.link_objectives import (
    LINK_METRICS,
    LinkTask,
    link_figures,
    link_scores,
)
from specformer.training.evaluation.node_objectives import features_on
from specformer.training.evaluation.summaries import summary
from specformer.training.runs.environment import matmul_precision
from specformer.training.runs.folder import FEATURES, RunFolder

_BOOK = RecipeBook("links.yaml")
#: The usual numbers of runs, and of missing links that ``predict`` names.
_RUNS, _USUAL = 5, 100
#: Settings of recipes for nodes that do not apply to links.
_IDLE = ("task", "loss", "form", "forms", "batch_size")
#: The most scores in memory at once.
_MOST = 2**24


@dataclass(frozen=True)
class LinkRecipe(NodeRecipe):
    """How to learn links: a :class:`NodeRecipe` without settings of labels and batches.

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
    """A :class:`NodeWork` whose graph has the training links alone; all runs share one split.

    So they share one spectrum, too. ``whole`` is the graph with all links; no model is trained on
    it.
    """

    kind: ClassVar[Kind] = "links"
    noun, plural = "a graph whose links are learned", "runs of --task links"
    options = NodeWork.options - {"split-column"} | {"pairs", "top"}

    whole: Graph
    links: LinkSplit
    recipe: LinkRecipe

    @classmethod
    def usual_runs(cls, source: str) -> int:  # noqa: ARG003
        return _RUNS

    @classmethod
    def recipe_class(cls, model: str | None) -> tuple[type, Sequence[str]]:
        return LinkRecipe, super().recipe_class(model)[1]

    @classmethod
    def resolve(cls, request: Request) -> tuple[str, LinkRecipe]:
        model, changes = request.model, request.changes
        default = _BOOK.written["default"]
        chosen, settings = _BOOK.settings(request.recipe, request.source, model, default)
        if request.metric:
            settings = merged(settings, {"metric": request.metric})
        recipe = build(LinkRecipe, override(settings, changes), f"recipe {chosen}")
        refuse_idle(changes, _IDLE, "links have no labels, and train all at once")
        refuse_idle_settings(model, recipe, changes)
        return chosen, recipe

    @classmethod
    def refuse_workers(cls, job: Job) -> None:
        raise ConfigError(f"{job.source}: links are learned in one process only.")

    @classmethod
    def load(cls, job: Job, place: Workplace) -> Self:
        return cls.of_links(job, node_graph(job.source, place.data, job.columns, labels=False))

    @classmethod
    def of_links(cls, job: Job, graph: Graph) -> Self:
        """The work on the links of a graph with features."""
        recipe: LinkRecipe = job.settings
        links = split_links(graph, recipe.split, job.seed)
        splits = [links.parts] * (job.runs or _RUNS)
        work = cls(
            links.graph, splits, job.model, recipe=recipe, seed=job.seed, whole=graph, links=links
        )
        work.check_models()
        return replace(work, prepared=work.features)

    def beside(self, job: Job, place: Workplace) -> Self:  # noqa: ARG002
        return self.of_links(job, self.whole)

    @property
    def fingerprint(self) -> str:
        return self.whole.fingerprint

    @property
    def outputs(self) -> int:
        return self.recipe.out_channels

    @property
    def features(self) -> Sequence[FeaturePreparation]:
        """Prepared once for all runs, by all nodes: none of them is held out."""
        every = np.ones(self.graph.num_nodes, dtype=bool)
        how = self.recipe.features, self.recipe.columns
        return self.prepared or prepare_features(self.graph, [Split(every, every, every)], *how)

    def resplit(self, count: int) -> Sequence[Split]:
        return [self.splits[0]] * count

    def task(self, device: torch.device, workers: Workers = ALONE) -> LinkTask:  # noqa: ARG002
        x, runs = features_on(device, self.x), len(self.splits)
        return LinkTask(x, self.links, runs, self.recipe.metric)

    def overview(self) -> dict[str, Any]:
        unlabelled = replace(self.whole, y=None, class_names=None)
        found = overview.of_nodes(unlabelled, self.recipe, self.splits)
        learned = {"kind": "links", "task": "links", "metric": self.recipe.metric}
        return found | learned | {"prepared": preparation_lines(self.features[0])}

    def train(self, place: Workplace, checkpoint: Path | None, label: str | None = None) -> Outcome:
        name, label, metric = self.graph.name, label or self.model, self.recipe.metric
        fitted = fit_nodes_of(self, place, checkpoint, label)
        models = fitted.models(label)
        with matmul_precision(self.recipe.precision, place.device):
            figures, tested = _judged(fitted)
        kept = {"test": figures["test"][metric], "val": figures["val"][metric]}
        counted = f"{self.whole.num_nodes:,} nodes, {self.whole.num_edges:,} edges"
        parts = self.links.parts.in_words.replace(" train", " of these train", 1)
        row = fitted.row(f"{counted}; {parts} ({self.recipe.split})", {**kept, "figures": figures})
        arrays = {"curve": fitted.fit.curves.cpu().numpy(), "tested": tested}
        if not isinstance(fitted.operator, Propagation):
            arrays |= learned_filters(models[0], fitted.operator)
        named = {f"links/{name}/{label}/{key}": array for key, array in arrays.items()}
        beside = [{FEATURES: self.features[0].to_json()}] * len(models)
        return Outcome(row, named, models, fitted.fit.seconds_before, beside=beside)

    def summarise(self, outcome: Outcome) -> dict[str, Any]:
        row, keys = outcome.row, ("dataset", "runs", "metric", "test", "val", "figures")
        return {
            "title": f"The links of {self.graph.name}",
            "task": "links",
            "split": self.recipe.split,
            **{key: row[key] for key in keys},
            "settings": asdict(self.recipe),
            **self.input,
            "links": [row],
        }


def predict_links(run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
    """Pairs of nodes with their score, the mean log-odds of all models, and the probability.

    All edges of the graph are known to the models, also those that were held out of training.
    """
    if request.pairs is not None and request.top is not None:
        raise ConfigError("--pairs and --top: give one of them.")
    source, columns = request.source_of(run)
    graph = node_graph(source, place.data, columns, labels=False)
    ids = graph.node_ids or tuple(map(str, range(graph.num_nodes)))
    pairs = (
        None
        if request.pairs is None
        else torch.as_tensor(read_pairs(request.pairs, ids, source, columns))
    )
    outputs = LinkScores.of_run(run).each(graph, place, request, source)
    if pairs is None:
        count = _USUAL if request.top is None else request.top
        pairs = likeliest(outputs.to(place.device), graph, count).cpu()
    scores = link_scores(outputs, pairs).mean(dim=0)
    named = ([ids[node] for node in end] for end in pairs.tolist())
    written = cells(scores, ".6g"), cells(scores.sigmoid(), ".6f")
    rows = list(zip(*named, *written, strict=True))
    return Predictions(csv_text(["source", "target", "score", "probability"], rows), len(rows))


@torch.no_grad()
def _judged(fitted: Fitted) -> tuple[dict[str, dict[str, Any]], np.ndarray]:
    """Figures of the kept models by part and name, and the test pairs for a report.

    The latter are probabilities and whether there is a link, ``[2, runs * pairs, 1]``.
    """
    task, outputs, figures = fitted.task, fitted.outputs(), {}
    assert isinstance(task, LinkTask)
    for part in ("val", "test"):
        linked, other = (link_scores(outputs, pairs).double() for pairs in task.pairs(part))
        each = [link_figures(*both) for both in zip(linked.cpu().numpy(), other.cpu().numpy(),
                                                    strict=True)]  # fmt: skip
        figures[part] = {key: summary([run[key] for run in each]) for key in each[0]}
    scores = torch.cat([linked, other], dim=-1).sigmoid()
    is_link = (torch.arange(scores.shape[-1], device=scores.device) < linked.shape[-1]).expand_as(
        scores
    )
    tested = torch.stack([scores, is_link.to(scores)]).flatten(1).unsqueeze(-1)
    return figures, tested.float().cpu().numpy()


class LinkScores(NodePredictor):
    """Trained models of links; what they put out for nodes is left as it is."""

    recipe_class: ClassVar[type[NodeRecipe]] = LinkRecipe

    @property
    def loss(self) -> None:
        return None


def read_pairs(path: Path, ids: tuple[str, ...], source: str, columns: Columns) -> np.ndarray:
    """The pairs ``[2, count]`` of a table: of the columns that name a graph's edges, or the first.

    ``ids`` are those of the nodes of ``source``.
    """
    if not path.is_file():
        raise GraphError(f"{path}: there is no such file.")
    table, told = read_edges(path, Columns())
    index = {name: number for number, name in enumerate(ids)}
    ends = [each for each in (told.source, told.target) if each]
    ends = ends or [each for each in (columns.source, columns.target) if each in table.columns]
    if len(ends) < 2:
        ends = list(table.endpoints() or ())
    if not ends:
        ends = [*table.columns][:2]
        if index.keys() >= {*ends}:
            raise GraphError(
                f"{path}: the first row, {' and '.join(ends)}, is a pair of nodes, not a header; "
                "put source,target above it."
            )
    if len(ends) < 2:
        raise GraphError(f"{path}: needs two columns, one for each end of a pair.")
    if not table.columns[ends[0]]:
        raise GraphError(f"{path}: there are no pairs below the header {','.join(table.columns)}.")
    return np.stack([table.positions(end, index, source) for end in ends])


@torch.no_grad()
def likeliest(outputs: Tensor, graph: Graph, count: int) -> Tensor:
    """The pairs ``[2, count]`` without an edge that score highest, the best first.

    All pairs are scored, some rows of them at a time. Outputs are ``[models, n, channels]``.
    """
    if count < 1:
        raise ConfigError(f"--top {count}: at least one is needed.")
    n, device = graph.num_nodes, outputs.device
    whole = outputs.transpose(0, 1).flatten(1) / len(outputs)  # one product sums over models
    best, places = (torch.empty(0, device=device, dtype=kind) for kind in (whole.dtype, torch.long))
    rows = max(1, _MOST // n)
    for start in range(0, n, rows):
        block = len(outputs) * whole[start : start + rows] @ whole.T
        taken = torch.as_tensor(graph.adjacency[start : start + rows].toarray() != 0).to(device)
        taken |= torch.ones_like(taken).tril(start)  # each pair once
        found = block.masked_fill(taken, -torch.inf).flatten()
        own, at = found.topk(min(count, len(found)))
        best, kept = torch.cat([best, own]).sort(descending=True, stable=True)
        places = torch.cat([places, at + start * n])[kept]
        best, places = best[:count], places[:count]
    places = places[best > -torch.inf]
    return torch.stack([places // n, places % n])
