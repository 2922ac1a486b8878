r"""Pictures of learning from many graphs: what was reached, and how training went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specformer.reports import plots
from specformer.reports.figures import Arrays, Picture, arrays_of, entries_by, model_names, picture
from specformer.reports.tables import Entry
from specformer.training.graph_metrics import metric_named


def losses(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Training losses, one picture a data set."""
    for name, group in entries_by(entries, "dataset").items():
        found = arrays_of(arrays, f"molecules/{name}", group, "curve")
        curves = {model: curve[..., 0] for model, curve in found.items()}
        if curves:
            figure = plots.curves_plot(curves, ylabel="training loss", title=name, legend=False)
            alt = f"{name}: training loss of {model_names(curves)} by epoch."
            yield picture(figure, alt, models=curves)


def validation(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Validation figures, one picture a data set."""
    for name, group in entries_by(entries, "dataset").items():
        found = arrays_of(arrays, f"molecules/{name}", group, "curve")
        curves = {model: curve[..., 2] for model, curve in found.items()}
        if curves:
            metric = metric_named(str(group[0]["metric"]))
            figure = plots.curves_plot(
                curves,
                ylabel=f"validation {metric.label}",
                log=metric.lower,
                title=name,
                legend=False,
            )
            alt = f"{name}: validation {metric.label} of {model_names(curves)} by epoch."
            yield picture(figure, alt, models=curves)
