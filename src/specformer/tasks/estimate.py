r"""About how long training will take, and how much memory, before it begins.

Time is a count of operations over the measured speed of a matrix product. The constants cover all
else that an epoch does. They were fitted on a CPU to generated graphs of 500 to 2,000 nodes and to
the 1,128 molecules of ESOL, and are good to a factor of two or three.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from specformer.graphs import Graph, GraphSet
from specformer.spectrum.decompose import vector_bytes
from specformer.spectrum.solvers import dense
from specformer.tasks.graphs.graph_recipe import GraphRecipe
from specformer.tasks.nodes.node_recipe import NodeRecipe

#: Bytes that Python, PyTorch and what they load take.
_PROCESS = 2**29
#: Operations, as products count them: of a decomposition per n³, of attention per two tokens and
#: channel, of an entry in a product of all epochs' passes, of a pair of nodes of many graphs per
#: channel and layer.
_DECOMPOSE, _ATTEND, _MULTIPLY, _PAIR = 36.0, 100.0, 12.0, 2000.0
#: Seconds of an epoch in which nothing is computed.
_OVERHEAD = {"cpu": 0.005, "cuda": 0.001}
#: Arrays as large as a layer's input that are held for its gradient.
_HELD = 6
_SIZE = 1024


@dataclass(frozen=True)
class Estimate:
    """What a job may take.

    Attributes:
        seconds: for everything, at most; early stopping may end it sooner.
        memory: bytes at the peak, on the device.
    """

    seconds: float
    memory: int


def product_speed(device: torch.device) -> float:
    """Operations per second of a float32 product, measured in some hundredths of a second."""
    matrix = torch.rand(_SIZE, _SIZE, device=device)
    best = np.inf
    for _ in range(4):
        started = time.perf_counter()
        (matrix @ matrix)[0, 0].item()  # waits for a GPU
        best = min(best, time.perf_counter() - started)
    return float(2 * _SIZE**3 / best)


def of_nodes(
    graph: Graph, recipe: NodeRecipe, model: str, runs: int, device: torch.device
) -> Estimate:
    """An estimate for the nodes of one graph, with the forms that are tried first."""
    n, once, held = graph.num_nodes, 0.0, 0
    pairs = vector_bytes(n, recipe.pairs, torch.float32) // (4 * n)
    if model == "specformer" and recipe.spectrum == "decomposed":
        once = _DECOMPOSE * min(n, 4 * pairs) * n * n
        held = dense.required_bytes(n, device) if 4 * pairs > n else 8 * n * pairs
    elif model == "specformer":
        once = _MULTIPLY * recipe.degree * graph.adjacency.nnz
    names, splits = recipe.tried(n * pairs, device)
    each = [recipe.taking(name) for name in names]
    once *= len({one.spectrum_key for one in (recipe, *each)})
    speed, costs = product_speed(device), []
    for one in each or [recipe]:
        epochs, (epoch, kept) = one.schedule.epochs, _of_epoch(graph, one, model, pairs)
        costs.append((epochs * epoch / speed, epochs * _OVERHEAD.get(device.type, 0.005)))
        held = max(held, runs * kept + (4 * n * pairs if model == "specformer" else 0))
    seconds = once / speed + max(runs * work + idle for work, idle in costs)
    if len(each) > 1:
        seconds += sum(min(runs, splits) * work + idle for work, idle in costs)
    return Estimate(seconds, _PROCESS + held)


def _of_epoch(graph: Graph, recipe: NodeRecipe, model: str, pairs: int) -> tuple[float, int]:
    """Operations of one run's epoch, and bytes that it holds."""
    n, ours, own = graph.num_nodes, model == "specformer", recipe.model
    width = own.hidden_channels if ours else recipe.baseline.hidden_channels
    layers = own.num_layers if ours and own.form == "deep" else 1
    epoch = _MULTIPLY * n * graph.num_features * width + _MULTIPLY * graph.adjacency.nnz * width
    if ours and recipe.spectrum == "decomposed":
        tokens = min(pairs, 512) if recipe.landmarks == "auto" and pairs > 2048 else pairs
        epoch += _ATTEND * pairs * tokens * width
        columns = width if own.form == "deep" else max(1, graph.num_classes)
        epoch += _MULTIPLY * n * pairs * columns * own.num_layers
    elif ours:
        epoch += _MULTIPLY * recipe.degree * graph.adjacency.nnz * width * layers
    return epoch, n * (graph.num_features + _HELD * width * layers) * 4


def of_graphs(graphs: GraphSet, recipe: GraphRecipe, runs: int, device: torch.device) -> Estimate:
    """An estimate for many graphs."""
    squares = np.square(graphs.num_nodes.astype(np.float64))
    size = recipe.model.hidden_channels * recipe.model.num_layers
    epoch = _PAIR * float(squares.sum()) * size
    solve = _DECOMPOSE * float((squares * graphs.num_nodes).sum())
    batch = min(len(graphs), recipe.schedule.batch_size)
    largest = float(np.sort(squares)[-batch:].mean()) if len(graphs) else 0.0
    usual = float(squares.mean()) if len(graphs) else 0.0
    held = 4 * squares.sum() + 4 * _HELD * size * max(batch * usual, largest)
    speed, steps = product_speed(device), -(-len(graphs) // batch) if batch else 0
    overhead = recipe.schedule.epochs * runs * steps * _OVERHEAD.get(device.type, 0.005)
    seconds = (solve + recipe.schedule.epochs * runs * epoch) / speed + overhead
    return Estimate(seconds, _PROCESS + int(held))


def in_words(estimate: Estimate) -> str:
    """The estimate in words, rounded.

    Example:
        >>> in_words(Estimate(74.0, 3 * 2**29))
        'about 1 minute at most, and 1.5 GiB of memory'
        >>> in_words(Estimate(0.4, 2**29))
        'a few seconds at most, and 0.5 GiB of memory'
    """
    units = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    length, unit = next((each for each in units if estimate.seconds >= each[0]), units[-1])
    count = float(f"{estimate.seconds / length:.1g}") if length > 1 else estimate.seconds
    time_needed = "a few seconds"
    if length > 1 or count >= 10:
        rounded = round(count) if length > 1 else 10 * round(count / 10)
        time_needed = f"about {rounded:,} {unit}{'' if rounded == 1 else 's'}"
    return f"{time_needed} at most, and {estimate.memory / 2**30:.1f} GiB of memory"
