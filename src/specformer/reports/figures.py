r"""Which pictures a run folder's arrays allow, each with what it shows in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from specformer.reports import plots
from specformer.reports.style import in_order, look
from specformer.reports.tables import Entry

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Picture:
    """An inline SVG, ready for the page."""

    svg: Markup
    wide: bool = False
    models: tuple[str, ...] = ()


def picture(figure: Figure, alt: str, *, wide: bool = False, models: Iterable[str] = ()) -> Picture:
    """Draw the figure; Matplotlib and :func:`figure_svg` have escaped all text in it.

    ``models``: whose lines need a key beside the picture.
    """
    return Picture(Markup(plots.figure_svg(figure, alt)), wide, tuple(models))


def overview(entries: Sequence[Entry]) -> Iterator[Picture]:
    """All errors on all filters, if there is more than one model to compare."""
    errors: dict[str, dict[str, float]] = {}
    for entry in entries:
        mean = (entry.get("sse") or {}).get("mean")
        if mean is not None:
            errors.setdefault(str(entry["filter"]), {})[str(entry["model"])] = float(mean)
    if len({model for row in errors.values() for model in row}) > 1:
        yield picture(plots.errors_plot(errors), "Squared error of each model on each filter.")


def learned_filters(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Responses over the true ones, one picture a filter."""
    eigenvalues = arrays.get("filters/eigenvalues")
    if eigenvalues is None:
        return
    for name, group in entries_by(entries, "filter").items():
        target = arrays.get(f"filters/{name}/target")
        responses = arrays_of(arrays, f"filters/{name}", group, "response")
        if target is None and not responses:
            continue
        figure = plots.filter_plot(
            eigenvalues,
            target,
            responses,
            counts=arrays.get("filters/counts"),
            title=name,
            formula=str(group[0].get("formula") or ""),
            legend=False,
        )
        alt = f"{name}: the responses of {model_names(responses)} over the true one."
        yield picture(figure, alt, models=responses)


def filtered_images(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Images as filtered by each model, one picture a filter, each of another image."""
    raw, titles = arrays.get("filters/raw"), arrays.get("filters/titles")
    for number, (name, group) in enumerate(entries_by(entries, "filter").items()):
        true = arrays.get(f"filters/{name}/true")
        learned = arrays_of(arrays, f"filters/{name}", group, "image")
        if true is None or not learned:
            continue
        index = number % len(true)
        title = f"{name}, {titles[index]}" if titles is not None else name
        figure = plots.image_grid(
            None if raw is None else raw[index],
            true[index],
            {model: images[index] for model, images in learned.items()},
            sse=_errors_on(group, index),
            title=title,
        )
        alt = f"{title}: the image, filtered truly and by {model_names(learned)}, and their errors."
        yield picture(figure, alt, wide=True)


def filter_attention(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Condensed attention, the mean over heads, one picture a filter."""
    for name in entries_by(entries, "filter"):
        yield from _attention(arrays.get(f"filters/{name}/attention"), name)


def filter_curves(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Training losses, one picture a filter."""
    for name, group in entries_by(entries, "filter").items():
        curves = arrays_of(arrays, f"filters/{name}", group, "curve")
        if curves:
            figure = plots.curves_plot(curves, ylabel="training loss", title=name, legend=False)
            alt = f"{name}: training loss of {model_names(curves)} by epoch."
            yield picture(figure, alt, models=curves)


def accuracies(entries: Sequence[Entry]) -> Iterator[Picture]:
    """Test accuracies with intervals, one picture a data set."""
    for name, group in entries_by(entries, "dataset").items():
        results = {
            str(entry["model"]): entry["test"]
            for entry in group
            if (entry.get("test") or {}).get("mean") is not None
        }
        if results:
            figure = plots.accuracy_plot(results, title=name)
            yield picture(figure, f"{name}: test accuracy of {model_names(results)}.")


def node_filters(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """What Specformer's heads learned, one picture a data set."""
    for name in entries_by(entries, "dataset"):
        eigenvalues = arrays.get(f"nodes/{name}/eigenvalues")
        response = arrays.get(f"nodes/{name}/specformer/response")
        if eigenvalues is not None and response is not None:
            figure = plots.heads_plot(eigenvalues, response, title=name)
            yield picture(figure, f"{name}: the response of each head of Specformer.")


def node_attention(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Condensed attention, the mean over heads, one picture a data set."""
    for name in entries_by(entries, "dataset"):
        yield from _attention(arrays.get(f"nodes/{name}/attention"), name)


def node_curves(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Validation accuracies, one picture a data set."""
    for name, group in entries_by(entries, "dataset").items():
        found = arrays_of(arrays, f"nodes/{name}", group, "curve")
        curves = {model: 100 * curve[..., 2] for model, curve in found.items()}
        if curves:
            ylabel = "validation accuracy (%)"
            figure = plots.curves_plot(curves, ylabel=ylabel, log=False, title=name, legend=False)
            alt = f"{name}: validation accuracy of {model_names(curves)} by epoch."
            yield picture(figure, alt, models=curves)


def spectra(result: Mapping[str, Any], arrays: Arrays) -> Iterator[Picture]:
    """Where the eigenvalues of the run's graphs lie."""
    filters = arrays.get("filters/eigenvalues")
    if filters is not None:
        counts = arrays.get("filters/counts")
        figure = plots.spectrum_plot(filters, counts=counts, title="image grid")
        yield picture(figure, "Spectrum of the image grid.", wide=True)
    for name in entries_by(result.get("nodes") or (), "dataset"):
        eigenvalues = arrays.get(f"nodes/{name}/eigenvalues")
        if eigenvalues is not None:
            figure = plots.spectrum_plot(eigenvalues, title=name)
            yield picture(figure, f"Spectrum of {name}.", wide=True)


def _attention(attention: np.ndarray | None, name: str) -> Iterator[Picture]:
    if attention is None or not attention.size:
        return
    mean = attention.reshape(-1, *attention.shape[-2:]).mean(axis=0)
    yield picture(plots.attention_heatmap(mean, title=name), f"{name}: {_in_words(mean)}.")


def _in_words(matrix: np.ndarray) -> str:
    rows = (
        ", ".join(f"{band} {value:.2f}" for band, value in zip(plots.BANDS, row, strict=False))
        for row in matrix
    )
    drawn = (f"{band} draws on {row}" for band, row in zip(plots.BANDS, rows, strict=False))
    return "; ".join(drawn)


def entries_by(entries: Sequence[Entry], key: str) -> dict[str, list[Entry]]:
    """Entries grouped by what they have under a key."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(str(entry[key]), []).append(entry)
    return groups


def arrays_of(
    arrays: Arrays, where: str, group: Sequence[Entry], what: str
) -> dict[str, np.ndarray]:
    """The array of that kind of every model of a group, if it is there."""
    models = in_order(str(entry["model"]) for entry in group)
    keys = {model: f"{where}/{model}/{what}" for model in models}
    return {model: arrays[key] for model, key in keys.items() if key in arrays}


def _errors_on(group: Sequence[Entry], index: int) -> dict[str, float]:
    values = {str(entry["model"]): (entry.get("sse") or {}).get("values") or [] for entry in group}
    return {model: float(found[index]) for model, found in values.items() if index < len(found)}


def model_names(models: Mapping[str, Any]) -> str:
    """Models' names in a row, for a picture's description."""
    return ", ".join(look(model).label for model in models) or "no model"
