r"""A result's numbers as tables: models down, data across, the best marked; trials of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.looks import Look
from specformer.reports.sections.blocks import Cell, Listing, Row, Section, Table
from specformer.reports.variants import Entry, Rows

#: Most columns of the data in a table of prepared features.
MOST_COLUMNS = 40
#: Most targets of a set that has a table of its targets.
MOST_TARGETS = 24


def mean_over(count: int, what: str) -> str:
    """The end of a caption that explains figures of several runs or images."""
    return f", mean over {count} {what} ± 95% interval" if count > 1 else ""


def comparison(
    caption: str,
    rows: Rows,
    *,
    across: str,
    metric: str,
    lower: bool,
    write: Callable[..., str] = numbers.error,
    in_standings: bool = False,
) -> Table:
    """One metric of every model (down) on every filter or data set (across).

    Args:
        caption: the table's.
        rows: entries of a result.
        across: the key of an entry that names its column.
        metric: the key of the figures.
        lower: whether the lowest figure is the best.
        write: writes a figure as text.
        in_standings: the table's.
    """
    columns = tuple(dict.fromkeys(str(entry[across]) for entry in rows.entries))
    found = {(entry.look, str(entry[across])): entry.get(metric) or {} for entry in rows.entries}
    best: dict[str, str] = {}
    for column in columns:
        means = [
            value["mean"]
            for (_, where), value in found.items()
            if where == column and value.get("mean") is not None
        ]
        if len(means) > 1:
            best[column] = write(min(means) if lower else max(means))

    def cell(style: Look, column: str) -> Cell:
        value = found.get((style, column), {})
        mean = value.get("mean")
        if mean is None:
            return Cell(numbers.NONE)
        text, ci95 = write(mean), interval(value)
        spread = "" if ci95 is None else numbers.spread(write, mean, ci95)
        # Numbers with the same text are equally good to a reader.
        return Cell(text, spread, best=text == best.get(column), value=mean)

    lines = (Row(style, tuple(cell(style, column) for column in columns)) for style in rows.looks)
    return Table(caption, columns, tuple(lines), in_standings)


def compared(rows: Rows) -> Iterator[Table]:
    """Test figures by metric and, where some differ, those at the best validation figure."""
    for metric in dict.fromkeys(entry.metric for entry in rows.entries):
        own = rows.only(entry for entry in rows.entries if entry.metric == metric)
        over = mean_over(own.most(), "runs")
        better = "Lower" if metric.lower else "Higher"
        bold = "; the best of a data set is bold" if len(own.looks) > 1 else ""
        in_one = "test_by_metric" in own.entries[0]
        best = "test_by_metric" if in_one else f"test_by_{metric.name}"
        rules = {"test": ""}
        if any(entry.get(best, entry["test"]) != entry["test"] for entry in own.entries):
            rules[best] = f" at the epoch of the best validation {metric.label}"
        for key, at in rules.items():
            yield comparison(
                f"Test {metric.label}{at}{over}. {better} is better{bold}.",
                own,
                across="dataset",
                metric=key,
                lower=metric.lower,
                write=numbers.writer(metric.name),
                in_standings=key == "test",
            )


def each_target(rows: Rows) -> Iterator[Table]:
    """Test figures of each target, one table per set with several targets."""
    for name, group in rows.groups.items():
        metric = group[0].metric
        own = rows.only(
            Entry({**entry, "target": target, "test": figures}, entry.look)
            for entry in group
            for target, figures in targets_of(entry).items()
        )
        yield comparison(
            f"Test {metric.label} of each target of {name}{mean_over(own.most(), 'runs')}.",
            own,
            across="target",
            metric="test",
            lower=metric.lower,
            write=numbers.writer(metric.name),
        )


def targets_of(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The figures of each target of a row with several, but not too many."""
    found = row.get("test_by_target") or {}
    few = found if len(found) <= MOST_TARGETS else {}
    return {name: figures or {} for name, figures in few.items()}


def costs(rows: Rows) -> Table:
    """The costs of each model: its size, and epochs and time over all its data sets."""
    of_filters = rows.kind == "filters"
    lines = []
    for style in rows.looks:
        own = [entry for entry in rows.entries if entry.look == style]
        sizes = sorted({entry["parameters"] for entry in own if entry.get("parameters")})
        size = " to ".join(numbers.count(value) for value in dict.fromkeys(sizes[:1] + sizes[-1:]))
        epochs = [entry["epochs"] for entry in own if entry.get("epochs") is not None]
        seconds = [entry["seconds"] for entry in own if entry.get("seconds") is not None]
        mean = sum(epochs) / len(epochs) if epochs else None
        took = sum(seconds) if seconds else None
        runs = sum(int(entry.get("images" if of_filters else "runs") or 0) for entry in own) or None
        cells = (
            Cell("; ".join(dict.fromkeys(entry.trained_by for entry in own)) or numbers.NONE),
            Cell(size or numbers.NONE, value=sizes[0] if sizes else None),
            Cell(numbers.count(runs), value=runs),
            Cell(numbers.count(mean), value=mean),
            Cell(numbers.duration(took), value=took),
        )
        lines.append(Row(style, cells))
    over = f", over all {'filters' if of_filters else 'data sets'}" if len(rows.groups) > 1 else ""
    columns = ("Recipe", "Parameters", "Runs", "Mean epochs", "Training, all runs")
    told = 0 if any(entry.trained_by for entry in rows.entries) else 1
    kept = tuple(Row(line.look, line.cells[told:]) for line in lines)
    return Table(f"What it took{over}.", columns[told:], kept, in_standings=True)


def prepared_features(rows: Rows) -> Listing:
    """How the columns of the first data set with prepared features were prepared in run one."""
    told = next((entry["features"] for entry in rows.entries if entry.get("features")), ())
    lines = tuple((str(each["column"]), str(each["prepared"])) for each in told[:MOST_COLUMNS])
    more = f" The first {MOST_COLUMNS} of {len(told)}." if len(told) > MOST_COLUMNS else ""
    caption = "How columns of features were prepared; numbers are the first run’s training nodes’."
    return Listing(caption + more, ("Column", "Prepared"), lines, aside=True)


def interval(value: Mapping[str, Any]) -> float | None:
    """The 95% interval; None for a single run."""
    ci95 = value.get("ci95")
    return None if len(value.get("values") or (0, 0)) < 2 else ci95


Trial = Mapping[str, Any]


def search_section(result: Mapping[str, Any], trials: Sequence[Trial]) -> Section:
    """The finalists, which are judged on the most splits, then all trials, the best first."""
    most = result["splits"]
    few = [trial for trial in trials if trial["splits"] != most] or trials
    final = [trial for trial in trials if trial["splits"] == most]
    shared = [each for each in trials[0]["set"] if all(each in trial["set"] for trial in trials)]
    settings = ", ".join(result["set"]) or "the recipe's own"
    return Section(
        anchor="search",
        title="Settings that were tried",
        intro="A trial is judged by validation data alone; test data had no part in it. Trial 0 "
        "is the recipe as it was given. Scores on other numbers of splits do not compare.",
        notes=(
            (f"Trial {result['winner']}, the best", settings),
            *((("All trials have", ", ".join(shared)),) if shared else ()),
        ),
        blocks=(
            _listing("Finalists, by which the best is chosen", result, final, shared),
            _listing("All trials", result, few, shared),
        ),
    )


def _listing(
    title: str, result: Mapping[str, Any], trials: Sequence[Trial], shared: Sequence[str]
) -> Listing:
    """Trials with the settings in which they differ, the best first, diverged ones last."""
    judged = [trial for trial in trials if trial["score"] is not None]
    judged.sort(key=lambda trial: trial["score"], reverse=not result["lower"])
    rows = []
    for trial in (*judged, *(trial for trial in trials if trial["score"] is None)):
        score = "diverged" if trial["score"] is None else f"{trial['score']:.4g}"
        settings = ", ".join(each for each in trial["set"] if each not in shared)
        told = settings or "the recipe's own"
        rows.append((str(trial["trial"]), score, numbers.duration(trial["seconds"]), told))
    splits = trials[0]["splits"]
    told = f"{title}; each on {splits} split{'' if splits == 1 else 's'}."
    columns = ("Trial", f"Validation {result['metric']}", "Time", "Settings")
    return Listing(told, columns, tuple(rows))
