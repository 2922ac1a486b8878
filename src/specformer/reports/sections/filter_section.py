r"""A report's section: how well filters of signals were recovered."""

from __future__ import annotations

from collections.abc import Iterator

from specformer.reports import numbers
from specformer.reports.looks import Look
from specformer.reports.plots import prediction_plots, spectral_plots
from specformer.reports.sections import pictures
from specformer.reports.sections.blocks import Figure, Picture, Section
from specformer.reports.sections.pictures import picture
from specformer.reports.sections.report_tables import comparison, costs, mean_over
from specformer.reports.variants import Rows


def filter_section(rows: Rows) -> Section:
    """The section of learned filters."""
    images, many = rows.most("images"), len(rows.looks) > 1
    # A run keeps the curves of a few images, and the errors of all.
    kept = rows.get("titles")
    drawn = "images" if kept is None or len(kept) >= images else f"the first {len(kept)} images"
    ours = (
        f", a line the median over {drawn} and the tint around it their range" if images > 1 else ""
    )
    # A feature network before a filter hides the filter's scale.
    others = any(entry["model"] != "specformer" for entry in rows.having("response"))
    scaled = "Curves of models other than Specformer are scaled to fit their outputs. " * others
    return Section(
        anchor="filters",
        title="Recovering filters",
        intro=(
            "A photograph is a signal on a grid of pixels. A known filter changes its spectrum, "
            "and each model sees only the photograph and the outcome. It learns well if it finds "
            "the filter again."
        ),
        blocks=(
            Figure(
                "Errors at a glance",
                "One row per filter, one mark per model; further left is better. The scale is "
                "logarithmic: a step from one line to the next is a factor of ten or more.",
                overview(rows),
            ),
            comparison(
                f"Sum of squared errors{mean_over(images, 'images')}. "
                f"Lower is better{'; the best of a filter is bold' if many else ''}.",
                rows,
                across="filter",
                metric="sse",
                lower=True,
            ),
            comparison(
                "R², the share of the outcome’s variance that is explained. 1 is perfect.",
                rows,
                across="filter",
                metric="r2",
                lower=False,
                write=numbers.r_squared,
            ),
            Figure(
                "Learned filters",
                "The broad grey band is the true filter, and a model that found it runs inside the "
                f"band{ours}. {scaled}Grey hills along the bottom show where the "
                "graph has eigenvalues; where there are none, a response has nothing to act on.",
                learned_filters(rows),
                truth=True,
            ),
            Figure(
                "Filtered images",
                "The same photograph raw, after the true filter, and after each model’s. The "
                "filtered ones share one grey scale. Below each model is its absolute error on a "
                "square-root scale shared by the row: black is no error.",
                filtered_images(rows),
            ),
            Figure(
                "Attention",
                "Specformer’s attention between low, medium and high frequencies (thirds of the "
                "range 0 to 2), the mean of its heads for the first image. A row adds up to about "
                "1: it says from which bands the eigenvalues of that band take their information.",
                pictures.attention(rows),
                small=True,
            ),
            Figure(
                "Training",
                f"Loss by epoch{pictures.median_over(images, drawn)}."
                + (" A line ends where the last of them stopped training." if images > 1 else ""),
                pictures.by_epoch(rows, None, "training loss"),
            ),
            costs(rows),
        ),
    )


def overview(rows: Rows) -> Iterator[Picture]:
    """All errors on all filters, if there is more than one model to compare."""
    errors: dict[str, dict[Look, float]] = {}
    for entry in rows.entries:
        if (mean := entry.reached.get("mean")) is not None:
            errors.setdefault(entry.where, {})[entry.look] = float(mean)
    if len({model for row in errors.values() for model in row}) > 1:
        alt = "Squared error of each model on each filter."
        yield picture(prediction_plots.errors_plot(errors), alt, wide=True)


def learned_filters(rows: Rows) -> Iterator[Picture]:
    """Responses over the true ones, one picture per filter."""
    eigenvalues = rows.get("eigenvalues")
    if eigenvalues is None:
        return
    for name, group, responses in rows.found("response"):
        target = rows.get(f"{name}/target")
        if target is None and not responses:
            continue
        for span, window in pictures.windows(eigenvalues).items():
            figure = spectral_plots.filter_plot(
                eigenvalues,
                target,
                responses,
                counts=rows.get("counts"),
                title=name,
                formula=str(group[0].get("formula") or ""),
                window=window,
                legend=False,
            )
            names = pictures.model_names(responses)
            alt = f"{name}: the responses of {names} over the true one."
            yield picture(
                figure, alt, key=tuple(responses), choice={"λ": span}, shown=window is None
            )


def filtered_images(rows: Rows) -> Iterator[Picture]:
    """Filtered images of each model: one image per filter, or all images of a single filter."""
    raw, titles = rows.get("raw"), rows.get("titles")
    groups = list(rows.found("image"))
    for number, (name, group, learned) in enumerate(groups):
        true = rows.get(f"{name}/true")
        if true is None or not learned:
            continue
        errors = {entry.look: entry.reached.get("values") or [] for entry in group}
        for index in range(len(true)) if len(groups) == 1 else [number % len(true)]:
            title = f"{name}, {titles[index]}" if titles is not None else name
            figure = spectral_plots.image_grid(
                None if raw is None else raw[index],
                true[index],
                {model: images[index] for model, images in learned.items()},
                sse={who: float(own[index]) for who, own in errors.items() if index < len(own)},
                title=title,
            )
            whose = f"filtered truly and by {pictures.model_names(learned)}"
            yield picture(
                figure, f"{title}: the image, {whose}, and their errors.", wide=len(learned) > 2
            )
