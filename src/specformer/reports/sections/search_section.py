r"""The trials of a search for settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specformer.reports import numbers
from specformer.reports.sections.blocks import Listing, Section

Trial = Mapping[str, Any]


def search_section(result: Mapping[str, Any], trials: Sequence[Trial]) -> Section:
    """Finalists, which are judged on the most splits, then all trials, the best of either first."""
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
    splits = trials[0]["splits"]
    told = f"{title}; each on {splits} split{'' if splits == 1 else 's'}."
    columns = ("Trial", f"Validation {result['metric']}", "Time", "Settings")
    return Listing(told, columns, tuple(_row(trial, shared) for trial in _ranked(result, trials)))


def _ranked(result: Mapping[str, Any], trials: Sequence[Trial]) -> list[Trial]:
    """The best first; those that diverged last."""
    judged = [trial for trial in trials if trial["score"] is not None]
    judged.sort(key=lambda trial: trial["score"], reverse=not result["lower"])
    return judged + [trial for trial in trials if trial["score"] is None]


def _row(trial: Trial, shared: Sequence[str]) -> tuple[str, ...]:
    """A trial, with the settings that not all have."""
    score = "diverged" if trial["score"] is None else f"{trial['score']:.4g}"
    settings = ", ".join(each for each in trial["set"] if each not in shared)
    settings = settings or "the recipe's own"
    return str(trial["trial"]), score, numbers.duration(trial["seconds"]), settings
