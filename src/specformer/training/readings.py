r"""Curves as the lines of ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

#: What the columns of a curve ``[epochs, runs, columns]`` hold, and every how many epochs it is
#: read, by what was learned.
_COLUMNS = {
    "nodes": ("train_loss", "val_loss", "val_{metric}"),
    "molecules": ("train_loss", "val_loss", "val_metric"),
}
_READ_EVERY = {"filters": 10, "nodes": 10, "molecules": 1}


def readings(
    arrays: Mapping[str, np.ndarray], metric: str = "accuracy"
) -> Iterator[dict[str, Any]]:
    """An object every few epochs of every curve, one figure per run, None once it has stopped.

    ``metric`` is what nodes are judged by.
    """
    for key, curve in arrays.items():
        if not key.endswith("/curve"):
            continue
        kind = key.partition("/")[0]
        for epoch in range(0, len(curve), _READ_EVERY.get(kind, 10)):
            reading = curve[epoch]
            columns = (
                {"loss": reading}
                if reading.ndim == 1
                else dict(zip(_COLUMNS[kind], reading.T, strict=True))
            )
            yield {
                "of": key.removesuffix("/curve"),
                "epoch": epoch,
                **{
                    name.format(metric=metric): _numbers(values) for name, values in columns.items()
                },
            }


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
