r"""A report's section: what was learned from many graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections import figures, molecule_figures, report_tables
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
from specformer.reports.variants import Arrays, Entry, entries_by, variant, variant_looks
from specformer.training.evaluation.graph_metrics import metric_named


def molecule_section(result: dict[str, Any], arrays: Arrays) -> Iterable[Section]:
    """The section of many graphs, if the result has any."""
    entries: Sequence[Entry] = result.get("molecules") or ()
    if not entries:
        return
    runs = most(entries, "runs")
    over = median_over(runs, "runs")
    yield Section(
        anchor="molecules",
        title="Learning from many graphs",
        intro=(
            "Each graph, a molecule say, has targets of its own; a model learns them from some of "
            "the graphs, validation picks its best epoch, and it is measured on the others."
        ),
        notes=(*described(entries), *_started(entries)),
        blocks=present(
            *(
                table
                for metric in dict.fromkeys(entry["metric"] for entry in entries)
                for table in compared(entries, metric)
            ),
            *_each_target(entries),
            Figure(
                "Predictions",
                told_by_predictions(entries, "graphs"),
                tuple(molecule_figures.predictions(entries, arrays)),
            ),
            confusions(entries, arrays, "molecules", "graphs"),
            Figure(
                "Spread and error",
                "Is a prediction worse where runs differ more? Test graphs in bins by the standard "
                "deviation over runs, and the error of the runs’ mean, of the first target. On the "
                "line the spread is as large as the error; above it, the runs are too sure.",
                tuple(molecule_figures.calibration(entries, arrays)),
            ),
            Figure(
                "Most wrong",
                _told_by_drawings(entries, "the largest errors"),
                tuple(molecule_figures.drawn_graphs(entries, arrays, worst=True)),
            ),
            Figure(
                "Most right",
                _told_by_drawings(entries, "the smallest errors"),
                tuple(molecule_figures.drawn_graphs(entries, arrays, worst=False)),
            ),
            Figure(
                "Errors by size",
                f"Mean errors of some test graphs of about the same size{first_of(runs)}, of the "
                "first target.",
                tuple(molecule_figures.by_size(entries, arrays)),
            ),
            Figure(
                "What was learned",
                _told_by_filters(entries),
                tuple(figures.heads(entries, arrays, "molecules", points=True)),
            ),
            Figure(
                "Attention",
                "Specformer’s attention between low, medium and high frequencies of those graphs, "
                f"by head{first_of(most(entries, 'runs'))}. Each row adds up to one.",
                tuple(figures.attention(entries, arrays, "molecules", by_head=True)),
                small=True,
            ),
            Figure(
                "Validation",
                f"Measured on the validation graphs after every epoch{over}.",
                tuple(molecule_figures.validation(entries, arrays)),
            ),
            Figure(
                "Training",
                f"Loss over the training graphs by epoch, on a logarithmic scale{over}.",
                tuple(molecule_figures.losses(entries, arrays)),
            ),
            report_tables.costs(took(entries, "dataset", "data sets"), entries, "runs"),
        ),
    )


def _started(entries: Sequence[Entry]) -> Iterable[tuple[str, str]]:
    """Whose models had learned from other graphs before, and where they start from."""
    looks = variant_looks(entries)
    for entry in entries:
        if "start" in entry:
            who = f"{looks[variant(entry)].label} on {entry['dataset']}"
            yield who, f"models start from those of {entry['start']}"


def _told_by_drawings(entries: Sequence[Entry], which: str) -> str:
    return (
        f"Test graphs with {which}{first_of(most(entries, 'runs'))}. Orange nodes raise the "
        "prediction, blue ones lower it: the difference that it makes to know nothing of a node "
        "but its place. Point at one to read it."
    )


def _told_by_filters(entries: Sequence[Entry]) -> str:
    told = (
        "What the first filter makes of eigenvalues of some test graphs, by head"
        f"{first_of(most(entries, 'runs'))}. Equal ones of two graphs may come out different: a "
        "filter sees all of a graph’s. Grey hills show where they lie."
    )
    if all(entry.get("matrix") == "laplacian" for entry in entries):
        return told
    return f"{told} Those of the adjacency matrix with loops, μ, are drawn at 1 − μ."


def _each_target(entries: Sequence[Entry]) -> Iterable[Table]:
    """Test figures of the targets one by one, where a set has several: one table per set."""
    looks = variant_looks(entries)
    for name, own in entries_by(report_tables.by_target(entries), "dataset").items():
        metric = metric_named(str(own[0]["metric"]))
        over = mean_over(most(own, "runs"), "runs")
        yield report_tables.comparison(
            f"Test {metric.label} of each target of {name}{over}.",
            own,
            across="target",
            metric="test",
            lower_is_better=metric.lower,
            write=numbers.error,
            looks=looks,
        )
