r"""Predict for molecules with trained models; rows without a prediction say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets import GRAPH_SETS, graph_set
from specformer.errors import ConfigError, RunError
from specformer.graphs import Columns, GraphSet, read_molecules
from specformer.graphs.formats.smiles import BadMolecule, Molecules, NoMoleculeError, read_smiles
from specformer.graphs.formats.table_file import is_of_molecules
from specformer.tasks.graphs.graph_insights import ordered_outputs
from specformer.tasks.graphs.graph_models import load_graph_models, packed_for, same_columns
from specformer.tasks.graphs.graph_recipe import GraphRecipe, built_recipe
from specformer.tasks.graphs.graph_work import graph_spectra
from specformer.tasks.job import Workplace
from specformer.tasks.task import (
    PredictionRequest,
    Predictions,
    cells,
    csv_text,
    spread,
    target_columns,
)
from specformer.training.evaluation.graph_metrics import predictions
from specformer.training.evaluation.graphs import Placed
from specformer.training.runs.folder import RunFolder

#: Names of the columns of :mod:`specformer.graphs.formats.smiles`, for messages.
_ATOM_FEATURES = (
    "element", "chirality", "degree", "charge", "hydrogens", "radical electrons", "hybridisation",
    "aromaticity", "ring",
)  # fmt: skip
_BOND_FEATURES = ("type", "stereo", "conjugation")


@dataclass(frozen=True)
class _Line:
    """One row of the source, with its graph's number or an error; graphs may have no SMILES."""

    row: int
    name: str
    smiles: str | None
    graph: int | None = None
    error: str = ""


def predict_molecules(run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
    """Predictions for SMILES, for a file of molecules or graphs, or for those trained on.

    One column ``prediction`` per target, with ``probability`` where it is a class, that of 1;
    classes that have names, or are several, have one column each. Then ``spread``, the standard
    deviation over the models, where there are several; and ``error``.
    """
    if request.smiles and request.graph:
        raise ConfigError("`--smiles` and `--graph`: use only one of them.")
    for text in request.smiles:
        if Path(text).suffix and Path(text).is_file():
            raise ConfigError(f"`--smiles {text}`: this is a file; use `--graph {text}`.")
    result = run.result("model", "settings", "seen", "targets")
    recipe = built_recipe(result["model"], result["settings"], "result.json: settings")
    try:
        graphs, lines = _read(request, *request.source_of(run), place.data)
    except NoMoleculeError as error:  # each still gets its row
        if not error.problems:
            raise
        graphs, lines = None, _unreadable(error.problems)
    models = load_graph_models(run)
    found = torch.empty(len(models), 0, models[0].config["out_channels"])
    known: list[int] = []
    if graphs is not None:
        same_columns(graphs, models[0])
        strange = strange_graphs(graphs, result["seen"])
        lines = [
            replace(line, graph=None, error=strange[line.graph])
            if line.graph is not None and line.graph in strange
            else line
            for line in lines
        ]
        known = [number for number in range(len(graphs)) if number not in strange]
        if known:
            # A handful of molecules is solved faster than looked up; a file may come again.
            here = replace(place, cache=None) if request.smiles else place
            found = predict_graphs(models, graphs.subset(known), recipe, here)
    columns = (
        _of_classes(found, result["classes"])
        if result.get("classes")
        else target_columns(found, result["targets"], labels=recipe.loss == "bce")
    )
    places = {number: place for place, number in enumerate(known)}
    molecules = any(line.smiles is not None for line in lines)
    rows = []
    for line in lines:
        own = [""] * len(columns)
        if line.graph is not None:
            own = [column[places[line.graph]] for column in columns.values()]
        rows.append([line.name, *([line.smiles] if molecules else []), *own, line.error])
    text = csv_text(["id", *(["smiles"] if molecules else []), *columns, "error"], rows)
    problems = [
        str(BadMolecule(line.row, line.name if line.smiles is None else line.smiles, line.error))
        for line in lines
        if line.error
    ]
    return Predictions(text, len(lines), problems)


def predict_graphs(
    models: Sequence[nn.Module], graphs: GraphSet, recipe: GraphRecipe, place: Workplace
) -> Tensor:
    """Predictions of each model ``[models, G, tasks]``; for two classes, the probability of 1.

    For one target with several classes, the probability of each ``[models, G, classes]``.
    """
    device = place.device
    store = packed_for(models[0], graphs, graph_spectra(graphs, recipe, place)).placed(device)
    each = (Placed(model.to(device), recipe.precision, device) for model in models)
    return torch.stack(
        [predictions(recipe.loss, ordered_outputs(placed, store)) for placed in each]
    )


def _read(
    request: PredictionRequest, source: str, columns: Columns, data: Path | None
) -> tuple[GraphSet, list[_Line]]:
    """The graphs, and a line for each row of the source."""
    if request.smiles:
        return _lines(read_smiles(request.smiles))
    if source in GRAPH_SETS or not is_of_molecules(source):
        graphs = graph_set(source, data)
        texts = graphs.smiles or (None,) * len(graphs)
        names = graphs.ids or tuple(map(str, range(len(graphs))))
        return graphs, [
            _Line(number, name, text, number)
            for number, (name, text) in enumerate(zip(names, texts, strict=True))
        ]
    if not Path(source).is_file():
        raise RunError(f"{source}: no such file of molecules; name one with --graph.")
    return _lines(read_molecules(source, replace(columns, targets=(), split=None)))


def _lines(found: Molecules) -> tuple[GraphSet, list[_Line]]:
    """A line for each row of the source, in its order."""
    graphs = found.graphs
    assert graphs.smiles is not None
    names = graphs.ids or tuple(map(str, found.rows))
    good = [
        _Line(row, name, text, number)
        for number, (row, name, text) in enumerate(
            zip(found.rows, names, graphs.smiles, strict=True)
        )
    ]
    return graphs, sorted([*good, *_unreadable(found.problems)], key=lambda line: line.row)


def _unreadable(problems: Sequence[BadMolecule]) -> list[_Line]:
    return [
        _Line(bad.row, str(bad.row) if bad.id is None else bad.id, bad.smiles, None, bad.reason)
        for bad in problems
    ]


def strange_graphs(graphs: GraphSet, seen: dict[str, Any]) -> dict[int, str]:
    """Graphs with an atom or bond that no training graph had, and in which feature it differs."""
    found: dict[int, str] = {}
    for what, feature, counts, names in (
        ("an atom", graphs.node_feat, graphs.num_nodes, _ATOM_FEATURES),
        ("a bond", graphs.edge_feat, graphs.num_edges, _BOND_FEATURES),
    ):
        owner = np.repeat(np.arange(len(graphs)), counts)
        named = feature.shape[1] == len(names) and graphs.smiles is not None
        for column, known in enumerate(seen[f"{what.split()[1]}s"]):
            name = names[column] if named else f"feature {column}"
            for number in np.unique(owner[~np.isin(feature[:, column], known)]).tolist():
                found.setdefault(number, f"has {what} unlike any learned from ({name})")
    return found


def _of_classes(found: Tensor, names: Sequence[str]) -> dict[str, list[str]]:
    """By name, the cells of probabilities ``[models, G, classes]``, or of class 1 alone.

    The spread is that of the predicted class's probability.
    """
    if found.shape[2] == 1:
        found = torch.cat([1.0 - found, found], dim=2)
    mean = found.mean(dim=0)
    best = mean.argmax(dim=1, keepdim=True)
    columns = {"prediction": [names[number] for number in best[:, 0].tolist()]}
    for number, name in enumerate(names):
        columns[f"probability({name})"] = cells(mean[:, number], ".6f")
    if len(found) > 1:
        columns["spread"] = cells(spread(found).gather(1, best)[:, 0], ".3g")
    return columns
