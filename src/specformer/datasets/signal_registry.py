r"""Names of sets of signals, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specformer.datasets.locate import search
from specformer.datasets.photographs import photographs
from specformer.datasets.signals import IMAGES_FILE, SignalSet, paper_images
from specformer.errors import GraphError

#: What is known by name, and what it is.
SIGNAL_SETS = {
    "photographs": "photographs of scikit-image",
    "grid-images": "the paper's images",
}

#: The paper's: fifty images of 100 × 100 pixels.
_PAPER = {"signals": 50, "nodes": 10_000, "edges": 19_800}

#: The named set that the installed packages hold.
EMBEDDED = "photographs"


def named_signals(name: str, data: str | Path | None = None) -> SignalSet:
    """The signals of that name.

    Args:
        name: one of ``SIGNAL_SETS``.
        data: folder searched first.

    Example:
        >>> len(named_signals("photographs").signals)
        4
    """
    return photographs() if name == EMBEDDED else paper_images(data)


def survey_signals(data: str | Path | None = None) -> list[dict[str, Any]]:
    """What is known of every named set, a row each.

    ``name``, ``about``, ``state`` (``"embedded"``, ``"found"``, ``"damaged"`` or ``"not found"``),
    ``path``, the number of ``signals``, and ``nodes`` and ``edges`` of the graph they are on.

    Example:
        >>> survey_signals()[0]["state"]
        'embedded'
    """
    return [_survey_one(name, data) for name in SIGNAL_SETS]


def _survey_one(name: str, data: str | Path | None) -> dict[str, Any]:
    path = None if name == EMBEDDED else search(IMAGES_FILE, data)
    row: dict[str, Any] = {"name": name, "about": SIGNAL_SETS[name]}
    row["path"] = None if path is None else str(path)
    if name != EMBEDDED and path is None:
        return row | {"state": "not found"} | _PAPER
    try:
        found = named_signals(name, data)
    except GraphError:
        return row | {"state": "damaged"} | _PAPER
    return row | {
        "state": "embedded" if name == EMBEDDED else "found",
        "signals": len(found.signals),
        "nodes": found.graph.num_nodes,
        "edges": found.graph.num_edges,
    }
