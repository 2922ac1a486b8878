r"""The paper's ablations (Table 4): Specformer with parts of its encoder left out, by sharing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from specformer.errors import check_known
from specformer.paper.published import TABLE_4
from specformer.paper.table2 import table2
from specformer.paper.table3 import table3
from specformer.paper.table_rows import VARIANT_NAMES
from specformer.reports.variants import array_name
from specformer.tasks.job import Workplace

#: What a variant changes in the recipe ``paper``.
VARIANTS: dict[str, tuple[str, ...]] = {
    "bare": ("model.encoding=false", "model.attention=false", "model.sharing=medium"),
    "encoding": ("model.attention=false", "model.sharing=medium"),
    "medium": ("model.sharing=medium",),
    "small": ("model.sharing=small",),
    "large": ("model.sharing=large",),
}
#: Of single graphs and of many.
NODE_SETS, GRAPH_SETS = ("squirrel", "citeseer"), ("molpcba",)
DATASETS = (*NODE_SETS, *GRAPH_SETS)
_MODEL, _RECIPE = "specformer", "paper"

#: A result, and the arrays of a report.
Outcome = tuple[dict[str, Any], dict[str, np.ndarray]]


def table4(
    *,
    datasets: Sequence[str] = DATASETS,
    recipes: Sequence[str] | None = None,
    runs: int = 10,
    assignments: Sequence[str] = (),
    place: Workplace,
    seed: int = 0,
    begin: Callable[[], Path | None] = lambda: None,
) -> Outcome:
    """Run the ablations, or the part of them that is asked for.

    Each of :data:`VARIANTS`, or those named in ``recipes``, trains as Tables 2 and 3 do. ``begin``
    is as in :func:`specformer.paper.table3.table3`.

    Returns the result and the arrays of a report.
    """
    chosen = list(VARIANTS) if recipes is None else recipes
    check_known("variant", VARIANTS, *chosen)
    check_known("data set", DATASETS, *datasets)
    folder = begin()
    common: dict[str, Any] = {"models": [_MODEL], "recipes": [_RECIPE], "runs": runs}
    common |= {"place": place, "seed": seed}
    parts: list[Outcome] = []
    for variant in chosen:
        common["assignments"] = [*VARIANTS[variant], *assignments]
        nodes, many = (
            [name for name in datasets if name in own] for own in (NODE_SETS, GRAPH_SETS)
        )
        if nodes:
            parts.append(_of_variant(variant, *table2(datasets=nodes, **common)))
        if many:
            inside = partial(_within, folder, variant)
            parts.append(_of_variant(variant, *table3(datasets=many, begin=inside, **common)))
    return _joined(parts)


def _within(folder: Path | None, name: str) -> Path | None:
    """A folder of that name, for the checkpoints of one variant."""
    if folder is None:
        return None
    (folder / name).mkdir(exist_ok=True)
    return folder / name


def _of_variant(variant: str, result: dict[str, Any], arrays: dict[str, np.ndarray]) -> Outcome:
    """A part of the table under its variant's name, beside the paper's figures for it."""
    renamed = {"recipe": variant}
    rows = [{**row, **renamed, "paper": TABLE_4[variant][row["dataset"]]} for row in result["rows"]]
    entries: dict[str, Any] = {
        kind: [{**entry, **renamed, "label": VARIANT_NAMES[variant]} for entry in result[kind]]
        for kind in ("nodes", "molecules")
        if kind in result
    }
    before, after = array_name(_MODEL, _RECIPE), array_name(_MODEL, variant)
    recipes = {variant: result["recipes"][_RECIPE]}
    return (
        {**result, **entries, "rows": rows, "recipes": recipes},
        {key.replace(before, after): array for key, array in arrays.items()},
    )


def _joined(parts: Sequence[Outcome]) -> Outcome:
    recipes: dict[str, dict[str, Any]] = {}
    spectra: dict[str, dict[str, Any]] = {}
    arrays: dict[str, np.ndarray] = {}
    for result, own in parts:
        for variant, used in result["recipes"].items():
            recipes.setdefault(variant, {}).update(used)
        spectra |= {each["name"]: each for each in result.get("spectra", ())}
        arrays |= own

    def every(kind: str) -> list[dict[str, Any]]:
        return [entry for result, _ in parts for entry in result.get(kind, ())]

    joined = {
        "table": 4,
        "title": "Ablations (Table 4)",
        "seconds": sum(result["seconds"] for result, _ in parts),
        "recipes": recipes,
        "spectra": list(spectra.values()),
        "rows": every("rows"),
        **{kind: every(kind) for kind in ("nodes", "molecules") if every(kind)},
    }
    return joined, arrays
