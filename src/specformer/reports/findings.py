r"""The main finding of a result in a sentence or two, worked out from its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.style import look
from specformer.reports.tables import Entry, interval
from specformer.training.graph_metrics import metric_named

Ranking = dict[str, list[Entry]]


def summary(result: Mapping[str, Any]) -> str:
    """What the run found.

    Example:
        >>> def entry(model, sse):
        ...     return {"filter": "comb", "model": model, "sse": {"mean": sse}}
        >>> summary({"filters": [entry("gcn", 50.0), entry("specformer", 0.5)]})
        'Specformer has the smallest error on the one filter, 100 times below the next best model.'
    """
    filters = _ranked(result.get("filters"), "filter", "sse", sign=1)
    nodes = _ranked(result.get("nodes"), "dataset", "test", sign=-1)
    sentences = [_on_filters(filters)] if filters else []
    sentences += [_on_graphs(entry) for entry in result.get("molecules") or ()]
    if nodes:
        sentences.append(_on_few(nodes) if len(nodes) <= 3 else _on_many(nodes))
    return " ".join(sentences) or "This run recorded no comparison of models."


def _ranked(entries: Sequence[Entry] | None, key: str, metric: str, sign: int) -> Ranking:
    """Each filter's or data set's entries, the best first."""
    groups: Ranking = {}
    for entry in entries or ():
        if (entry.get(metric) or {}).get("mean") is not None:
            groups.setdefault(str(entry[key]), []).append(entry)
    return {
        name: sorted(group, key=lambda entry: sign * entry[metric]["mean"])
        for name, group in groups.items()
    }


def _on_filters(ranking: Ranking) -> str:
    winner, where, elsewhere = _winner(ranking, "filter")
    rivals = {name: _rival(group, winner) for name, group in ranking.items()}
    if not any(rivals.values()):
        worst = max(group[0]["sse"]["mean"] for group in ranking.values())
        return f"{winner} fits {where} with a squared error of at most {numbers.error(worst)}."
    ratios = [
        rival["sse"]["mean"] / ranking[name][0]["sse"]["mean"]
        for name, rival in rivals.items()
        if rival and _label(ranking[name][0]) == winner and ranking[name][0]["sse"]["mean"] > 0
    ]
    times = ""
    if ratios:
        low, high = numbers.factor(min(ratios)), numbers.factor(max(ratios))
        span = low if low == high else f"{low} to {high}"
        times = f", {span} times below the next best model{' there' if elsewhere else ''}"
    return f"{winner} has the smallest error on {where}{times}{elsewhere}."


def _on_graphs(entry: Entry) -> str:
    metric, test = metric_named(str(entry["metric"])), entry["test"]
    spread = interval(test)
    around = "" if spread is None else f" ± {numbers.error(spread, like=test['mean'])}"
    return (
        f"On {entry['dataset']}, {_label(entry)} reaches a test {metric.label} of "
        f"{numbers.error(test['mean'])}{around}."
    )


def _on_few(ranking: Ranking) -> str:
    parts = []
    for name, group in ranking.items():
        best, accuracy = _label(group[0]), group[0]["test"]
        part = (
            f"on {name}, {best} is right for {numbers.percent(accuracy['mean'])} of the test nodes"
        )
        rival = _rival(group, best)
        if rival:
            points = 100 * (accuracy["mean"] - rival["test"]["mean"])
            reach = 100 * ((interval(accuracy) or 0.0) + (interval(rival["test"]) or 0.0))
            overlap = ", though the intervals overlap" if points < reach else ""
            part += f", {points:.1f} points above {_label(rival)}{overlap}"
        parts.append(part)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _on_many(ranking: Ranking) -> str:
    winner, where, elsewhere = _winner(ranking, "data set")
    return f"{winner} is the most accurate on {where}{elsewhere}."


def _winner(ranking: Ranking, thing: str) -> tuple[str, str, str]:
    """Who comes first most often, on how many, and who leads on the rest."""
    leaders = {name: _label(group[0]) for name, group in ranking.items()}
    winner, wins = Counter(leaders.values()).most_common(1)[0]
    total = len(leaders)
    where = f"{wins} of {total} {thing}s"
    if wins == total:
        where = f"all {total} {thing}s" if total > 1 else f"the one {thing}"
    lost = [f"{leader} leads on {name}" for name, leader in leaders.items() if leader != winner]
    return winner, where, f"; {', '.join(lost)}" if lost else ""


def _rival(group: Sequence[Entry], winner: str) -> Entry | None:
    return next((entry for entry in group if _label(entry) != winner), None)


def _label(entry: Entry) -> str:
    return look(str(entry["model"])).label
