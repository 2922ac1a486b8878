r"""Pictures of learning from many graphs: what was reached, and how training went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from specformer.reports import plots
from specformer.reports.looks import Look
from specformer.reports.sections.figures import Picture, by_epoch, model_names, picture
from specformer.reports.variants import Arrays, Entry, arrays_by
from specformer.training.evaluation.graph_metrics import Metric, metric_named


def losses(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Training losses, one picture per data set."""
    for name, _, curves in _curves(entries, arrays, column=0):
        yield from by_epoch(curves, name, "training loss")


def validation(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Validation figures, one picture per data set."""
    for name, metric, curves in _curves(entries, arrays, column=2):
        yield from by_epoch(curves, name, f"validation {metric.label}", errors=metric.lower)


def _curves(
    entries: Sequence[Entry], arrays: Arrays, column: int
) -> Iterator[tuple[str, Metric, dict[Look, np.ndarray]]]:
    """Of every data set its name, its metric, and one column of the models' readings by epoch."""
    for name, group, found in arrays_by(entries, arrays, "molecules", "curve"):
        curves = {style: curve[..., column] for style, curve in found.items()}
        yield name, metric_named(str(group[0]["metric"])), curves


def predictions(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Numbers: one picture per model and target. Classes: one per target, with all models."""
    for name, group, found in arrays_by(entries, arrays, "molecules", "tested"):
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
