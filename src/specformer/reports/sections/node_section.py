r"""A report's section: what was learned on the nodes of single graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections import figures, molecule_figures, node_figures, report_tables
from specformer.reports.sections.report_tables import Table
from specformer.reports.sections.section import (
    Figure,
    Section,
    compared,
    confusions,
    described,
    first_of,
    mean_over,
    median_over,
    most,
    present,
    told_by_predictions,
    took,
)
from specformer.reports.variants import Arrays, Entry, metric_of, variant_looks


def node_section(result: dict[str, Any], arrays: Arrays) -> Iterable[Section]:
    """The section of classified nodes, if the result has any."""
    entries: Sequence[Entry] = result.get("nodes") or ()
    if not entries:
        return
    runs = most(entries, "runs")
    of_first = first_of(runs)
    right = [entry for entry in entries if metric_of(entry).name == "accuracy"]
    judged = [entry for entry in entries if metric_of(entry).name != "accuracy"]
    numbers_only = all(metric_of(entry).task == "regression" for entry in entries)
    thing, things = ("number", "numbers") if numbers_only else ("label", "labels")
    yield Section(
        anchor="nodes",
        title="Numbers on nodes" if numbers_only else "Classifying nodes",
        intro=(
            f"Some nodes of a graph carry a {thing}; each model predicts the {things} of the "
            "others from the nodes’ features and the graph."
        ),
        notes=described(entries),
        blocks=present(
            *_accuracies(right),
            *(
                table
                for name in dict.fromkeys(metric_of(entry).name for entry in judged)
                for table in compared(judged, name)
            ),
            Figure(
                "Predictions",
                told_by_predictions(judged, "nodes"),
                tuple(molecule_figures.predictions(judged, arrays, "nodes")),
            ),
            confusions(entries, arrays, "nodes", "nodes"),
            Figure(
                "The graph",
                "All of it, or a part around the nodes that are most wrong, laid out by its "
                f"eigenvectors, with what is predicted{of_first}. Point at a node to read it.",
                tuple(node_figures.graphs(entries, arrays)),
            ),
            *node_figures.worst(entries),
            Figure(
                "Where it is right",
                "Of the test nodes by their number of neighbours, and by the share of those that "
                "have their class, how many are right, with 95% intervals"
                + (", over all runs." if runs > 1 else "."),
                tuple(node_figures.failures(entries, arrays)),
            ),
            Figure(
                "How sure it is",
                "Test nodes by the probability of the predicted class. On the diagonal that "
                "probability is true; below it the model is surer than it should be. Large dots "
                "stand for many nodes.",
                tuple(node_figures.calibrations(entries, arrays)),
            ),
            Figure(
                "Learned filters",
                f"What each head of Specformer makes of the graph’s eigenvalues{of_first}. High on "
                "the left keeps what neighbours share; high on the right keeps how they differ.",
                tuple(node_figures.all_filters(entries, arrays))
                or tuple(figures.heads(entries, arrays, "nodes")),
            ),
            Figure(
                "What the filter passes",
                "How the energy of signals lies over the eigenvalues, before the filter and after "
                f"it{of_first}, beside that of the labels: where these have much, a good filter "
                "keeps much.",
                tuple(node_figures.energies(entries, arrays)),
            ),
            Figure(
                "Which frequencies look at which",
                "Specformer’s attention between low, medium and high frequencies, the mean of its "
                f"heads{of_first}. A row adds up to about 1.",
                tuple(figures.attention(entries, arrays, "nodes")),
                small=True,
            ),
            Figure(
                "Every eigenvalue and every other",
                f"The same without bands: the first block’s attention{of_first}, by rank of "
                "eigenvalues. A column in colour is an eigenvalue that many look at.",
                tuple(node_figures.full_attention(entries, arrays)),
            ),
            Figure(
                "Training",
                f"{_validated(entries)} by epoch{median_over(runs, 'runs')}.",
                (
                    *figures.node_curves(right, arrays),
                    *molecule_figures.validation(judged, arrays, "nodes"),
                ),
            ),
            report_tables.prepared_features(entries),
            report_tables.costs(took(entries, "dataset", "data sets"), entries, "runs"),
        ),
    )


def _validated(entries: Sequence[Entry]) -> str:
    """What the curves of training show."""
    labels = dict.fromkeys(metric_of(entry).label for entry in entries)
    return f"Validation {' and '.join(labels)}"


def _accuracies(entries: Sequence[Entry]) -> Iterable[Figure | Table]:
    """How many nodes each model classifies right, drawn and in numbers."""
    if not entries:
        return
    runs, many = most(entries, "runs"), len(variant_looks(entries)) > 1
    yield Figure(
        "Accuracy",
        ("Mean test accuracy with its 95% interval" if runs > 1 else "Test accuracy")
        + (", best on top" if many else "")
        + ("; each faint dot is a run." if runs > 1 else "."),
        tuple(figures.accuracies(entries)),
    )
    yield report_tables.comparison(
        f"Test accuracy{mean_over(runs, 'runs')}."
        + (" The best of a data set is bold." if many else ""),
        entries,
        across="dataset",
        metric="test",
        lower_is_better=False,
        write=numbers.percent,
    )
