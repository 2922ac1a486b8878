r"""A run's curves as lines of ``metrics.jsonl`` and as a picture, and its figures as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from specformer.spectrum.notebook import axes_or_new, html_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What the columns of a curve ``[epochs, runs, columns]`` hold, and every how many epochs it is
#: read, by what was learned.
_COLUMNS = {
    "nodes": ("train_loss", "val_loss", "val_{metric}"),
    "links": ("train_loss", "val_loss", "val_{metric}"),
    "molecules": ("train_loss", "val_loss", "val_metric"),
}
_READ_EVERY = {"filters": 10, "nodes": 10, "links": 10, "molecules": 1}


def readings(
    arrays: Mapping[str, np.ndarray], metric: str = "accuracy"
) -> Iterator[dict[str, Any]]:
    """An object every few epochs of every curve, one figure per run, None once it has stopped.

    ``metric`` is what nodes and links are judged by.
    """
    for name, curve in _curves(arrays):
        kind = name.partition("/")[0]
        titles = _COLUMNS[kind] if curve.ndim == 3 else ("loss",)
        for epoch in range(0, len(curve), _READ_EVERY.get(kind, 10)):
            columns = zip(titles, np.atleast_2d(curve[epoch].T), strict=True)
            figures = {title.format(metric=metric): _numbers(each) for title, each in columns}
            yield {"of": name, "epoch": epoch, **figures}


def _curves(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    for key, curve in arrays.items():
        if key.endswith("/curve"):
            yield key.removesuffix("/curve"), curve


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def run_table(title: str, told: Mapping[str, Any]) -> str:
    """A result, or the configuration of an unfinished run, as an HTML table."""
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
    return html_table(title, rows)


def plot_losses(arrays: Mapping[str, np.ndarray], axes: Axes | None) -> Axes:
    """Training losses by epoch, the median over runs, on these axes or on new ones."""
    axes = axes_or_new(axes)
    for name, curve in _curves(arrays):
        losses = (curve[..., 0] if curve.ndim == 3 else curve).reshape(len(curve), -1)
        epochs = np.arange(1, len(losses) + 1)
        axes.plot(epochs, np.nanmedian(losses, axis=1), label=name.partition("/")[2])
    axes.set(xlabel="epoch", ylabel="training loss", yscale="log")
    axes.legend()
    return axes


def plot_learned(arrays: Mapping[str, np.ndarray], axes: Axes | None) -> Axes:
    """Each head's response over the eigenvalues; training losses for a model without filters."""
    where = next((key.removesuffix("response") for key in arrays if key.endswith("/response")), "")
    if f"{where}eigenvalues" not in arrays:
        return plot_losses(arrays, axes)
    axes = axes_or_new(axes)
    values, response = arrays[f"{where}eigenvalues"], arrays[f"{where}response"]
    order = np.argsort(values)
    marks = "." if where.startswith("molecules/") else "-"  # many graphs' eigenvalues are no line
    for head, line in enumerate(response[order].T, start=1):
        axes.plot(values[order], line, marks, label=f"head {head}")
    axes.set(xlabel="eigenvalue λ", ylabel="response")
    axes.legend()
    return axes
