r"""The report of a run folder: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from specformer.files import write_text
from specformer.reports import figures, molecule_figures, numbers, tables
from specformer.reports.contestants import Arrays, Entry, contestant_looks
from specformer.reports.figures import Picture
from specformer.reports.findings import summary
from specformer.reports.style import Look, in_order, theme_css
from specformer.reports.tables import Table
from specformer.training.graph_metrics import metric_named
from specformer.training.run_folder import OUTPUTS, REPORT, RunFolder


@dataclass(frozen=True)
class Figure:
    """Pictures of one kind, under one caption."""

    title: str
    caption: str
    pictures: tuple[Picture, ...]
    small: bool = False
    truth: bool = False

    @property
    def key(self) -> list[Look]:
        """The lines of pictures that have no legend of their own."""
        return in_order(line for item in self.pictures for line in item.key)


@dataclass(frozen=True)
class Section:
    """A task's tables and figures, in reading order."""

    anchor: str
    title: str
    intro: str
    blocks: tuple[Figure | Table, ...]
    notes: tuple[tuple[str, str], ...] = ()


def render_report(run: RunFolder) -> str:
    """The report as one self-contained page.

    It shows what ``result.json`` and ``outputs.npz`` hold and leaves out what they do not.
    """
    result = run.result()
    arrays = run.outputs() if (run.path / OUTPUTS).exists() else {}
    sections = (
        *_filters(result, arrays),
        *_nodes(result, arrays),
        *_molecules(result, arrays),
    )
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            run_name=run.path.resolve().name,
            title=result.get("title") or f"Specformer {result.get('kind') or 'run'}",
            summary=summary(result),
            sections=sections,
            spectra=result.get("spectra") or [],
            spectra_pictures=tuple(figures.spectra(result, arrays)),
            environment=result.get("environment") or {},
            theme=Markup(theme_css()),
            n=numbers,
        )
    )


def write_report(run: RunFolder) -> Path:
    """Write ``report.html`` into the run folder, atomically, in place of an older one."""
    path = run.path / REPORT
    write_text(path, render_report(run))
    return path


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("specformer.reports", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["table"] = lambda block: isinstance(block, Table)
    return environment


def _filters(result: dict[str, Any], arrays: Arrays) -> Iterable[Section]:
    entries: Sequence[Entry] = result.get("filters") or ()
    if not entries:
        return
    images, many = _most(entries, "images"), len(contestant_looks(entries)) > 1
    ours = (
        ", a line the median over images and the tint around it their range" if images > 1 else ""
    )
    yield Section(
        anchor="filters",
        title="Recovering filters",
        intro=(
            "A photograph is a signal on a grid of pixels. A known filter changes its spectrum, "
            "and each model sees only the photograph and the outcome. It learns well if it finds "
            "the filter again."
        ),
        blocks=_present(
            Figure(
                "Errors at a glance",
                "One row a filter, one mark a model; further left is better. The scale is "
                "logarithmic: a step from one line to the next is a factor of ten or more.",
                tuple(figures.overview(entries)),
            ),
            tables.comparison(
                f"Sum of squared errors{_mean_over(images, 'images')}. "
                f"Lower is better{'; the best of a filter is bold' if many else ''}.",
                entries,
                across="filter",
                metric="sse",
                lower_is_better=True,
                write=numbers.error,
            ),
            tables.comparison(
                "R², the share of the outcome’s variance that is explained. 1 is perfect.",
                entries,
                across="filter",
                metric="r2",
                lower_is_better=False,
                write=numbers.r_squared,
            ),
            Figure(
                "Learned filters",
                "The broad grey band is the true filter, and a model that found it runs inside the "
                f"band{ours}. Grey hills along the bottom show where the graph has eigenvalues; "
                "where there are none, a response has nothing to act on.",
                tuple(figures.learned_filters(entries, arrays)),
                truth=True,
            ),
            Figure(
                "Filtered images",
                "The same photograph raw, after the true filter, and after each model’s. The "
                "filtered ones share one grey scale. Below each model is its absolute error on a "
                "square-root scale shared by the row: black is no error.",
                tuple(figures.filtered_images(entries, arrays)),
            ),
            Figure(
                "Which frequencies look at which",
                "Specformer’s attention between low, medium and high frequencies (thirds of the "
                "range 0 to 2), the mean of its heads for the first image. A row adds up to about "
                "1: it says from which bands the eigenvalues of that band take their information.",
                tuple(figures.attention(entries, arrays, "filters", "filter")),
                small=True,
            ),
            Figure(
                "Training",
                f"Loss by epoch on a logarithmic scale{_median_over(images, 'images')}."
                + (" A line ends where the last image’s training stopped." if images > 1 else ""),
                tuple(figures.filter_curves(entries, arrays)),
            ),
            tables.costs(_took(entries, "filter", "filters"), entries, "images"),
        ),
    )


def _nodes(result: dict[str, Any], arrays: Arrays) -> Iterable[Section]:
    entries: Sequence[Entry] = result.get("nodes") or ()
    if not entries:
        return
    described = {str(entry["dataset"]): str(entry.get("description") or "") for entry in entries}
    runs, many = _most(entries, "runs"), len(contestant_looks(entries)) > 1
    yield Section(
        anchor="nodes",
        title="Classifying nodes",
        intro=(
            "Some nodes of a graph carry a label; each model predicts the labels of the others "
            "from the nodes’ features and the graph."
        ),
        notes=tuple((name, text) for name, text in described.items() if text),
        blocks=_present(
            Figure(
                "Accuracy",
                ("Mean test accuracy with its 95% interval" if runs > 1 else "Test accuracy")
                + (", best on top" if many else "")
                + ("; each faint dot is a run." if runs > 1 else "."),
                tuple(figures.accuracies(entries)),
            ),
            tables.comparison(
                f"Test accuracy{_mean_over(runs, 'runs')}."
                + (" The best of a data set is bold." if many else ""),
                entries,
                across="dataset",
                metric="test",
                lower_is_better=False,
                write=numbers.percent,
            ),
            _confusions(entries, arrays, "nodes", "nodes"),
            Figure(
                "Learned filters",
                "What each head of Specformer makes of the graph’s eigenvalues. High on the left "
                "keeps what neighbours share; high on the right keeps how they differ.",
                tuple(figures.heads(entries, arrays, "nodes")),
            ),
            Figure(
                "Which frequencies look at which",
                "Specformer’s attention between low, medium and high frequencies, the mean of its "
                "heads. A row adds up to about 1.",
                tuple(figures.attention(entries, arrays, "nodes", "dataset")),
                small=True,
            ),
            Figure(
                "Training",
                f"Validation accuracy by epoch{_median_over(runs, 'runs')}.",
                tuple(figures.node_curves(entries, arrays)),
            ),
            tables.costs(_took(entries, "dataset", "data sets"), entries, "runs"),
        ),
    )


def _molecules(result: dict[str, Any], arrays: Arrays) -> Iterable[Section]:
    entries: Sequence[Entry] = result.get("molecules") or ()
    if not entries:
        return
    described = {str(entry["dataset"]): str(entry.get("description") or "") for entry in entries}
    over = _median_over(_most(entries, "runs"), "runs")
    yield Section(
        anchor="molecules",
        title="Learning from many graphs",
        intro=(
            "Each graph, a molecule say, has targets of its own; a model learns them from some of "
            "the graphs, validation picks its best epoch, and it is measured on the others."
        ),
        notes=tuple((name, text) for name, text in described.items() if text),
        blocks=_present(
            *(
                table
                for metric in dict.fromkeys(entry["metric"] for entry in entries)
                for table in _compared(entries, metric)
            ),
            *_each_target(entries),
            Figure(
                "Predictions",
                _told_by_predictions(entries),
                tuple(molecule_figures.predictions(entries, arrays)),
            ),
            _confusions(entries, arrays, "molecules", "graphs"),
            Figure(
                "What was learned",
                _told_by_filters(entries),
                tuple(molecule_figures.filters(entries, arrays)),
            ),
            Figure(
                "Attention",
                "Specformer’s attention between low, medium and high frequencies of those graphs, "
                "the mean of its heads. Each row adds up to one.",
                tuple(molecule_figures.dependencies(entries, arrays)),
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
            tables.costs(_took(entries, "dataset", "data sets"), entries, "runs"),
        ),
    )


def _confusions(entries: Sequence[Entry], arrays: Arrays, kind: str, things: str) -> Figure:
    many, runs = len(contestant_looks(entries)) > 1, _most(entries, "runs")
    return Figure(
        "Which classes are taken for which",
        f"Of the test {things} of each class (row), the percentage put into each (column)"
        + (" by Specformer" if many else "")
        + (", over all runs." if runs > 1 else "."),
        tuple(figures.confusions(entries, arrays, kind, things)),
    )


def _told_by_filters(entries: Sequence[Entry]) -> str:
    told = (
        "What the first filter makes of eigenvalues of some test graphs, by head. Equal ones of "
        "two graphs may come out different: a filter sees all of a graph’s. Grey hills show where "
        "they lie."
    )
    if all(entry.get("matrix") == "laplacian" for entry in entries):
        return told
    return f"{told} Those of the adjacency matrix with loops, μ, are drawn at 1 − μ."


def _told_by_predictions(entries: Sequence[Entry]) -> str:
    runs = ", of all runs" if _most(entries, "runs") > 1 else ""
    told = {
        "ap": "Precision over recall, at every threshold.",
        "rocauc": "True over false positives, at every threshold.",
        "accuracy": "True over false positives, at every threshold.",
    }
    numbered = "Predicted over measured numbers, with the line where they agree."
    sentences = dict.fromkeys(told.get(str(entry["metric"]), numbered) for entry in entries)
    return " ".join([f"The test graphs{runs}.", *sentences])


def _compared(entries: Sequence[Entry], name: str) -> Iterable[Table]:
    """Test figures and, where some differ, those at the epochs of the best validation figure."""
    metric, looks = metric_named(name), contestant_looks(entries)
    measured = [entry for entry in entries if entry["metric"] == name]
    over = _mean_over(_most(measured, "runs"), "runs")
    better = "Lower" if metric.lower else "Higher"
    bold = "; the best of a data set is bold" if len(contestant_looks(measured)) > 1 else ""
    rules = {"test": ""}
    if any(entry.get("test_by_metric", entry["test"]) != entry["test"] for entry in measured):
        rules["test_by_metric"] = f" at the epoch of the best validation {metric.label}"
    for key, at in rules.items():
        yield tables.comparison(
            f"Test {metric.label}{at}{over}. {better} is better{bold}.",
            measured,
            across="dataset",
            metric=key,
            lower_is_better=metric.lower,
            write=numbers.error,
            looks=looks,
        )


def _each_target(entries: Sequence[Entry]) -> Iterable[Table]:
    """Test figures of the targets one by one, where a set has several, a table a set."""
    looks = contestant_looks(entries)
    for name, own in figures.entries_by(tables.by_target(entries), "dataset").items():
        metric = metric_named(str(own[0]["metric"]))
        over = _mean_over(_most(own, "runs"), "runs")
        yield tables.comparison(
            f"Test {metric.label} of each target of {name}{over}.",
            own,
            across="target",
            metric="test",
            lower_is_better=metric.lower,
            write=numbers.error,
            looks=looks,
        )


def _most(entries: Sequence[Entry], key: str) -> int:
    return max(int(entry.get(key) or 0) for entry in entries)


def _mean_over(count: int, what: str) -> str:
    return f", mean over {count} {what} ± 95% interval" if count > 1 else ""


def _median_over(count: int, what: str) -> str:
    return f": the line is the median over {what}, the tint their range" if count > 1 else ""


def _took(entries: Sequence[Entry], key: str, what: str) -> str:
    several = len(figures.entries_by(entries, key)) > 1
    return f"What it took, over all {what}." if several else "What it took."


def _present(*blocks: Figure | Table) -> tuple[Figure | Table, ...]:
    """The blocks that have something to show."""
    return tuple(
        block
        for block in blocks
        if (
            any(cell.text != numbers.NONE for row in block.rows for cell in row.cells)
            if isinstance(block, Table)
            else block.pictures
        )
    )
