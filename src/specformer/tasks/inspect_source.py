r"""What ``specformer inspect`` says of a source: what ``train`` would read of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from specformer.datasets import graph_set, make_splits
from specformer.datasets.features import preparation_lines, with_features
from specformer.datasets.registry import graph_source
from specformer.datasets.splits import fold_count
from specformer.errors import ConfigError, GraphError
from specformer.graphs import Columns
from specformer.graphs.node_targets import with_targets
from specformer.tasks import estimate
from specformer.tasks.estimate import Estimate
from specformer.tasks.graphs.graph_learning import GraphLearning
from specformer.tasks.graphs.graph_recipe import graph_recipe
from specformer.tasks.graphs.graph_work import graph_splits
from specformer.tasks.job import source_kind
from specformer.tasks.nodes.node_learning import warn_of_untested
from specformer.tasks.nodes.node_recipe import node_recipe
from specformer.tasks.nodes.node_work import node_features
from specformer.tasks.overview import of_graphs, of_nodes, of_signals, warnings_of
from specformer.tasks.signals.signal_learning import signal_source
from specformer.tasks.task import check_parts
from specformer.training.runs.environment import choose_device


def inspect_source(
    source: str, data: Path | None = None, columns: Columns | None = None, seed: int = 0
) -> dict[str, Any]:
    """What ``train`` would read of a source with its usual recipe.

    ``columns`` says which column is what, where their names do not tell. ``problem`` says why it
    could not train on it, if so; ``warnings`` what to know before; ``estimate`` what it takes on
    this machine.

    Example:
        >>> inspect_source("csbm")["classes"]
        {'0': 500, '1': 500}
    """
    columns, device = columns or Columns(), choose_device("auto")
    kind = source_kind(source, columns)
    if kind == "filters":
        return of_signals(signal_source(source, data))
    if kind == "nodes":
        name, nodes = node_recipe(None, source)
        graph = graph_source(source, data, columns)[0]
        try:
            graph = with_targets(graph, source=source)
            nodes = nodes.settled(graph)
            splits = make_splits(graph, nodes.split, None, seed)
            check_parts(graph.name, graph.y, nodes.metric, splits, "nodes")
            featured = with_features(graph, source)
            prepared = node_features(featured, splits[:1], nodes)[0]
            warn_of_untested(graph, splits, nodes.split)
        except (ConfigError, GraphError) as error:
            return {**of_nodes(graph, nodes, []), "problem": str(error)}
        told = {"recipe": name, "prepared": preparation_lines(prepared)}
        needs = estimate.of_nodes(featured, nodes, "specformer", len(splits), device)
        return _warned({**of_nodes(graph, nodes, splits), **told}, needs)
    name, recipe = graph_recipe(None, source)
    graphs = graph_set(source, data, columns)
    try:
        recipe = recipe.settled(graphs)
        runs = fold_count(recipe.split) or GraphLearning().usual_runs(source)
        parts = graph_splits(graphs, recipe, runs, seed)
        check_parts(graphs.name, graphs.y, recipe.metric, parts, "graphs")
    except ConfigError as error:
        return {**of_graphs(graphs, recipe, []), "problem": str(error)}
    needs = estimate.of_graphs(graphs, recipe, runs, device)
    return _warned({**of_graphs(graphs, recipe, parts), "recipe": name}, needs)


def _warned(found: dict[str, Any], needs: Estimate) -> dict[str, Any]:
    return {**found, "estimate": asdict(needs), "warnings": warnings_of(found)}
