r"""A report's section: what was learned from many graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from markupsafe import Markup

from specformer.reports import numbers
from specformer.reports.plots.graph_drawing import molecule_svg, small_graph_svg
from specformer.reports.plots.prediction_plots import size_plot, spread_plot
from specformer.reports.sections import pictures
from specformer.reports.sections.blocks import Figure, Picture, Section
from specformer.reports.sections.pictures import picture
from specformer.reports.sections.report_tables import compared, costs, each_target
from specformer.reports.variants import Rows


def molecule_section(rows: Rows) -> Section:
    """The section of many graphs, which are called molecules if they have SMILES."""
    over, of_first = pictures.median_over(rows.most(), "runs"), pictures.first_of(rows)
    drawn_ones = rows.having("drawn/smiles", ours=True)
    chemical = any(entry.arrays["drawn/smiles"].any() for entry in drawn_ones)
    thing, part = ("molecule", "atom") if chemical else ("graph", "node")
    has_classes = any(len(entry.get("classes") or ()) > 2 for entry in rows.entries)
    raised = "score of the predicted class" if has_classes else "prediction"
    drawn = (
        f"{of_first}, of the first target. Orange {part}s raise the {raised}, blue ones lower it: "
        f"the difference that it makes to know nothing of {'an' if chemical else 'a'} {part} but "
        "its place. Point at one to read it."
    )
    filters = (
        f"What the first filter makes of the eigenvalues of some test {thing}s, by head{of_first}. "
        f"An eigenvalue that two {thing}s share may come out different, because a filter sees all "
        f"eigenvalues of its {thing}. Grey hills show where they lie."
    )
    if any(entry.get("matrix") != "laplacian" for entry in rows.entries):
        filters += " Those of the adjacency matrix with loops, μ, are drawn at 1 − μ."
    started = (
        (f"{entry.look.label} on {entry.where}", f"models start from those of {entry['start']}")
        for entry in rows.entries
        if "start" in entry
    )
    return Section(
        anchor="molecules",
        title=f"Learning from {'molecules' if chemical else 'many graphs'}",
        intro=(
            f"Each {thing} has targets of its own. A model learns them from some of the {thing}s, "
            "validation picks its best epoch, and it is measured on the others."
        ),
        notes=(*rows.descriptions, *started),
        blocks=(
            *compared(rows),
            *each_target(rows),
            pictures.predictions(rows, f"{thing}s"),
            pictures.confusions(rows, f"{thing}s"),
            Figure(
                "Spread and error",
                f"Is a prediction worse where runs differ more? Test {thing}s in bins by the "
                "standard deviation over runs, and the error of the runs’ mean, of the first "
                "target. On the line the spread is as large as the error; above it, the runs are "
                "too sure.",
                pictures.together(
                    rows, "calibration", spread_plot, "errors of {} over the spread of its runs"
                ),
            ),
            Figure(
                "Largest errors",
                f"Test {thing}s with the largest errors{drawn}",
                drawn_graphs(rows, worst=True),
            ),
            Figure(
                "Smallest errors",
                f"Test {thing}s with the smallest errors{drawn}",
                drawn_graphs(rows, worst=False),
            ),
            Figure(
                "Errors by size",
                f"Mean error of test {thing}s of about the same size{of_first}, of the first "
                "target.",
                by_size(rows, f"{part}s"),
            ),
            Figure("What was learned", filters, pictures.heads(rows, points=True)),
            Figure(
                "Attention",
                "Specformer’s attention between low, medium and high frequencies of those "
                f"{thing}s, by head{of_first}. Each row adds up to one.",
                pictures.attention(rows, by_head=True),
                small=True,
            ),
            Figure(
                "Validation",
                f"Measured on the validation {thing}s after every epoch{over}.",
                pictures.by_epoch(rows, 2),
            ),
            Figure(
                "Training",
                f"Loss over the training {thing}s by epoch{over}.",
                pictures.by_epoch(rows, 0, "training loss"),
            ),
            costs(rows),
        ),
    )


def by_size(rows: Rows, parts: str) -> Iterator[Picture]:
    """Errors over the sizes of graphs, one picture per data set."""
    for name, group, found in rows.found("by_size"):
        if found:
            numbered = group[0].metric.task == "regression"
            label = "mean absolute error" if numbered else "1 − chance of the class"
            alt = f"{name}: errors of {pictures.model_names(found)} by size."
            yield picture(size_plot(found, parts, ylabel=label, title=name), alt, key=tuple(found))


def drawn_graphs(rows: Rows, *, worst: bool) -> Iterator[Picture]:
    """Test graphs that Specformer, or the only model, predicts worst or best."""
    parts = ("names", "smiles", "told", "worst", "sizes", "edges", "num_edges")
    for entry in rows.having("drawn/contributions", ours=True):
        names, smiles, told, is_worst, sizes, edges, num_edges = (
            entry.arrays[f"drawn/{part}"] for part in parts
        )
        shares, classes = entry.arrays["drawn/contributions"], entry.get("classes")
        nodes_at, edges_at = np.append(0, sizes.cumsum()), np.append(0, num_edges.cumsum())
        for graph in np.flatnonzero(is_worst == worst):
            measured, predicted = (_figure(value, classes) for value in told[graph])
            note = f"measured {measured}, predicted {predicted}"
            own = shares[nodes_at[graph] : nodes_at[graph + 1]]
            written, label = str(smiles[graph]), str(names[graph])
            if label.isdigit():
                label = f"{'molecule' if written else 'graph'} {label}"
            alt = f"{written or label}: {note}."
            found = molecule_svg(written, own, alt) if written else None
            if found is None:
                ends = edges[:, edges_at[graph] : edges_at[graph + 1]].T
                found = small_graph_svg(int(sizes[graph]), ends, own, alt)
            yield Picture(Markup(found[0]), values=found[1], title=label, note=note)


def _figure(value: float, classes: Sequence[str] | None) -> str:
    if classes and float(value).is_integer():
        return str(classes[int(value)])
    return numbers.error(float(value))
