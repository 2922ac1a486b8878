r"""Figures the paper reports, to stand beside ours; they are in ``published.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import yaml

_WRITTEN: dict[str, Any] = yaml.safe_load(
    (resources.files("specformer.paper") / "published.yaml").read_text(encoding="utf-8")
)


def _by_column(columns: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Each row's figures by column; a column without a figure is left out."""
    return {
        name: {
            column: figure
            for column, figure in zip(columns, figures, strict=True)
            if figure is not None
        }
        for name, figures in rows.items()
    }


def _table(number: int) -> dict[str, dict[str, Any]]:
    """By metric, a table's figures by model, or variant, and data set."""
    columns, *rest = _WRITTEN[f"table_{number}"].items()
    return {metric: _by_column(columns[1], rows) for metric, rows in rest}


#: Table 1: mean sum of squared errors over 50 images, and R².
TABLE_1: dict[str, dict[str, dict[str, float]]] = {
    model: {metric: rows[model] for metric, rows in _table(1).items()} for model in _table(1)["sse"]
}
#: Table 2: mean test accuracy as a fraction of 1; a set on which a model ran out of the paper's
#: memory is left out.
TABLE_2: dict[str, dict[str, float]] = {
    model: {name: round(figure / 100, 4) for name, figure in figures.items()}
    for model, figures in _table(2)["accuracy"].items()
}
#: Table 3: test MAE on ZINC, ROC-AUC on MolHIV, average precision on MolPCBA, each with what
#: stands behind its ±; a set the paper has no figure for is left out.
TABLE_3: dict[str, dict[str, tuple[float, float]]] = {
    model: {name: (mean, spread) for name, (mean, spread) in figures.items()}
    for model, figures in _table(3)["metric"].items()
}
#: The paper's table of PCQM4Mv2: test MAE and parameters, which it rounds.
PCQM4MV2: dict[str, tuple[float, int]] = {
    model: (mean, parameters) for model, (mean, parameters) in _WRITTEN["pcqm4mv2"].items()
}
#: Table 4: test accuracy on two sets and average precision on MolPCBA, by variant.
TABLE_4: dict[str, dict[str, float]] = _table(4)["metric"]
#: Seconds of 1000 epochs and megabytes, by data set and model, from the paper's appendix.
OVERHEAD: dict[str, dict[str, dict[str, float]]] = _WRITTEN["overhead"]
