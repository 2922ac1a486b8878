r"""A report's section: how well nodes of single graphs were classified."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections import figures, report_tables
from specformer.reports.sections.section import (
    Figure,
    Section,
    confusions,
    described,
    first_of,
    mean_over,
    median_over,
    most,
    present,
    took,
)
from specformer.reports.variants import Arrays, Entry, variant_looks


def node_section(result: dict[str, Any], arrays: Arrays) -> Iterable[Section]:
    """The section of classified nodes, if the result has any."""
    entries: Sequence[Entry] = result.get("nodes") or ()
    if not entries:
        return
    runs, many = most(entries, "runs"), len(variant_looks(entries)) > 1
    of_first = first_of(runs)
    yield Section(
        anchor="nodes",
        title="Classifying nodes",
        intro=(
            "Some nodes of a graph carry a label; each model predicts the labels of the others "
            "from the nodes’ features and the graph."
        ),
        notes=described(entries),
        blocks=present(
            Figure(
                "Accuracy",
                ("Mean test accuracy with its 95% interval" if runs > 1 else "Test accuracy")
                + (", best on top" if many else "")
                + ("; each faint dot is a run." if runs > 1 else "."),
                tuple(figures.accuracies(entries)),
            ),
            report_tables.comparison(
                f"Test accuracy{mean_over(runs, 'runs')}."
                + (" The best of a data set is bold." if many else ""),
                entries,
                across="dataset",
                metric="test",
                lower_is_better=False,
                write=numbers.percent,
            ),
            confusions(entries, arrays, "nodes", "nodes"),
            Figure(
                "Learned filters",
                f"What each head of Specformer makes of the graph’s eigenvalues{of_first}. High on "
                "the left keeps what neighbours share; high on the right keeps how they differ.",
                tuple(figures.heads(entries, arrays, "nodes")),
            ),
            Figure(
                "Which frequencies look at which",
                "Specformer’s attention between low, medium and high frequencies, the mean of its "
                f"heads{of_first}. A row adds up to about 1.",
                tuple(figures.attention(entries, arrays, "nodes")),
                small=True,
            ),
            Figure(
                "Training",
                f"Validation accuracy by epoch{median_over(runs, 'runs')}.",
                tuple(figures.node_curves(entries, arrays)),
            ),
            report_tables.prepared_features(entries),
            report_tables.costs(took(entries, "dataset", "data sets"), entries, "runs"),
        ),
    )
