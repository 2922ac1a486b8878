r"""Pictures of learning from many graphs: what was reached, and how training went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from specformer.reports import plots
from specformer.reports.contestants import Arrays, Entry, arrays_of, contestant_looks
from specformer.reports.figures import (
    Picture,
    attention,
    entries_by,
    heads,
    model_names,
    picture,
)
from specformer.reports.style import Look
from specformer.training.graph_metrics import metric_named


def filters(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """What Specformer's heads make of some graphs' eigenvalues, a picture a data set and recipe."""
    yield from heads(entries, arrays, "molecules", points=True)


def dependencies(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Condensed attention within those graphs, a picture a data set and recipe."""
    yield from attention(entries, arrays, "molecules", "dataset")


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


def predictions(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Numbers: a picture a model and target. Classes: one a target, with all models."""
    looks = contestant_looks(entries)
    for name, group in entries_by(entries, "dataset").items():
        found = arrays_of(arrays, f"molecules/{name}", group, "tested", looks)
        targets = [str(target) for target in group[0].get("targets") or ()]
        count = min((tested.shape[-1] for tested in found.values()), default=0)
        if count > 1 and not targets:
            targets = [f"target {task + 1}" for task in range(count)]
        for task in range(count):
            target = targets[task] if task < len(targets) else ""
            pairs = {who: (both[1, :, task], both[0, :, task]) for who, both in found.items()}
            if metric_named(str(group[0]["metric"])).lower:
                yield from _clouds(pairs, name, target)
            else:
                heading = target if len(targets) > 1 else name
                yield _parted(pairs, heading, precision=group[0]["metric"] == "ap")


def _clouds(
    pairs: Mapping[Look, tuple[np.ndarray, np.ndarray]], name: str, target: str
) -> Iterator[Picture]:
    for who, (measured, predicted) in pairs.items():
        heading = who.label if len(pairs) > 1 else name
        figure = plots.agreement_plot(measured, predicted, who, title=heading, target=target)
        what = " · ".join(filter(None, (name, target)))
        yield picture(figure, f"{what}: predictions of {who.label} over measured ones.")


def _parted(
    pairs: Mapping[Look, tuple[np.ndarray, np.ndarray]], heading: str, *, precision: bool
) -> Picture:
    figure = plots.parting_plot(pairs, precision=precision, title=heading)
    alt = f"{heading}: how well {model_names(pairs)} parts the test graphs' classes."
    return picture(figure, alt, key=pairs)


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
