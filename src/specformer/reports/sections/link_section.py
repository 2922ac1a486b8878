r"""A report's section: what was learned of the links of single graphs."""

from __future__ import annotations

from collections.abc import Iterator

from specformer.reports.sections import pictures
from specformer.reports.sections.blocks import Figure, Section, Table
from specformer.reports.sections.report_tables import comparison, costs, mean_over
from specformer.reports.variants import Rows, metric_of
from specformer.training.evaluation.graph_metrics import METRICS


def figure_label(name: str) -> str:
    """A figure's name as people read it."""
    return METRICS[name].label if name in METRICS else name.capitalize()


def link_section(rows: Rows) -> Section:
    """The section of predicted links."""
    of_first = pictures.first_of(rows)
    validated = " and ".join(dict.fromkeys(metric_of(entry).label for entry in rows.entries))
    return Section(
        anchor="links",
        title="Predicting links",
        intro=(
            "Some links of a graph are held out; each model tells them from as many pairs of "
            "nodes without a link, by the nodes’ features and the links that are left."
        ),
        notes=rows.descriptions,
        blocks=(
            *_figures(rows),
            pictures.predictions(rows, "pairs"),
            Figure(
                "Learned filters",
                f"What each head of Specformer makes of the eigenvalues{of_first}. High on the "
                "left keeps what neighbours share; high on the right keeps how they differ.",
                pictures.heads(rows),
            ),
            Figure(
                "Which frequencies look at which",
                "Specformer’s attention between low, medium and high frequencies, the mean of its "
                f"heads{of_first}. A row adds up to about 1.",
                pictures.attention(rows),
                small=True,
            ),
            Figure(
                "Training",
                f"Validation {validated} by epoch{pictures.median_over(rows.most(), 'runs')}.",
                pictures.by_epoch(rows, 2),
            ),
            costs(rows),
        ),
    )


def _figures(rows: Rows) -> Iterator[Table]:
    """All figures of the test links, one table per data set."""
    over = mean_over(rows.most(), "runs")
    for name, group in rows.groups.items():
        entries = [
            {**entry, "figure": figure_label(figure), "test": reached}
            for entry in group
            for figure, reached in entry["figures"]["test"].items()
        ]
        yield comparison(
            f"{name}: figures of the test links{over}. Higher is better.",
            entries,
            across="figure",
            metric="test",
            lower=False,
            looks=rows.looks,
        )
