r"""The main finding of a result in a sentence or two, worked out from its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections.report_tables import interval
from specformer.reports.standings import verdict
from specformer.reports.variants import Entry, metric_of, variant, variant_looks
from specformer.training.evaluation.graph_metrics import metric_named


@dataclass(frozen=True)
class Standing:
    """A variant: its model, its label, and the figures it reached.

    ``together`` is what the mean of its runs' predictions reaches.
    """

    model: str
    label: str
    reached: Mapping[str, Any]
    together: float | None = None

    @property
    def mean(self) -> float:
        return float(self.reached["mean"])


#: The variants of each filter or data set, the best first.
Ranking = dict[str, list[Standing]]


def summary(result: Mapping[str, Any]) -> str:
    """The main finding of a run.

    Example:
        >>> def entry(model, sse):
        ...     return {"filter": "comb", "model": model, "sse": {"mean": sse}}
        >>> summary({"filters": [entry("gcn", 50.0), entry("specformer", 0.5)]})
        'Specformer has the smallest error on the comb filter, 100 times below the next best model.'
    """
    if "differences" in result:
        return verdict(result)
    filters = _ranked(result.get("filters"), "filter", "sse", lower=True)
    on_nodes = result.get("nodes") or ()
    right = [entry for entry in on_nodes if metric_of(entry).name == "accuracy"]
    nodes = _ranked(right, "dataset", "test", lower=False)
    sentences = [_on_filters(filters)] if filters else []
    judged = [entry for entry in on_nodes if metric_of(entry).name != "accuracy"]
    sentences += _by_figures(
        [*(result.get("links") or ()), *(result.get("molecules") or ()), *judged]
    )
    if len(nodes) > 3:
        winner, where, elsewhere = _winner(nodes, "data set")
        sentences.append(f"{winner} is the most accurate on {where}{elsewhere}.")
    elif nodes:
        sentences.append(_on_few(nodes))
    return " ".join(sentences) or "This run recorded no comparison of models."


def _ranked(entries: Sequence[Entry] | None, key: str, metric: str, *, lower: bool) -> Ranking:
    looks = variant_looks(entries or ())
    groups: Ranking = {}
    for entry in entries or ():
        reached = entry.get(metric) or {}
        if reached.get("mean") is not None:
            who = variant(entry)
            standing = Standing(who[0], looks[who].label, reached, entry.get("test_together"))
            groups.setdefault(str(entry[key]), []).append(standing)
    return {
        name: sorted(group, key=lambda standing: standing.mean, reverse=not lower)
        for name, group in groups.items()
    }


def _on_filters(ranking: Ranking) -> str:
    winner, where, elsewhere = _winner(ranking, "filter")
    first = {name: group[0] for name, group in ranking.items()}
    rivals = {name: rival for name, group in ranking.items() if (rival := _rival(group))}
    if not rivals:
        worst = max(standing.mean for standing in first.values())
        return f"{winner} fits {where} with a squared error of at most {numbers.error(worst)}."
    behind = {
        name: rival
        for name, rival in rivals.items()
        if first[name].label == winner and first[name].mean > 0
    }
    times = ""
    if behind:
        ratios = [rival.mean / first[name].mean for name, rival in behind.items()]
        low, high = numbers.factor(min(ratios)), numbers.factor(max(ratios))
        span = low if low == high else f"{low} to {high}"
        alone = all(rival.model == first[name].model for name, rival in behind.items())
        next_best = f"the next best {'recipe' if alone else 'model'}"
        times = f", {span} times below {next_best}{' there' if elsewhere else ''}"
    return f"{winner} has the smallest error on {where}{times}{elsewhere}."


def _by_figures(entries: Sequence[Entry]) -> list[str]:
    """One sentence per data set: the figure of the best model, or of the only one."""
    sentences = []
    for name in dict.fromkeys(str(entry["metric"]) for entry in entries):
        metric = metric_named(name)
        measured = [entry for entry in entries if entry["metric"] == name]
        for dataset, group in _ranked(measured, "dataset", "test", lower=metric.lower).items():
            best, spread = group[0], interval(group[0].reached)
            figure = numbers.error(best.mean)
            if spread is not None:
                figure += f" ± {numbers.error(spread, like=best.mean)}"
            verb = "reaches a" if len(group) == 1 else "has the best"
            told = f"On {dataset}, {best.label} {verb} test {metric.label} of {figure}"
            if best.together is not None:
                told += f"; the mean of its runs’ predictions has {numbers.error(best.together)}"
            sentences.append(f"{told}.")
    return sentences


def _on_few(ranking: Ranking) -> str:
    parts = []
    for name, group in ranking.items():
        best, rival = group[0], _rival(group)
        share = numbers.percent(best.mean)
        part = f"on {name}, {best.label} is right for {share} of the test nodes"
        if rival:
            points = 100 * (best.mean - rival.mean)
            reach = 100 * ((interval(best.reached) or 0.0) + (interval(rival.reached) or 0.0))
            overlap = ", though the intervals overlap" if points < reach else ""
            part += f", {points:.1f} points above {rival.label}{overlap}"
        parts.append(part)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _winner(ranking: Ranking, thing: str) -> tuple[str, str, str]:
    """The model that is best most often, on how many, and the best ones on the rest."""
    leaders = {name: group[0].label for name, group in ranking.items()}
    winner, wins = Counter(leaders.values()).most_common(1)[0]
    total = len(leaders)
    where = f"{wins} of {total} {thing}s"
    if wins == total:
        where = {1: f"the {next(iter(leaders))} {thing}", 2: f"both {thing}s"}.get(
            total, f"all {total} {thing}s"
        )
    lost = [f"{leader} leads on {name}" for name, leader in leaders.items() if leader != winner]
    return winner, where, f"; {', '.join(lost)}" if lost else ""


def _rival(group: Sequence[Standing]) -> Standing | None:
    """The next best model or, if there is no other, the next best recipe of the same model."""
    others = [standing for standing in group[1:] if standing.model != group[0].model]
    return next(iter(others or group[1:]), None)
