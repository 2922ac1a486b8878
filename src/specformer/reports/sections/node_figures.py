r"""Pictures of one graph's nodes: where a model fails, and what its filters do there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from markupsafe import Markup

from specformer.reports import plots
from specformer.reports.looks import Look, head_looks
from specformer.reports.plots.graph_drawing import HUES, Paint, graph_svg, spectral_layout
from specformer.reports.plots.insight_plots import (
    ENERGIES,
    attention_image,
    calibration_plot,
    energy_plot,
    share_plot,
)
from specformer.reports.sections.figures import Picture, model_names, picture, windows
from specformer.reports.sections.report_tables import Listing
from specformer.reports.variants import Arrays, Entry, arrays_by, variant, variant_looks

#: A drawing is of what the first run predicts.
_FIRST = ", first run"


def calibrations(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """How far confidence can be trusted, one picture per data set."""
    for name, _, found in arrays_by(entries, arrays, "nodes", "calibration"):
        if found:
            alt = f"{name}: accuracy of {model_names(found)} over confidence."
            yield picture(calibration_plot(found, title=name), alt, key=tuple(found))


def failures(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Accuracy by degree and by like neighbours, two pictures per data set."""
    asked = {"by_degree": "neighbours", "by_homophily": "neighbours of its class"}
    for what, label in asked.items():
        for name, _, found in arrays_by(entries, arrays, "nodes", what):
            drawn = {style: rows for style, rows in found.items() if len(rows)}
            if drawn:
                percent = what == "by_homophily"
                figure = share_plot(drawn, xlabel=label, percent=percent, title=name)
                alt = f"{name}: accuracy of {model_names(drawn)} by {label}."
                yield picture(figure, alt, key=tuple(drawn))


def energies(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """How energy lies over the spectrum before and after the filter, one per data set."""
    for name, style, shares in _ours(entries, arrays, "energy"):
        figure = energy_plot(shares, title=_heading(name, style), legend=False)
        yield picture(figure, f"{name}: energy over the spectrum.", key=ENERGIES)


def all_filters(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Responses of every run and layer, of which a reader chooses one."""
    points = {(name, style): values for name, style, values in _ours(entries, arrays, "filters_at")}
    for name, style, runs in _ours(entries, arrays, "filters"):
        eigenvalues = points[name, style]
        for (run, layer), response in zip(
            np.ndindex(runs.shape[:2]), runs.reshape(-1, *runs.shape[2:]), strict=True
        ):
            for span, window in windows(eigenvalues).items():
                if window is not None and (run or layer):
                    continue  # closer looks at the first alone
                choice = {"run": f"{run + 1}", "layer": f"{layer + 1}", "λ": span}
                figure = plots.heads_plot(
                    eigenvalues, response, title=_heading(name, style), window=window, legend=False
                )
                yield picture(
                    figure,
                    f"{name}: the response of each head of {style.label}.",
                    key=tuple(head_looks(runs.shape[-1])),
                    choice=choice,
                    shown=not run and not layer and window is None,
                )


def full_attention(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """Attention between all eigenvalues, of which a reader chooses a head."""
    points = {
        (name, style): values for name, style, values in _ours(entries, arrays, "attention_at")
    }
    for name, style, heads in _ours(entries, arrays, "attention_full"):
        for number, matrix in enumerate(heads, start=1):
            figure = attention_image(matrix, points[name, style], title=_heading(name, style))
            alt = f"{name}: how much every eigenvalue looks at every other, head {number}."
            yield picture(figure, alt, choice={"head": f"{number}"}, shown=number == 1)


def graphs(entries: Sequence[Entry], arrays: Arrays) -> Iterator[Picture]:
    """A part of each graph with what is known of its nodes."""
    for name, style, nodes in _ours(entries, arrays, "drawn/nodes"):
        drawn = {
            what: next(
                (found for other, who, found in _ours(entries, arrays, f"drawn/{what}")
                 if (other, who) == (name, style)), None
            )
            for what in ("edges", "labels", "tested", "chances", "centres", "spread")
        }  # fmt: skip
        classes = _classes(entries, name)
        yield _graph(name, style, nodes, drawn, classes)


def _graph(
    name: str,
    style: Look,
    nodes: np.ndarray,
    drawn: dict[str, np.ndarray | None],
    classes: Sequence[str],
) -> Picture:
    edges, labels, tested, chances = (
        drawn[what] for what in ("edges", "labels", "tested", "chances")
    )
    assert edges is not None
    assert labels is not None
    assert tested is not None
    assert chances is not None
    taken, sure = chances.argmax(axis=1), chances.max(axis=1)
    known = labels >= 0
    own = np.where(known, chances[np.arange(len(labels)), labels.clip(0)], np.nan)
    label_names = [classes[label] if label >= 0 else "no label" for label in labels]
    hues = HUES[: min(len(HUES), len(classes))]
    grey = (*hues, "rule")
    paints = [
        Paint("class", "By class.", np.where(known, labels % len(hues), len(hues)), grey),
        Paint("prediction", f"By the class that {style.label} gives.", taken % len(hues), hues),
        Paint(
            "error",
            "Orange: wrong, the stronger the less probable the true class; blue: right.",
            np.where(known, np.where(taken == labels, -0.25, 1 - np.nan_to_num(own)), 0),
        ),
        Paint("confidence", "The stronger, the surer.", sure),
        Paint("test nodes", "Orange: tested.", tested.astype(float)),
    ]
    if drawn["centres"] is not None and drawn["spread"] is not None:
        paints += _spreads(drawn["centres"], drawn["spread"])
    notes = [
        f"node {node}{', tested' if test else ''}\nclass {label}\npredicted {classes[guess]}, "
        f"{100 * chance:.0f}% sure"
        for node, test, label, guess, chance in zip(
            nodes, tested, label_names, taken, sure, strict=True
        )
    ]
    alt = f"{name}: {len(nodes):,} nodes and their edges, coloured by class."
    places = spectral_layout(len(nodes), edges)
    svg, values = graph_svg(places, edges, paints, label_names, notes, alt)
    key = [
        Look(label, hues[number % len(hues)], width=3.0)
        for number, label in enumerate(classes)
        if label in label_names
    ]
    told = f"{len(nodes):,} nodes and {len(edges):,} edges between them"
    return Picture(
        Markup(svg),
        key=tuple(key),
        values=values,
        wide=True,
        title=_heading(name, style),
        note=told,
    )


def _spreads(centres: np.ndarray, spread: np.ndarray) -> Iterator[Paint]:
    """What each head makes of an impulse at a node, as a share of its largest value."""
    for centre, heads in zip(centres, spread, strict=True):
        for head, values in enumerate(heads, start=1):
            yield Paint(
                f"spread from node {centre}, head {head}",
                "U g(Λ) Uᵀ δ: what the filter makes of a signal at that node alone; orange is "
                "positive, blue negative, on a square-root scale.",
                np.sign(values) * np.sqrt(np.abs(values) / (np.abs(values).max() or 1.0)),
            )


def worst(entries: Sequence[Entry]) -> Iterator[Listing]:
    """The worst-predicted test nodes with their neighbours, one table per data set."""
    looks = variant_looks(entries)
    for entry in entries:
        style = looks[variant(entry)]
        rows = tuple(
            (
                str(each["node"]),
                str(each["class"]),
                str(each["predicted"]),
                f"{100 * each['chance']:.1f}%",
                ", ".join(f"{count} × {name}" for name, count in each["neighbours"].items())
                or "none with a label",
            )
            for each in entry.get("worst") or ()
        )
        if rows and (style.ours or len(entries) == 1):
            yield Listing(
                f"{entry['dataset']}: the test nodes that {style.label} gets most wrong{_FIRST}.",
                ("Node", "Class", "Predicted", "Chance of its class", "Neighbours"),
                rows,
            )


def _ours(
    entries: Sequence[Entry], arrays: Arrays, what: str
) -> Iterator[tuple[str, Look, np.ndarray]]:
    """Arrays of a kind of Specformer, or of the only model of a data set."""
    for name, _, found in arrays_by(entries, arrays, "nodes", what):
        for style, array in found.items():
            if style.ours or len(found) == 1:
                yield name, style, array


def _classes(entries: Sequence[Entry], name: str) -> list[str]:
    entry = next(entry for entry in entries if entry["dataset"] == name)
    return [str(label) for label in entry["classes"]]


def _heading(name: str, style: Look) -> str:
    return f"{name} ({style.recipe})" if style.recipe else name
