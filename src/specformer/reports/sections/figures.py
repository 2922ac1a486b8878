r"""Which pictures a run folder's arrays allow, each with what it shows in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from specformer.reports import plots
from specformer.reports.looks import Look, head_looks
from specformer.reports.variants import (
    Arrays,
    Entry,
    Variant,
    arrays_by,
    entries_by,
    variant,
    variant_looks,
)

#: More classes have no room for their names.
_MOST_CLASSES = 20


#: Where readers look closer at a filter: what they choose it by, and the eigenvalues.
_WINDOWS = {"near 0": (0.0, 0.2), "near 1": (0.9, 1.1), "near 2": (1.8, 2.0)}
#: A window with fewer eigenvalues than these shows no more than the whole.
_FEWEST = 5


@dataclass(frozen=True)
class Picture:
    """An inline SVG, ready for the page.

    Args:
        svg: the element.
        wide: it takes the page's width.
        key: the lines that need a key beside the picture.
        values: the numbers behind it, for who points at it.
        choice: by which choices a reader gets it among others of a figure. Those that are not
            ``shown`` at first need JavaScript.
        shown: it is there before anybody chooses.
        title, note: words of its own below it.
    """

    svg: Markup
    wide: bool = False
    key: tuple[Look, ...] = ()
    values: Mapping[str, Any] | None = None
    choice: Mapping[str, str] = field(default_factory=dict)
    shown: bool = True
    title: str = ""
    note: str = ""


def picture(figure: Figure, alt: str, **how: Any) -> Picture:
    """Draw the figure; Matplotlib and ``plots.figure_svg`` have escaped all text in it.

    ``how``: the picture's other fields.
    """
    svg = Markup(plots.figure_svg(figure, alt))
    return Picture(svg, values=plots.chart_values(figure), **how)


def windows(eigenvalues: np.ndarray) -> dict[str, tuple[float, float] | None]:
    """The whole range, and windows into it that hold enough eigenvalues, by name."""
    return {"whole": None} | {
        name: (low, high)
        for name, (low, high) in _WINDOWS.items()
        if np.count_nonzero((eigenvalues >= low) & (eigenvalues <= high)) >= _FEWEST
    }


def overview(entries: Sequence[Entry]) -> Iterator[Picture]:
    """All errors on all filters, if there is more than one model to compare."""
    looks = variant_looks(entries)
    errors: dict[str, dict[Look, float]] = {}
    for entry in entries:
        mean = (entry.get("sse") or {}).get("mean")
        if mean is not None:
            errors.setdefault(str(entry["filter"]), {})[looks[variant(entry)]] = float(mean)
    if len({model for row in errors.values() for model in row}) > 1:
        alt = "Squared error of each model on each filter."
        yield picture(plots.errors_plot(errors), alt, wide=True)


def learned_filters(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Responses over the true ones, one picture per filter."""
    eigenvalues = arrays.get("filters/eigenvalues")
    if eigenvalues is None:
        return
    for name, group, responses in arrays_by(entries, arrays, "filters", "response"):
        target = arrays.get(f"filters/{name}/target")
        if target is None and not responses:
            continue
        for span, window in windows(eigenvalues).items():
            figure = plots.filter_plot(
                eigenvalues,
                target,
                responses,
                counts=arrays.get("filters/counts"),
                title=name,
                formula=str(group[0].get("formula") or ""),
                window=window,
                legend=False,
            )
            alt = f"{name}: the responses of {model_names(responses)} over the true one."
            yield picture(
                figure, alt, key=tuple(responses), choice={"λ": span}, shown=window is None
            )


def filtered_images(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Images as each model filters them: another one for each filter; of a single filter all."""
    raw, titles = arrays.get("filters/raw"), arrays.get("filters/titles")
    looks = variant_looks(entries)
    groups = list(arrays_by(entries, arrays, "filters", "image"))
    for number, (name, group, learned) in enumerate(groups):
        true = arrays.get(f"filters/{name}/true")
        if true is None or not learned:
            continue
        for index in range(len(true)) if len(groups) == 1 else [number % len(true)]:
            title = f"{name}, {titles[index]}" if titles is not None else name
            figure = plots.image_grid(
                None if raw is None else raw[index],
                true[index],
                {model: images[index] for model, images in learned.items()},
                sse=_errors_on(group, index, looks),
                title=title,
            )
            whose = f"filtered truly and by {model_names(learned)}"
            yield picture(figure, f"{title}: the image, {whose}, and their errors.", wide=True)


def filter_curves(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Training losses, one picture per filter."""
    for name, _, curves in arrays_by(entries, arrays, "filters", "curve"):
        yield from by_epoch(curves, name, "training loss")


def accuracies(entries: Sequence[Entry]) -> Iterator[Picture]:
    """Test accuracies with intervals, one picture per data set."""
    looks = variant_looks(entries)
    for name, group in entries_by(entries, "dataset").items():
        results = {
            looks[variant(entry)]: entry["test"]
            for entry in group
            if (entry.get("test") or {}).get("mean") is not None
        }
        if results:
            figure = plots.accuracy_plot(results, title=name)
            yield picture(figure, f"{name}: test accuracy of {model_names(results)}.")


def heads(
    entries: Sequence[Entry], arrays: Arrays, kind: str, *, points: bool = False
) -> Iterator[Picture]:
    """What Specformer's heads learned, one picture per data set and recipe.

    With points where there are many graphs.
    """
    both = (arrays_by(entries, arrays, kind, what) for what in ("eigenvalues", "response"))
    for (name, _, eigenvalues), (_, _, responses) in zip(*both, strict=True):
        for style, response in responses.items():
            if style not in eigenvalues:
                continue
            subtitle = style.label if style.recipe else ""
            alt = f"{name}: the response of each head of {style.label}."
            spans = {"whole": None} if points else windows(eigenvalues[style])
            for span, window in spans.items():
                figure = plots.heads_plot(
                    eigenvalues[style],
                    response,
                    points=points,
                    title=name,
                    subtitle=subtitle,
                    window=window,
                    legend=False,
                )
                yield picture(
                    figure,
                    alt,
                    key=tuple(head_looks(response.shape[1])),
                    choice={"λ": span},
                    shown=window is None,
                )


def confusions(
    entries: Sequence[Entry], arrays: Arrays, kind: str, things: str
) -> Iterator[Picture]:
    """Which classes are taken for which by ours, or by the only model; one picture per data set."""
    for name, group, found in arrays_by(entries, arrays, kind, "confusion"):
        for style, counts in found.items():
            if len(counts) > _MOST_CLASSES or not (style.ours or len(found) == 1):
                continue
            names = [str(label) for label in group[0]["classes"]]
            heading = name if not style.recipe else f"{name} ({style.recipe})"
            figure = plots.confusion_plot(counts, names, title=heading)
            alt = (
                f"{name}: the classes that {style.label} gives to the test {things} of each class."
            )
            yield picture(figure, alt)


def node_curves(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Validation accuracies, one picture per data set."""
    for name, _, found in arrays_by(entries, arrays, "nodes", "curve"):
        curves = {style: 100 * curve[..., 2] for style, curve in found.items()}
        yield from by_epoch(curves, name, "validation accuracy", unit=" (%)", errors=False)


def by_epoch(
    curves: Mapping[Look, np.ndarray], name: str, what: str, *, unit: str = "", errors: bool = True
) -> Iterator[Picture]:
    """Readings after every epoch, ``[epochs]`` or ``[epochs, runs]``, if there are any."""
    if curves:
        figure = plots.curves_plot(
            curves, ylabel=f"{what}{unit}", errors=errors, title=name, legend=False
        )
        alt = f"{name}: {what} of {model_names(curves)} by epoch."
        yield picture(figure, alt, key=tuple(curves))


def spectra(result: Mapping[str, Any], arrays: Arrays) -> Iterator[Picture]:
    """Where the eigenvalues of the run's graphs lie."""
    filters = arrays.get("filters/eigenvalues")
    if filters is not None:
        counts = arrays.get("filters/counts")
        figure = plots.spectrum_plot(filters, counts=counts, title="image grid")
        yield picture(figure, "Spectrum of the image grid.", wide=True)
    nodes: Sequence[Entry] = result.get("nodes") or ()
    for name, _, found in arrays_by(nodes, arrays, "nodes", "eigenvalues"):
        # Recipes mostly share a spectrum; one that is cut elsewhere has a picture of its own.
        distinct = {values.tobytes(): (style, values) for style, values in found.items()}
        for style, values in distinct.values():
            whose = f"{name}, {style.label}" if len(distinct) > 1 else name
            figure = plots.spectrum_plot(values, title=whose)
            yield picture(figure, f"Spectrum of {whose}.", wide=True)


def attention(
    entries: Sequence[Entry], arrays: Arrays, kind: str, *, by_head: bool = False
) -> Iterator[Picture]:
    """Condensed attention, one picture per filter or data set, and recipe.

    It shows the mean over heads; with ``by_head`` each has a picture of its own.
    """
    for name, _, found in arrays_by(entries, arrays, kind, "attention"):
        for style, condensed in found.items():
            if not condensed.size:
                continue
            every = condensed.reshape(-1, *condensed.shape[-2:])
            subtitle = style.label if style.recipe else ""
            drawn = (
                {f"{name}, head {number}": matrix for number, matrix in enumerate(every, start=1)}
                if by_head
                else {name: every.mean(axis=0)}
            )
            for title, matrix in drawn.items():
                figure = plots.attention_heatmap(matrix, title=title, subtitle=subtitle)
                whose = f"{title}, {subtitle}" if subtitle else title
                yield picture(figure, f"{whose}: {_in_words(matrix)}.")


def _in_words(matrix: np.ndarray) -> str:
    rows = (
        ", ".join(f"{band} {value:.2f}" for band, value in zip(plots.BANDS, row, strict=False))
        for row in matrix
    )
    drawn = (
        f"{band} draws on {row}" if shares.any() else f"{band} has no eigenvalue"
        for band, row, shares in zip(plots.BANDS, rows, matrix, strict=False)
    )
    return "; ".join(drawn)


def _errors_on(
    group: Sequence[Entry], index: int, looks: Mapping[Variant, Look]
) -> dict[Look, float]:
    values = {
        looks[variant(entry)]: (entry.get("sse") or {}).get("values") or [] for entry in group
    }
    return {style: float(found[index]) for style, found in values.items() if index < len(found)}


def model_names(looks: Iterable[Look]) -> str:
    """Names in a row, for a picture's description."""
    return ", ".join(style.label for style in looks) or "no model"
