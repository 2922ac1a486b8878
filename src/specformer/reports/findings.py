r"""The main finding of a result in a sentence or two, worked out from its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections.report_tables import interval
from specformer.reports.standings import figure, leaders, listed, verdict
from specformer.reports.variants import KINDS, Entry, Rows, best_first, grouped
from specformer.training.evaluation.graph_metrics import metric_named

#: The entries of each filter or data set, the best first.
Ranking = dict[str, list[Entry]]


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
    found = {kind: Rows.of(kind, result, {}).entries for kind in KINDS}
    right = [entry for entry in found["nodes"] if entry.metric.name == "accuracy"]
    judged = [entry for entry in found["nodes"] if entry.metric.name != "accuracy"]
    filters, nodes = _ranked(found["filters"], lower=True), _ranked(right, lower=False)
    sentences = [_on_filters(filters)] if filters else []
    sentences += _by_figures([*found["links"], *found["molecules"], *judged])
    if len(nodes) > 3:
        winner, where, elsewhere = _winner(nodes, "data set")
        sentences.append(f"{winner} is the most accurate on {where}{elsewhere}.")
    elif nodes:
        sentences.append(_on_few(nodes))
    return " ".join(sentences) or "This run recorded no comparison of models."


def _ranked(entries: Sequence[Entry], *, lower: bool) -> Ranking:
    measured = grouped(entry for entry in entries if entry.reached.get("mean") is not None)
    return {name: best_first(group, lower=lower) for name, group in measured.items()}


def _on_filters(ranking: Ranking) -> str:
    winner, where, elsewhere = _winner(ranking, "filter")
    first = {name: group[0] for name, group in ranking.items()}
    rivals = {name: rival for name, group in ranking.items() if (rival := _rival(group))}
    if not rivals:
        worst = max(entry.reached["mean"] for entry in first.values())
        return f"{winner} fits {where} with a squared error of at most {numbers.error(worst)}."
    behind = {
        name: rival
        for name, rival in rivals.items()
        if first[name].look.label == winner and first[name].reached["mean"] > 0
    }
    times = ""
    if behind:
        ratios = [r.reached["mean"] / first[name].reached["mean"] for name, r in behind.items()]
        low, high = numbers.factor(min(ratios)), numbers.factor(max(ratios))
        span = low if low == high else f"{low} to {high}"
        alone = all(rival["model"] == first[name]["model"] for name, rival in behind.items())
        next_best = f"the next best {'recipe' if alone else 'model'}"
        times = f", {span} times below {next_best}{' there' if elsewhere else ''}"
    return f"{winner} has the smallest error on {where}{times}{elsewhere}."


def _by_figures(entries: Sequence[Entry]) -> list[str]:
    """One sentence per data set: the figure of the best model, or of the only one."""
    sentences = []
    for name in dict.fromkeys(str(entry["metric"]) for entry in entries):
        metric = metric_named(name)
        measured = [entry for entry in entries if entry["metric"] == name]
        for dataset, ranked in _ranked(measured, lower=metric.lower).items():
            best, tied = ranked[0], leaders(ranked)
            reached = figure(best, best.reached if len(tied) == 1 else {"mean": best.mean})
            verb = "has the best" if len(ranked) > 1 else "reaches a"
            verb = "share the best" if len(tied) > 1 else verb
            told = f"On {dataset}, {listed(tied)} {verb} test {metric.label} of {reached}"
            if len(tied) == 1 and (together := best.get("test_together")) is not None:
                told += f"; the mean of its runs’ predictions has {numbers.error(together)}"
            sentences.append(f"{told}.")
    return sentences


def _on_few(ranking: Ranking) -> str:
    parts = []
    for name, group in ranking.items():
        best, rival = group[0], _rival(group)
        share = numbers.percent(best.reached["mean"])
        tied = leaders(group)
        verb = "is" if len(tied) == 1 else "are each"
        part = f"on {name}, {listed(tied)} {verb} right for {share} of the test nodes"
        if rival and len(tied) == 1:
            points = 100 * (best.reached["mean"] - rival.reached["mean"])
            reach = 100 * ((interval(best.reached) or 0.0) + (interval(rival.reached) or 0.0))
            overlap = ", though the intervals overlap" if points < reach else ""
            told = f"{points:.1f}" if points >= 0.05 else "less than 0.1"
            part += f", {told} points above {rival.look.label}{overlap}"
        parts.append(part)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _winner(ranking: Ranking, thing: str) -> tuple[str, str, str]:
    """The model that is best most often, on how many, and the best ones on the rest."""
    leaders = {name: group[0].look.label for name, group in ranking.items()}
    winner, wins = Counter(leaders.values()).most_common(1)[0]
    total = len(leaders)
    where = f"{wins} of {total} {thing}s"
    if wins == total:
        where = {1: f"the {next(iter(leaders))} {thing}", 2: f"both {thing}s"}.get(
            total, f"all {total} {thing}s"
        )
    lost = [f"{leader} leads on {name}" for name, leader in leaders.items() if leader != winner]
    return winner, where, f"; {', '.join(lost)}" if lost else ""


def _rival(group: Sequence[Entry]) -> Entry | None:
    """The next best model or, if there is no other, the next best recipe of the same model."""
    others = [entry for entry in group[1:] if entry["model"] != group[0]["model"]]
    return next(iter(others or group[1:]), None)
