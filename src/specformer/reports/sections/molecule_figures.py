r"""Pictures of learning targets: what was reached, and how training went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from markupsafe import Markup

from specformer.reports import numbers, plots
from specformer.reports.looks import Look
from specformer.reports.plots.insight_plots import size_plot, spread_plot
from specformer.reports.plots.molecule_drawing import molecule_svg, small_graph_svg
from specformer.reports.sections.figures import Picture, by_epoch, model_names, picture
from specformer.reports.variants import Arrays, Entry, arrays_by, metric_of
from specformer.training.evaluation.graph_metrics import Metric


def losses(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Training losses, one picture per data set."""
    for name, _, curves in _curves(entries, arrays, "molecules", column=0):
        yield from by_epoch(curves, name, "training loss")


def validation(
    entries: Sequence[Entry], arrays: Arrays, kind: str = "molecules"
) -> Iterator[Picture]:
    """Validation figures, one picture per data set."""
    for name, metric, curves in _curves(entries, arrays, kind, column=2):
        yield from by_epoch(curves, name, f"validation {metric.label}", errors=metric.lower)


def _curves(
    entries: Sequence[Entry], arrays: Arrays, kind: str, column: int
) -> Iterator[tuple[str, Metric, dict[Look, np.ndarray]]]:
    """Of every data set its name, its metric, and one column of the models' readings by epoch."""
    for name, group, found in arrays_by(entries, arrays, kind, "curve"):
        curves = {style: curve[..., column] for style, curve in found.items()}
        yield name, metric_of(group[0]), curves


def predictions(
    entries: Sequence[Entry], arrays: Arrays, kind: str = "molecules"
) -> Iterator[Picture]:
    """Numbers: one picture per model and target. Classes: one per target, with all models."""
    for name, group, found in arrays_by(entries, arrays, kind, "tested"):
        targets = [str(target) for target in group[0].get("targets") or ()]
        count = min((tested.shape[-1] for tested in found.values()), default=0)
        if count > 1 and not targets:
            targets = [f"target {task + 1}" for task in range(count)]
        for task in range(count):
            target = targets[task] if task < len(targets) else ""
            pairs = {who: (both[1, :, task], both[0, :, task]) for who, both in found.items()}
            if metric_of(group[0]).task == "regression":
                yield from _clouds(pairs, name, target)
            else:
                heading = target if len(targets) > 1 else name
                yield _parted(pairs, heading, precision=metric_of(group[0]).name == "ap")


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
    alt = f"{heading}: how well {model_names(pairs)} parts the classes tested."
    return picture(figure, alt, key=tuple(pairs))


def by_size(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Errors over the sizes of graphs, one picture per data set."""
    for name, group, found in arrays_by(entries, arrays, "molecules", "by_size"):
        if found:
            numbered = metric_of(group[0]).task == "regression"
            label = "mean absolute error" if numbered else "1 − chance of the class"
            figure = size_plot(found, ylabel=label, title=name)
            alt = f"{name}: errors of {model_names(found)} by size."
            yield picture(figure, alt, key=tuple(found))


def calibration(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Errors over the spread of runs that have one split, one picture per data set."""
    for name, _, found in arrays_by(entries, arrays, "molecules", "calibration"):
        if found:
            alt = f"{name}: errors of {model_names(found)} over the spread of its runs."
            yield picture(spread_plot(found, title=name), alt, key=tuple(found))


def drawn_graphs(entries: Sequence[Entry], arrays: Arrays, *, worst: bool) -> Iterator[Picture]:
    """Test graphs that ours, or the only model, predicts worst or best."""
    for name, group, every in arrays_by(entries, arrays, "molecules", "drawn/contributions"):
        classes = group[0].get("classes")
        for style, shares in every.items():
            if style.ours or len(every) == 1:
                parts = _parts(entries, arrays, name, style)
                yield from _drawn(parts, shares, classes, worst)


def _parts(
    entries: Sequence[Entry], arrays: Arrays, name: str, style: Look
) -> dict[str, np.ndarray]:
    """What is kept of the graphs that a model's report draws."""
    kinds = ("names", "smiles", "told", "worst", "sizes", "edges", "num_edges")
    return {
        kind: found[style]
        for kind in kinds
        for other, _, found in arrays_by(entries, arrays, "molecules", f"drawn/{kind}")
        if other == name and style in found
    }


def _drawn(
    parts: Mapping[str, np.ndarray],
    shares: np.ndarray,
    classes: Sequence[str] | None,
    worst: bool,
) -> Iterator[Picture]:
    sizes, bonds = parts["sizes"], parts["num_edges"]
    nodes, edges = np.append(0, sizes.cumsum()), np.append(0, bonds.cumsum())
    for graph in np.flatnonzero(parts["worst"] == worst):
        measured, predicted = parts["told"][graph]
        told = f"measured {_figure(measured, classes)}, predicted {_figure(predicted, classes)}"
        own = shares[nodes[graph] : nodes[graph + 1]]
        smiles, label = str(parts["smiles"][graph]), str(parts["names"][graph])
        alt = f"{smiles or label}: {told}."
        found = molecule_svg(smiles, own, alt) if smiles else None
        if found is None:
            ends = parts["edges"][:, edges[graph] : edges[graph + 1]].T
            found = small_graph_svg(int(sizes[graph]), ends, own, alt)
        svg, values = found
        yield Picture(Markup(svg), values=values, title=label, note=told)


def _figure(value: float, classes: Sequence[str] | None) -> str:
    if classes and float(value).is_integer():
        return str(classes[int(value)])
    return numbers.error(float(value))
