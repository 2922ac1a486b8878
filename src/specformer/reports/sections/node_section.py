r"""Sections of a report: what was learned about the nodes and the links of single graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from markupsafe import Markup

from specformer.reports import numbers
from specformer.reports.looks import HUES, Look
from specformer.reports.plots.graph_drawing import Paint, graph_svg, spectral_layout
from specformer.reports.plots.prediction_plots import accuracy_plot, calibration_plot, share_plot
from specformer.reports.plots.spectral_plots import ENERGIES, attention_image, energy_plot
from specformer.reports.sections import pictures
from specformer.reports.sections.blocks import Block, Figure, Listing, Picture, Section, Table
from specformer.reports.sections.pictures import picture
from specformer.reports.sections.report_tables import (
    compared,
    comparison,
    costs,
    mean_over,
    prepared_features,
)
from specformer.reports.variants import Entry, Rows, best_first
from specformer.training.evaluation.graph_metrics import METRICS


def node_section(rows: Rows) -> Section:
    """The section of predicted labels or numbers."""
    of_first, over_all = pictures.first_of(rows), ", over all runs." if rows.most() > 1 else "."
    right, judged = _by_accuracy(rows)
    numbers_only = all(entry.metric.task == "regression" for entry in rows.entries)
    thing, things = ("number", "numbers") if numbers_only else ("label", "labels")
    return Section(
        anchor="nodes",
        title="Numbers on nodes" if numbers_only else "Classifying nodes",
        intro=(
            f"Some nodes of a graph carry a {thing}; each model predicts the {things} of the "
            "others from the nodes’ features and the graph."
        ),
        notes=rows.descriptions,
        blocks=(
            *_accuracies(right),
            *compared(judged),
            pictures.predictions(judged, "nodes"),
            pictures.confusions(rows, "nodes"),
            Figure(
                "The graph",
                "The whole graph or, of a large one, a part around the nodes that are most wrong, "
                f"laid out by its eigenvectors, with what is predicted{of_first}. Point at a node "
                "to read it.",
                graphs(rows),
            ),
            *worst(rows),
            Figure(
                "Where it is right",
                "Of the test nodes by their number of neighbours, and by the share of those that "
                f"have their class, how many are right, with 95% intervals{over_all}",
                (*_shares(rows, "by_degree"), *_shares(rows, "by_homophily")),
            ),
            Figure(
                "How sure it is",
                "Test nodes by the probability of the predicted class. On the diagonal that "
                "probability is true; below it the model is surer than it should be. Large dots "
                "stand for many nodes.",
                pictures.together(
                    rows, "calibration", calibration_plot, "accuracy of {} over confidence"
                ),
            ),
            *_learned(rows),
        ),
    )


def link_section(rows: Rows) -> Section:
    """The section of predicted links."""
    return Section(
        anchor="links",
        title="Predicting links",
        intro=(
            "Some links of a graph are held out; each model tells them from as many pairs of "
            "nodes without a link, by the nodes’ features and the links that are left."
        ),
        notes=rows.descriptions,
        blocks=(*_figures(rows), pictures.predictions(rows, "pairs"), *_learned(rows)),
    )


def _learned(rows: Rows) -> Iterator[Block]:
    """Learned filters, attention, training curves and costs."""
    of_first, filters = pictures.first_of(rows), tuple(all_filters(rows))
    of_chosen = f"{of_first} or the one chosen" if filters and of_first else of_first
    right, judged = _by_accuracy(rows)
    validated = " and ".join(dict.fromkeys(entry.metric.label for entry in rows.entries))
    accuracies = pictures.by_epoch(right, 2, "validation accuracy", percent=True, errors=False)
    yield Figure(
        "Learned filters",
        f"What each head of Specformer makes of the graph’s eigenvalues{of_chosen}. High on the "
        "left keeps what neighbours share; high on the right keeps how they differ.",
        filters or pictures.heads(rows),
    )
    yield Figure(
        "What the filter passes",
        "How the energy of signals lies over the eigenvalues, before the filter and after "
        f"it{of_first}, beside that of the labels: where these have much, a good filter keeps "
        "much.",
        (
            picture(
                energy_plot(entry.arrays["energy"], title=pictures.heading(entry)),
                f"{entry.where}: energy over the spectrum.",
                key=ENERGIES,
            )
            for entry in rows.having("energy", ours=True)
        ),
    )
    yield Figure(
        "Attention",
        "How much low, medium and high frequencies attend to each other, the mean of "
        f"Specformer’s heads{of_first}. A row adds up to about 1.",
        pictures.attention(rows),
        small=True,
    )
    yield Figure(
        "Attention in detail",
        f"How much each eigenvalue (row) attends to each other one (column){of_first}, in the "
        "first block. A strong column is an eigenvalue that many attend to. Of many eigenvalues a "
        "part is drawn, and a column adds up those nearest to it.",
        (  # from which a reader chooses a head
            picture(
                attention_image(
                    matrix, entry.arrays["attention_at"], title=pictures.heading(entry)
                ),
                f"{entry.where}: how much every eigenvalue looks at every other, head {head}.",
                choice={"head": f"{head}"},
                shown=head == 1,
            )
            for entry in rows.having("attention_full", ours=True)
            for head, matrix in enumerate(entry.arrays["attention_full"], start=1)
        ),
    )
    yield Figure(
        "Training",
        f"Validation {validated} by epoch{pictures.median_over(rows.most(), 'runs')}.",
        (*accuracies, *pictures.by_epoch(judged, 2)),
    )
    yield prepared_features(rows)
    yield costs(rows)


def _by_accuracy(rows: Rows) -> tuple[Rows, Rows]:
    """The rows that are judged by accuracy, and the others."""
    return (
        rows.only(entry for entry in rows.entries if entry.metric.name == "accuracy"),
        rows.only(entry for entry in rows.entries if entry.metric.name != "accuracy"),
    )


def _accuracies(rows: Rows) -> Iterator[Block]:
    """The accuracy of each model, as pictures and in a table."""
    if not rows.entries:
        return
    several, many = rows.most() > 1, len(rows.looks) > 1
    yield Figure(
        "Accuracy",
        ("Mean test accuracy with its 95% interval" if several else "Test accuracy")
        + (", best on top" if many else "")
        + ("; each faint dot is a run." if several else "."),
        accuracies(rows),
    )
    yield comparison(
        f"Test accuracy{mean_over(rows.most(), 'runs')}."
        + (" The best of a data set is bold." if many else ""),
        rows,
        across="dataset",
        metric="test",
        lower=False,
        write=numbers.percent,
        in_standings=True,
    )


def accuracies(rows: Rows) -> Iterator[Picture]:
    """Test accuracies with intervals, one picture per data set."""
    for name, group in rows.groups.items():
        measured = [entry for entry in group if entry.reached.get("mean") is not None]
        results = {entry.look: entry.reached for entry in best_first(measured, lower=False)}
        if results:
            figure = accuracy_plot(results, title=name)
            yield picture(figure, f"{name}: test accuracy of {pictures.model_names(results)}.")


def _shares(rows: Rows, what: str) -> Iterator[Picture]:
    """Accuracy by degree or by like neighbours, one picture per data set."""
    percent = what == "by_homophily"
    label = "neighbours of its class" if percent else "neighbours"
    told = f"accuracy of {{}} by {label}"
    return pictures.together(rows, what, share_plot, told, xlabel=label, percent=percent)


def all_filters(rows: Rows) -> Iterator[Picture]:
    """Responses of every run and layer, from which a reader chooses."""
    for entry in rows.having("filters", ours=True):
        runs, eigenvalues = entry.arrays["filters"], entry.arrays["filters_at"]
        for run, layer in np.ndindex(runs.shape[:2]):
            first = not run and not layer  # only this one has windows
            yield from pictures.responses_in(
                pictures.windows(eigenvalues) if first else {"whole": None},
                eigenvalues,
                runs[run, layer],
                entry,
                choice={"run": f"{run + 1}", "layer": f"{layer + 1}"},
                shown=first,
                title=pictures.heading(entry),
            )


def graphs(rows: Rows) -> Iterator[Picture]:
    """Each graph, or a part of it, with colours and notes for its nodes."""
    for entry in rows.having("drawn/nodes", ours=True):
        nodes, edges, labels, tested, chances = (
            entry.arrays[f"drawn/{part}"]
            for part in ("nodes", "edges", "labels", "tested", "chances")
        )
        names, centres, spread = (
            entry.arrays.get(f"drawn/{part}") for part in ("names", "centres", "spread")
        )
        names = nodes.astype(str) if names is None else names  # older runs have none
        classes = [str(label) for label in entry["classes"]]
        hues = _hues(labels, len(classes))
        paints = _paints(labels, tested, chances, entry.look, hues)
        if centres is not None and spread is not None:
            paints += _spreads(names, np.searchsorted(nodes, centres), spread)
        guesses = zip(chances.argmax(axis=1), chances.max(axis=1), strict=True)
        label_names = [classes[label] if label >= 0 else "no label" for label in labels]
        notes = [
            f"node {node}{', tested' if test else ''}\nclass {label}\npredicted {classes[guess]}, "
            f"{100 * chance:.0f}% sure"
            for node, test, label, (guess, chance) in zip(
                names, tested, label_names, guesses, strict=True
            )
        ]
        alt = f"{entry.where}: {len(nodes):,} nodes and their edges, coloured by class."
        total = entry.get("num_nodes") or len(nodes)
        places = spectral_layout(len(nodes), edges)
        of_hue = [
            name if hues.count(hue) == 1 else "other classes"
            for name, hue in zip(classes, hues, strict=True)
        ]
        keyed = dict(zip([*of_hue, "no label"], [*hues, "rule"], strict=True))
        groups = [of_hue[label] if label >= 0 else "no label" for label in labels]
        svg, values = graph_svg(places, edges, paints, groups, notes, alt)
        key = [
            Look(name, hue, width=5.0)  # in the key, a patch of colour
            for name, hue in sorted(keyed.items(), key=lambda item: item[0] == "other classes")
            if name in groups
        ]
        yield Picture(
            Markup(svg),
            key=tuple(key),
            values=values,
            wide=len(rows.groups) == 1,
            title=pictures.heading(entry),
            note=f"{len(nodes):,} of {total:,} nodes, and the {len(edges):,} edges between them",
        )


def _hues(labels: np.ndarray, classes: int) -> list[str]:
    """A hue for each class; where hues are too few, the rarest classes share the last one."""
    if classes <= len(HUES):
        return list(HUES[:classes])
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    ranks = np.argsort(-counts, kind="stable").argsort()
    return [HUES[min(rank, len(HUES) - 1)] for rank in ranks.tolist()]


def _paints(
    labels: np.ndarray,
    tested: np.ndarray,
    chances: np.ndarray,
    style: Look,
    hues: Sequence[str],
) -> list[Paint]:
    """The colourings of the nodes of a classified graph; ``hues`` has one for each class."""
    taken, sure = chances.argmax(axis=1), chances.max(axis=1)
    known = labels >= 0
    own = np.where(known, chances[np.arange(len(labels)), labels.clip(0)], np.nan)
    return [
        Paint(
            "class",
            "By class.",
            np.where(known, labels, len(hues)),
            (*hues, "rule"),
        ),
        Paint("prediction", f"By the class that {style.label} gives.", taken, hues),
        Paint(
            "error",
            "Orange: wrong, the stronger the less probable the true class; blue: right.",
            np.where(known, np.where(taken == labels, -0.25, 1 - np.nan_to_num(own)), 0),
        ),
        Paint("confidence", "The stronger, the surer.", sure),
        Paint("test nodes", "Orange: tested.", tested.astype(float)),
    ]


def _spreads(names: np.ndarray, centres: np.ndarray, spread: np.ndarray) -> Iterator[Paint]:
    """Each head's response to an impulse at a node, as a share of its largest value."""
    for centre, heads in zip(centres.tolist(), spread, strict=True):
        for head, values in enumerate(heads, start=1):
            yield Paint(
                f"spread from node {names[centre]}, head {head}",
                "U g(Λ) Uᵀ δ: what the filter makes of a signal at the ringed node alone; orange "
                "is positive, blue negative, on a square-root scale.",
                np.sign(values) * np.sqrt(np.abs(values) / (np.abs(values).max() or 1.0)),
                centre=centre,
            )


def worst(rows: Rows) -> Iterator[Listing]:
    """The worst predicted test nodes with their neighbours, one table per data set."""
    for entry in rows.entries:
        lines = tuple(
            (
                str(each.get("name", each["node"])),
                str(each["class"]),
                str(each["predicted"]),
                f"{100 * each['chance']:.1f}%",
                ", ".join(f"{name}:\u00a0{n}" for name, n in each["neighbours"].items())
                or "none with a label",
            )
            for each in entry.get("worst") or ()
        )
        if entry.look.ours or len(rows.entries) == 1:
            yield Listing(
                f"{entry.where}: the test nodes that {entry.look.label} gets most wrong, first "
                "run.",
                ("Node", "Class", "Predicted", "Chance of its class", "Neighbours by class"),
                lines,
            )


def figure_label(name: str) -> str:
    """A figure's name as people read it."""
    return METRICS[name].label if name in METRICS else name.capitalize()


def _figures(rows: Rows) -> Iterator[Table]:
    """All figures of the test links, one table per data set."""
    over = mean_over(rows.most(), "runs")
    for name, group in rows.groups.items():
        figures = rows.only(
            Entry({**entry, "figure": figure_label(figure), "test": reached}, entry.look)
            for entry in group
            for figure, reached in entry["figures"]["test"].items()
        )
        yield comparison(
            f"{name}: figures of the test links{over}. Higher is better.",
            figures,
            across="figure",
            metric="test",
            lower=False,
            write=numbers.share,
        )
