r"""What ``specformer inspect`` says of a source: what ``train`` would read of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from specformer.datasets import graph_set
from specformer.datasets.registry import graph_source
from specformer.errors import ConfigError, GraphError
from specformer.graphs import Columns
from specformer.tasks.job import Request, Workplace
from specformer.tasks.overview import of_graphs, of_nodes, warnings_of
from specformer.tasks.resolve import TASKS, resolve
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
    columns, place = columns or Columns(), Workplace(choose_device("auto"), data)
    job = resolve(Request(source, columns=columns), seed=seed)
    task = TASKS[job.kind]
    try:
        work = task.load(job, place)
    except (ConfigError, GraphError) as error:
        if job.kind == "nodes":
            found = of_nodes(graph_source(source, data, columns)[0], job.settings, [])
        else:
            found = of_graphs(graph_set(source, data, columns), job.settings, [])
        return {**found, "problem": str(error)}
    found = task.overview(work)
    needs = task.estimate(work, place.device)
    if needs is None:  # of signals
        return found
    told = {"recipe": job.recipe, "estimate": asdict(needs), "warnings": warnings_of(found)}
    return {**found, **told}
