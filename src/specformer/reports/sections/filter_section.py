r"""A report's section: how well filters of signals were recovered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections import figures, report_tables
from specformer.reports.sections.section import (
    Figure,
    Section,
    mean_over,
    median_over,
    most,
    present,
    took,
)
from specformer.reports.variants import Arrays, Entry, arrays_by, variant_looks


def filter_section(result: dict[str, Any], arrays: Arrays) -> Iterable[Section]:
    """The section of learned filters, if the result has any."""
    entries: Sequence[Entry] = result.get("filters") or ()
    if not entries:
        return
    images, many = most(entries, "images"), len(variant_looks(entries)) > 1
    drawn = _drawn(images, arrays)
    ours = (
        f", a line the median over {drawn} and the tint around it their range" if images > 1 else ""
    )
    yield Section(
        anchor="filters",
        title="Recovering filters",
        intro=(
            "A photograph is a signal on a grid of pixels. A known filter changes its spectrum, "
            "and each model sees only the photograph and the outcome. It learns well if it finds "
            "the filter again."
        ),
        blocks=present(
            Figure(
                "Errors at a glance",
                "One row per filter, one mark per model; further left is better. The scale is "
                "logarithmic: a step from one line to the next is a factor of ten or more.",
                tuple(figures.overview(entries)),
            ),
            report_tables.comparison(
                f"Sum of squared errors{mean_over(images, 'images')}. "
                f"Lower is better{'; the best of a filter is bold' if many else ''}.",
                entries,
                across="filter",
                metric="sse",
                lower_is_better=True,
                write=numbers.error,
            ),
            report_tables.comparison(
                "R², the share of the outcome’s variance that is explained. 1 is perfect.",
                entries,
                across="filter",
                metric="r2",
                lower_is_better=False,
                write=numbers.r_squared,
            ),
            Figure(
                "Learned filters",
                "The broad grey band is the true filter, and a model that found it runs inside the "
                f"band{ours}. {_scaled(entries, arrays)}Grey hills along the bottom show where the "
                "graph has eigenvalues; where there are none, a response has nothing to act on.",
                tuple(figures.learned_filters(entries, arrays)),
                truth=True,
            ),
            Figure(
                "Filtered images",
                "The same photograph raw, after the true filter, and after each model’s. The "
                "filtered ones share one grey scale. Below each model is its absolute error on a "
                "square-root scale shared by the row: black is no error.",
                tuple(figures.filtered_images(entries, arrays)),
            ),
            Figure(
                "Which frequencies look at which",
                "Specformer’s attention between low, medium and high frequencies (thirds of the "
                "range 0 to 2), the mean of its heads for the first image. A row adds up to about "
                "1: it says from which bands the eigenvalues of that band take their information.",
                tuple(figures.attention(entries, arrays, "filters")),
                small=True,
            ),
            Figure(
                "Training",
                f"Loss by epoch on a logarithmic scale{median_over(images, drawn)}."
                + (" A line ends where the last of them stopped training." if images > 1 else ""),
                tuple(figures.filter_curves(entries, arrays)),
            ),
            report_tables.costs(took(entries, "filter", "filters"), entries, "images"),
        ),
    )


def _drawn(images: int, arrays: Arrays) -> str:
    """Which images lines are of: a run keeps the curves of a few, and the errors of all."""
    kept = arrays.get("filters/titles")
    return "images" if kept is None or len(kept) >= images else f"the first {len(kept)} images"


def _scaled(entries: Sequence[Entry], arrays: Arrays) -> str:
    """Whose curves are not the model's own: a feature network before a filter hides its scale."""
    others = [entry for entry in entries if entry["model"] != "specformer"]
    drawn = any(found for _, _, found in arrays_by(others, arrays, "filters", "response"))
    return "Curves of models other than Specformer are scaled to fit their outputs. " * drawn
