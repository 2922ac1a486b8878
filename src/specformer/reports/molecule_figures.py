r"""Pictures of learning from many graphs: what was reached, and how training went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specformer.reports import plots
from specformer.reports.contestants import Arrays, Entry, arrays_of, contestant_looks
from specformer.reports.figures import Picture, entries_by, model_names, picture
from specformer.training.graph_metrics import metric_named


def losses(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Training losses, one picture a data set."""
    looks = contestant_looks(entries)
    for name, group in entries_by(entries, "dataset").items():
        found = arrays_of(arrays, f"molecules/{name}", group, "curve", looks)
        curves = {style: curve[..., 0] for style, curve in found.items()}
        if curves:
            figure = plots.curves_plot(curves, ylabel="training loss", title=name, legend=False)
            alt = f"{name}: training loss of {model_names(curves)} by epoch."
            yield picture(figure, alt, key=curves)


def validation(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Validation figures, one picture a data set."""
    looks = contestant_looks(entries)
    for name, group in entries_by(entries, "dataset").items():
        found = arrays_of(arrays, f"molecules/{name}", group, "curve", looks)
        curves = {style: curve[..., 2] for style, curve in found.items()}
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
            yield picture(figure, alt, key=curves)
