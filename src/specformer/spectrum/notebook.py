"""How spectra and other results are shown in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from specformer.spectrum.eigenpairs import Tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Bins of a histogram, and the width and height of its drawing.
_BINS, _SIZE = 64, (320, 70)


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """An HTML table of two columns."""
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{body}</table>"


class Shown(ABC):
    """Base of both kinds of spectra: draws where eigenvalues lie."""

    @property
    @abstractmethod
    def _density(self) -> Tokens:
        """Eigenvalues, or points that stand for them, and how many each stands for."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """What is shown in a table, by name."""

    def _repr_html_(self) -> str:
        rows = [(key.replace("_", " "), f"{value}") for key, value in self.summary().items()]
        values, weights = (part.cpu().numpy() for part in self._density)
        return html_table(type(self).__name__, rows) + density_svg(values, weights)

    def plot(self, axes: Axes | None = None, **how: Any) -> Axes:
        """Draw a histogram of eigenvalues on these axes or new ones; ``how`` goes to ``hist``.

        Example:
            >>> import torch, specformer as sf
            >>> axes = sf.decompose(torch.tensor([[0, 1], [1, 2]]), num_nodes=3).plot()
            >>> axes.get_xlabel()
            'eigenvalue λ'
        """
        axes = axes_or_new(axes)
        values, weights = (part.cpu().numpy() for part in self._density)
        axes.hist(values, **{"bins": _BINS, "range": (0.0, 2.0), "weights": weights, **how})
        axes.set(xlabel="eigenvalue λ", ylabel="eigenvalues in a bin")
        return axes


def density_svg(eigenvalues: np.ndarray, weights: np.ndarray) -> str:
    """A histogram of weighted eigenvalues in [0, 2] as SVG."""
    counts, _ = np.histogram(eigenvalues, _BINS, range=(0.0, 2.0), weights=weights)
    width, height = _SIZE
    step, scale = width / _BINS, height / max(1, counts.max(initial=0))
    bars = "".join(
        f'<rect x="{step * place:.1f}" y="{height - scale * count:.1f}" width="{step - 1:.1f}" '
        f'height="{scale * count:.1f}"/>'
        for place, count in enumerate(counts.tolist())
        if count
    )
    return (
        f'<svg width="{width}" height="{height}" role="img" fill="#4ba3dd" '
        f'aria-label="eigenvalues from 0 to 2">{bars}</svg>'
    )


def axes_or_new(axes: Axes | None) -> Axes:
    """These axes, or new ones of a pyplot figure, which notebooks show automatically."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.figure(figsize=(5, 3), layout="constrained").subplots()
    return axes
