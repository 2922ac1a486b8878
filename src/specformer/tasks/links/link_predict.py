r"""Score pairs of nodes with a trained model, or find the likeliest links that are missing."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from specformer.datasets import node_graph
from specformer.errors import ConfigError, GraphError
from specformer.graphs import Columns, Graph
from specformer.graphs.formats.csv_folder import read_edges
from specformer.tasks.job import Workplace
from specformer.tasks.links.link_work import LinkRecipe
from specformer.tasks.nodes.node_predict import NodePredictor
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.predictions import PredictionRequest, Predictions, cells, csv_text
from specformer.training.evaluation.link_objectives import link_scores
from specformer.training.runs.folder import RunFolder

#: How many links are named unless someone says.
_USUAL = 100
#: Scores that are held at once.
_MOST = 2**24


class LinkScores(NodePredictor):
    """Trained models of links; what they put out for nodes is left as it is."""

    recipe_class: ClassVar[type[NodeRecipe]] = LinkRecipe

    @property
    def loss(self) -> None:
        return None


def predict_links(run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
    """Pairs of nodes with their score, the mean log-odds of all models, and the probability.

    All edges of the graph are known to the models here, also those that were held out of training.
    """
    if request.pairs is not None and request.top is not None:
        raise ConfigError("--pairs and --top: give one of them.")
    source, columns = request.source_of(run)
    graph = node_graph(source, place.data, columns, labels=False)
    ids = graph.node_ids or tuple(map(str, range(graph.num_nodes)))
    pairs = None if request.pairs is None else torch.as_tensor(_read(request.pairs, ids, source))
    outputs = LinkScores.of_run(run).each(graph, place, request, source)
    if pairs is None:
        pairs = likeliest(outputs.to(place.device), graph, _USUAL if request.top is None else
                          request.top).cpu()  # fmt: skip
    scores = link_scores(outputs, pairs).mean(dim=0)
    named = ([ids[node] for node in end] for end in pairs.tolist())
    written = cells(scores, ".6g"), cells(scores.sigmoid(), ".6f")
    rows = list(zip(*named, *written, strict=True))
    return Predictions(csv_text(["source", "target", "score", "probability"], rows), len(rows))


def _read(path: Path, ids: tuple[str, ...], source: str) -> np.ndarray:
    """The pairs ``[2, count]`` of a table; columns are found as those of a list of edges are."""
    if not path.is_file():
        raise GraphError(f"{path}: there is no such file.")
    table, told = read_edges(path, Columns())
    ends = (told.source, told.target) if told.source else table.endpoints()
    one, other, *_ = ends or (*table.columns, None, None)
    if one is None or other is None:
        raise GraphError(f"{path}: two columns are needed, one for each end of a pair.")
    index = {name: number for number, name in enumerate(ids)}
    return np.stack([table.positions(end, index, source) for end in (one, other)])


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
