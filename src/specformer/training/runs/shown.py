r"""How a run shows itself: its curves as lines of ``metrics.jsonl``, and in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specformer.spectrum.notebook import html_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ShownRun(ABC):
    """A run that can be looked at."""

    path: Path

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """Whether the run has its result."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What was asked for."""

    @abstractmethod
    def result(self, *needed: str) -> dict[str, Any]:
        """What came out."""

    @abstractmethod
    def outputs(self) -> dict[str, np.ndarray]:
        """The arrays that reports draw."""

    def _repr_html_(self) -> str:
        """A table of what was reached, or of what was asked for where the run is not finished."""
        told = self.result() if self.is_finished else self.config()
        rows = [
            (key, str(told[key]))
            for key in ("kind", "title", "source", "dataset", "model", "recipe", "runs", "metric")
            if told.get(key) is not None
        ]
        for key in ("val", "test"):
            figures = told.get(key) or {}
            if figures.get("mean") is not None:
                spread = f" ± {figures['ci95']:.4g}" if figures.get("ci95") is not None else ""
                rows.append((key, f"{figures['mean']:.4g}{spread}"))
        if "seconds" in told:
            rows.append(("seconds", f"{told['seconds']:.1f}"))
        return html_table(str(self.path) + ("" if self.is_finished else " (not finished)"), rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw training losses by epoch, the median over runs, on these axes or on new ones."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(5, 3), layout="constrained").subplots()
        for key, curve in self.outputs().items():
            if key.endswith("/curve"):
                losses = curve[..., 0] if curve.ndim == 3 else curve
                label = key.removesuffix("/curve").partition("/")[2]
                epochs = np.arange(1, len(losses) + 1)
                axes.plot(epochs, np.nanmedian(losses.reshape(len(losses), -1), axis=1),
                          label=label)  # fmt: skip
        axes.set(xlabel="epoch", ylabel="training loss", yscale="log")
        axes.legend()
        return axes


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
