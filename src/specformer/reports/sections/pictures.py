r"""Pictures that several sections share, drawn from a run folder's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import matplotlib.figure
import numpy as np
from markupsafe import Markup

from specformer.reports.looks import Look, head_looks
from specformer.reports.plots import prediction_plots, spectral_plots
from specformer.reports.plots.drawing import chart_values, within
from specformer.reports.plots.svg import figure_svg
from specformer.reports.sections.blocks import Figure, Picture
from specformer.reports.variants import Arrays, Entry, Rows

#: Most classes of a confusion matrix; more have no room for their names.
_MOST_CLASSES = 20
#: Ranges of eigenvalues that readers can choose to see a filter closer, by name.
_WINDOWS = {"near 0": (0.0, 0.2), "near 1": (0.9, 1.1), "near 2": (1.8, 2.0)}
#: Fewest eigenvalues of a window; one with fewer shows no more than the whole.
_FEWEST = 5


def picture(figure: matplotlib.figure.Figure, alt: str, **how: Any) -> Picture:
    """Draw the figure; Matplotlib and ``figure_svg`` have escaped all text in it.

    ``how``: the picture's other fields.
    """
    return Picture(Markup(figure_svg(figure, alt)), values=chart_values(figure), **how)


def median_over(count: int, what: str) -> str:
    """The end of a caption that explains lines and tints of several runs or images."""
    return f": the line is the median over {what}, the tint their range" if count > 1 else ""


def first_of(rows: Rows) -> str:
    """The end of a caption if only the first of several runs is drawn."""
    return ", in the first run" if rows.most() > 1 else ""


def model_names(looks: Iterable[Look]) -> str:
    """The models' names, for a picture's description."""
    return ", ".join(style.label for style in looks) or "no model"


def heading(entry: Entry) -> str:
    """The name of a data set, with the recipe if a model has several."""
    return f"{entry.where} ({entry.look.recipe})" if entry.look.recipe else entry.where


def windows(eigenvalues: np.ndarray) -> dict[str, tuple[float, float] | None]:
    """The whole range, and the windows that hold enough eigenvalues, by name."""
    return {"whole": None} | {
        name: (low, high)
        for name, (low, high) in _WINDOWS.items()
        if np.count_nonzero(within(eigenvalues, (low, high))) >= _FEWEST
    }


def together(
    rows: Rows, what: str, draw: Callable[..., matplotlib.figure.Figure], told: str, **how: Any
) -> Iterator[Picture]:
    """All models of a filter or data set in one picture, with a key on the page.

    ``told`` says what it shows, with ``{}`` for the models' names. ``how``: options of ``draw``.
    """
    for name, _, found in rows.found(what):
        drawn = {style: array for style, array in found.items() if len(array)}
        if drawn:
            alt = f"{name}: {told.format(model_names(drawn))}."
            yield picture(draw(drawn, title=name, **how), alt, key=tuple(drawn))


def by_epoch(
    rows: Rows, column: int | None, what: str = "", *, percent: bool = False, errors: bool = True
) -> Iterator[Picture]:
    """Readings after every epoch, one picture per filter or data set.

    Args:
        rows: of one kind.
        column: of the readings; None if they have a single one.
        what: the name of the readings; by default, validation figures of the data set's metric.
        percent: draw fractions of 1 as per cent.
        errors: lower is better.
    """
    for name, group, found in rows.found("curve"):
        if not found:
            continue
        label, metric = what, group[0].metric
        if not label:
            label, errors = f"validation {metric.label}", metric.lower
        curves = {who: each if column is None else each[..., column] for who, each in found.items()}
        if percent:
            curves = {who: 100 * each for who, each in curves.items()}
        figure = spectral_plots.curves_plot(
            curves, ylabel=label + " (%)" * percent, errors=errors, title=name
        )
        alt = f"{name}: {label} of {model_names(curves)} by epoch."
        yield picture(figure, alt, key=tuple(curves))


def heads(rows: Rows, *, points: bool = False) -> Iterator[Picture]:
    """The responses of Specformer's heads, one picture per data set and recipe.

    With ``points`` for the eigenvalues of many graphs.
    """
    for entry in rows.having("response"):
        eigenvalues = entry.arrays.get("eigenvalues")
        if eigenvalues is None:
            continue
        yield from responses_in(
            {"whole": None} if points else windows(eigenvalues),
            eigenvalues,
            entry.arrays["response"],
            entry,
            points=points,
            title=entry.where,
            subtitle=entry.look.label if entry.look.recipe else "",
        )


def responses_in(
    spans: Mapping[str, tuple[float, float] | None],
    eigenvalues: np.ndarray,
    response: np.ndarray,
    entry: Entry,
    choice: Mapping[str, str] | None = None,
    shown: bool = True,
    **how: Any,
) -> Iterator[Picture]:
    """Responses of heads in several windows, from which a reader chooses."""
    for span, window in spans.items():
        figure = spectral_plots.heads_plot(
            eigenvalues, response, window=window, legend=False, **how
        )
        yield picture(
            figure,
            f"{entry.where}: the response of each head of {entry.look.label}.",
            key=tuple(head_looks(response.shape[1])),
            choice={**(choice or {}), "λ": span},
            shown=shown and window is None,
        )


def attention(rows: Rows, *, by_head: bool = False) -> Iterator[Picture]:
    """Condensed attention, one picture per filter or data set, and recipe.

    Each shows the mean over heads; with ``by_head`` each head has its own picture.
    """
    for entry in rows.having("attention"):
        condensed, name = entry.arrays["attention"], entry.where
        if not condensed.size:
            continue
        every = condensed.reshape(-1, *condensed.shape[-2:])
        subtitle = entry.look.label if entry.look.recipe else ""
        drawn = {name: every.mean(axis=0)}
        if by_head:
            drawn = {f"{name}, head {head}": matrix for head, matrix in enumerate(every, start=1)}
        for title, matrix in drawn.items():
            figure = spectral_plots.attention_heatmap(matrix, title=title, subtitle=subtitle)
            whose = f"{title}, {subtitle}" if subtitle else title
            yield picture(figure, f"{whose}: {_in_words(matrix)}.")


def _in_words(matrix: np.ndarray) -> str:
    bands, parts = spectral_plots.BANDS, []
    for band, row in zip(bands, matrix, strict=False):
        shares = ", ".join(f"{other} {x:.2f}" for other, x in zip(bands, row, strict=False))
        parts.append(f"{band} draws on {shares}" if row.any() else f"{band} has no eigenvalue")
    return "; ".join(parts)


def predictions(rows: Rows, things: str) -> Figure:
    """Predictions against measured values."""
    told = {
        "ap": "Precision over recall, at every threshold.",
        "rocauc": "True over false positives, at every threshold.",
        "accuracy": "True over false positives, at every threshold.",
    }
    numbered = "Predicted over measured numbers, with the line where they agree."
    sentences = dict.fromkeys(told.get(entry.metric.name, numbered) for entry in rows.entries)
    runs = ", of all runs" if rows.most() > 1 else ""
    caption = " ".join([f"The test {things}{runs}.", *sentences])
    return Figure("Predictions", caption, predicted(rows))


def predicted(rows: Rows) -> Iterator[Picture]:
    """Numbers: one picture per model and target. Classes: one per target, with all models."""
    for name, group, found in rows.found("tested"):
        metric = group[0].metric
        targets = [str(target) for target in group[0].get("targets") or ()]
        if targets == ["target 0"]:  # a file that gives its only target no name
            targets = []
        count = min((tested.shape[-1] for tested in found.values()), default=0)
        if count > 1 and not targets:
            targets = [f"target {task + 1}" for task in range(count)]
        for task in range(count):
            target = targets[task] if task < len(targets) else ""
            pairs = {who: (both[1, :, task], both[0, :, task]) for who, both in found.items()}
            if metric.task != "regression":
                title = target if len(targets) > 1 else name
                precision = metric.name == "ap"
                figure = prediction_plots.threshold_plot(pairs, precision=precision, title=title)
                alt = f"{title}: how well {model_names(pairs)} parts the classes tested."
                yield picture(figure, alt, key=tuple(pairs))
                continue
            what = " · ".join(filter(None, (name, target)))
            for who, (measured, taken) in pairs.items():
                figure = prediction_plots.agreement_plot(
                    measured, taken, who, title=who.label if len(pairs) > 1 else name, target=target
                )
                yield picture(figure, f"{what}: predictions of {who.label} over measured ones.")


def confusions(rows: Rows, things: str) -> Figure:
    """Confusion matrices of Specformer, or of the only model, one per data set."""
    pictures = (
        picture(
            prediction_plots.confusion_plot(
                counts, [str(name) for name in entry.get("classes") or ()], title=heading(entry)
            ),
            f"{entry.where}: the classes that {entry.look.label} gives to the test {things} of "
            "each class.",
        )
        for entry in rows.having("confusion", ours=True)
        if len(counts := entry.arrays["confusion"]) <= _MOST_CLASSES
    )
    return Figure(
        "Confused classes",
        f"Of the test {things} of each class (row), the percentage predicted as each (column)"
        + (" by Specformer" if len(rows.looks) > 1 else "")
        + (", over all runs." if rows.most() > 1 else "."),
        pictures,
    )


def spectra(result: Mapping[str, Any], arrays: Arrays) -> Iterator[Picture]:
    """Pictures of the eigenvalues of the run's graphs."""
    filters = arrays.get("filters/eigenvalues")
    if filters is not None:
        counts = arrays.get("filters/counts")
        figure = spectral_plots.spectrum_plot(filters, counts=counts, title="image grid")
        yield picture(figure, "Spectrum of the image grid.", wide=True)
    for kind in ("nodes", "links"):
        for name, _, found in Rows.of(kind, result, arrays).found("eigenvalues"):
            # Recipes mostly share a spectrum; a different one has its own picture.
            distinct = {values.tobytes(): (style, values) for style, values in found.items()}
            for style, values in distinct.values():
                whose = f"{name}, {style.label}" if len(distinct) > 1 else name
                figure = spectral_plots.spectrum_plot(values, title=whose)
                yield picture(figure, f"Spectrum of {whose}.", wide=True)
