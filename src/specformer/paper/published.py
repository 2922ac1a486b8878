r"""The paper's figures, to compare ours with; they are in ``published.yaml``."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

_WRITTEN: dict[str, Any] = yaml.safe_load(
    (resources.files("specformer.paper") / "published.yaml").read_text(encoding="utf-8")
)


def _table(number: int, metric: str) -> dict[str, dict[str, Any]]:
    """A table's figures by model, or variant, and data set; missing figures are left out."""
    written = _WRITTEN[f"table_{number}"]
    return {
        name: {
            column: figure
            for column, figure in zip(written["columns"], figures, strict=True)
            if figure is not None
        }
        for name, figures in written[metric].items()
    }


#: Table 1: mean sum of squared errors over 50 images, and R².
TABLE_1: dict[str, dict[str, dict[str, float]]] = {
    model: {"sse": figures, "r2": _table(1, "r2")[model]}
    for model, figures in _table(1, "sse").items()
}
#: Table 2: mean test accuracy as a fraction of 1; sets that exceeded the paper's memory are left
#: out.
TABLE_2: dict[str, dict[str, float]] = {
    model: {name: round(figure / 100, 4) for name, figure in figures.items()}
    for model, figures in _table(2, "accuracy").items()
}
#: Table 3: test MAE on ZINC, ROC-AUC on MolHIV, average precision on MolPCBA, each with the number
#: after its ±; sets without a figure in the paper are left out.
TABLE_3: dict[str, dict[str, tuple[float, float]]] = {
    model: {name: (mean, spread) for name, (mean, spread) in figures.items()}
    for model, figures in _table(3, "metric").items()
}
#: The paper's table of PCQM4Mv2: test MAE and rounded parameters.
PCQM4MV2: dict[str, tuple[float, int]] = {
    model: (mean, parameters) for model, (mean, parameters) in _WRITTEN["pcqm4mv2"].items()
}
#: Table 4: test accuracy on two sets and average precision on MolPCBA, by variant.
TABLE_4: dict[str, dict[str, float]] = _table(4, "metric")
#: Seconds of 1000 epochs and megabytes, by data set and model, from the paper's appendix.
OVERHEAD: dict[str, dict[str, dict[str, float]]] = _WRITTEN["overhead"]
