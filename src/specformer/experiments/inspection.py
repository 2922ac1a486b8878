r"""What ``specformer inspect`` says of a source: what ``train`` would read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specformer.datasets import graph_set, make_splits
from specformer.errors import ConfigError, GraphError
from specformer.experiments.graph_recipe import graph_recipe
from specformer.experiments.graph_source import graph_source
from specformer.experiments.molecules import check_parts, graph_splits
from specformer.experiments.node_recipe import node_recipe
from specformer.experiments.overview import of_graphs, of_nodes, of_signals, warnings_of
from specformer.experiments.source_kind import source_kind
from specformer.experiments.train_filter import signal_source


def inspect_source(source: str, data: str | Path | None = None, seed: int = 0) -> dict[str, Any]:
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
