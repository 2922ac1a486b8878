r"""Learning the links of one graph, as every task is done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from specformer.baselines import Propagation
from specformer.datasets import Split, node_graph
from specformer.datasets.features import preparation_lines
from specformer.datasets.link_splits import split_links
from specformer.errors import ConfigError
from specformer.graphs import Graph
from specformer.tasks.job import Job, Kind, Request, Workplace
from specformer.tasks.links.link_predict import predict_links
from specformer.tasks.links.link_work import LinkRecipe, LinkWork
from specformer.tasks.nodes.node_fit import Fitted, check_divergence, fit_nodes_of, learned_filters
from specformer.tasks.nodes.node_learning import NodeLearning
from specformer.tasks.nodes.node_recipe import refuse_idle_settings
from specformer.tasks.nodes.node_work import NodeWork
from specformer.tasks.overview import of_links
from specformer.tasks.predictions import PredictionRequest, Predictions
from specformer.tasks.recipes.settings import RecipeBook, build, merged, override, refuse_idle
from specformer.tasks.task import Outcome
from specformer.training.engine.precision import matmul_precision
from specformer.training.evaluation.link_objectives import LinkTask, link_figures, link_scores
from specformer.training.evaluation.summaries import summary
from specformer.training.runs.folder import FEATURES, RunFolder

_BOOK = RecipeBook("links.yaml")
#: Models that are trained unless someone says.
_RUNS = 5
#: What recipes for nodes have and links have no use for.
_IDLE = ("task", "loss", "form", "forms", "batch_size")


class LinkLearning(NodeLearning):
    """Which nodes of a graph are linked. All runs have one split, and so one spectrum."""

    kind: ClassVar[Kind] = "links"
    noun, plural = "a graph whose links are learned", "runs of --task links"
    runs: ClassVar[int | None] = _RUNS
    options = NodeLearning.options - {"split-column"} | {"pairs", "top"}

    def recipe_class(self, model: str | None) -> tuple[type, Sequence[str]]:
        return LinkRecipe, super().recipe_class(model)[1]

    def resolve(self, request: Request) -> tuple[str, LinkRecipe]:
        model, changes = request.model, request.changes
        default = _BOOK.written["default"]
        chosen, settings = _BOOK.settings(request.recipe, request.source, model, default)
        if request.metric:
            settings = merged(settings, {"metric": request.metric})
        recipe = build(LinkRecipe, override(settings, changes), f"recipe {chosen}")
        refuse_idle(changes, _IDLE, "links have no labels, and train all at once")
        refuse_idle_settings(model, recipe, changes)
        return chosen, recipe

    def refuse_workers(self, job: Job) -> None:
        raise ConfigError(f"{job.source}: links are learned in one process only.")

    def load(self, job: Job, place: Workplace) -> LinkWork:
        return self.links_of(job, node_graph(job.source, place.data, job.columns, labels=False))

    def links_of(self, job: Job, graph: Graph) -> LinkWork:
        """The work on the links of a graph with features."""
        recipe: LinkRecipe = job.settings
        links = split_links(graph, recipe.split, job.seed)
        splits = [links.parts] * (job.runs or _RUNS)
        work = LinkWork(
            links.graph, splits, job.model, recipe=recipe, seed=job.seed, whole=graph, links=links
        )
        return replace(work, prepared=work.features)

    def load_beside(self, work: NodeWork, job: Job, place: Workplace) -> LinkWork:  # noqa: ARG002
        assert isinstance(work, LinkWork)
        return self.links_of(job, work.whole)

    def resplit(self, work: NodeWork, count: int) -> Sequence[Split]:
        return [work.splits[0]] * count

    def overview(self, work: NodeWork) -> dict[str, Any]:
        assert isinstance(work, LinkWork)
        assert work.prepared is not None
        found = of_links(work.whole, work.recipe, work.splits)
        return found | {"prepared": preparation_lines(work.prepared[0])}

    def fit(
        self, work: NodeWork, place: Workplace, checkpoint: Path | None, label: str | None = None
    ) -> Outcome:
        assert isinstance(work, LinkWork)
        assert work.prepared is not None
        started, name, label = time.perf_counter(), work.graph.name, label or work.model
        fitted = fit_nodes_of(work, place, checkpoint, label)
        check_divergence(fitted.fit, f"{name}: {label}")
        with matmul_precision(work.recipe.precision, place.device):
            figures, tested = _judged(fitted)
        fit, models = fitted.fit, fitted.models()
        row = {
            "dataset": name,
            "description": _described(work),
            "model": work.model,
            "metric": work.recipe.metric,
            "runs": len(models),
            "splits": work.drawn,
            "test": figures["test"][work.recipe.metric],
            "val": figures["val"][work.recipe.metric],
            "figures": figures,
            "epochs": float(fit.epochs.double().mean()),
            "epochs_each": fit.epochs.tolist(),
            "parameters": sum(parameter.numel() for parameter in models[0].parameters()),
            "seconds": time.perf_counter() - started + fit.seconds_before,
        }
        arrays = {"curve": fit.curves.cpu().numpy(), "tested": tested}
        if not isinstance(fitted.operator, Propagation):
            arrays |= learned_filters(models[0], fitted.operator)
        named = {f"links/{name}/{label}/{key}": array for key, array in arrays.items()}
        beside = [{FEATURES: work.prepared[0].to_json()}] * len(models)
        return Outcome(row, named, models, fit.seconds_before, beside=beside)

    def summarise(self, work: NodeWork, outcome: Outcome) -> dict[str, Any]:
        row, keys = outcome.row, ("dataset", "runs", "metric", "test", "val", "figures")
        return {
            "title": f"The links of {work.graph.name}",
            "task": "links",
            "split": work.recipe.split,
            **{key: row[key] for key in keys},
            "settings": asdict(work.recipe),
            **self.input_of(work),
            "links": [row],
        }

    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
        return predict_links(run, request, place)


@torch.no_grad()
def _judged(fitted: Fitted) -> tuple[dict[str, dict[str, Any]], np.ndarray]:
    """Figures of the kept models by part and name, and what a report shows of the test pairs.

    The latter are chances and whether there is a link, ``[2, runs * pairs, 1]``.
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


def _described(work: LinkWork) -> str:
    graph, parts = work.whole, work.links.parts
    counted = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
    return (
        f"{counted}; {parts.in_words.replace(' train', ' of these train', 1)} ({work.recipe.split})"
    )
