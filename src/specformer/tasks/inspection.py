r"""What ``specformer inspect`` says of a source: what ``train`` would read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specformer.datasets import graph_set, make_splits
from specformer.datasets.graph_source import graph_source
from specformer.errors import ConfigError, GraphError
from specformer.tasks.graphs.fit import check_parts
from specformer.tasks.graphs.recipe import graph_recipe
from specformer.tasks.graphs.work import graph_splits
from specformer.tasks.nodes.recipe import node_recipe
from specformer.tasks.overview import of_graphs, of_nodes, of_signals, warnings_of
from specformer.tasks.signals.task import signal_source
from specformer.tasks.source import source_kind


def inspect_source(source: str, data: Path | None = None, seed: int = 0) -> dict[str, Any]:
    """What ``train`` would read of a source with its usual recipe.

    ``problem`` says why it could not train on it, if so; ``warnings`` what to know before.

    Example:
        >>> inspect_source("csbm")["classes"]
        {'0': 500, '1': 500}
    """
    kind = source_kind(source)
    if kind == "filters":
        return of_signals(signal_source(source, data))
    if kind == "nodes":
        name, nodes = node_recipe(None, source)
        graph = graph_source(source, data)[0]
        nodes = nodes.settled(graph)
        try:
            if graph.y is None:
                raise GraphError(f"{source}: the graph has no labels to learn.")
            splits = make_splits(graph, nodes.split, None, seed)
        except (ConfigError, GraphError) as error:
            return {**of_nodes(graph, [], nodes.split), "problem": str(error)}
        return _warned({**of_nodes(graph, splits, nodes.split), "recipe": name})
    name, recipe = graph_recipe(None, source)
    graphs = graph_set(source, data, recipe.targets)
    try:
        recipe = recipe.settled(graphs)
        parts = graph_splits(graphs, recipe, 1, seed)
        check_parts(graphs, recipe, parts)
    except ConfigError as error:
        return {**of_graphs(graphs, recipe, []), "problem": str(error)}
    return _warned({**of_graphs(graphs, recipe, parts), "recipe": name})


def _warned(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "warnings": warnings_of(found)}
