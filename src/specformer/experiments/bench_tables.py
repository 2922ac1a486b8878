r"""Results of ``specformer bench`` as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specformer.reports.style import look

SCHEMA = "specformer.bench/1"


def bench_grid(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of a result as people read it, the paper's figures in brackets.

    Example:
        >>> measured = {"case": "cora", "ours_ms": 0.5, "reference_ms": 9.0, "ratio": 18.0}
        >>> rest = {"ours_mb": 40.0, "reference_mb": None, "floor_ms": 0.02, "peers": {}}
        >>> bench_grid({"rows": [{**measured, **rest}]})[1]
        [['cora', '0.500', '–', '9.00', '18.0×', '–', '0.0200', '40.0', '–']]
    """
    rows = result["rows"]
    peers = list(dict.fromkeys(name for row in rows for name in row["peers"]))
    header = [
        "case",
        "ours, ms",
        "ten, ms a run",
        "plain, ms",
        "ratio",
        "ratio, ten",
        "floor, ms",
        "ours, MB",
        "plain, MB",
        *(f"{look(name).label}, ms" for name in peers),
    ]
    lines = [_cells(row, peers) for row in rows]
    if any("paper" in row for row in rows):
        header.append("decomposition, s")
        for line, row in zip(lines, rows, strict=True):
            cited = row["paper"]["seconds"]["decomposition"]
            line.append(_figure(row["decomposition_seconds"], cited))
    return header, lines


def _cells(row: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    # Milliseconds an epoch are seconds for 1000, the unit of the paper's tables.
    paper = row.get("paper", {"seconds": {}, "mb": {}})
    return [
        row["case"],
        _figure(row["ours_ms"], paper["seconds"].get("specformer")),
        _figure(row.get("ours10_ms")),
        _figure(row["reference_ms"]),
        _times(row["ratio"]),
        _times(row.get("ratio10")),
        _figure(row["floor_ms"]),
        _figure(row["ours_mb"], paper["mb"].get("specformer")),
        _figure(row["reference_mb"]),
        *(_figure(row["peers"].get(name), paper["seconds"].get(name)) for name in peers),
    ]


def bench_markdown(entries: Sequence[Mapping[str, Any]]) -> str:
    """Recorded results as Markdown, a table each and a line on how it was measured."""
    lines = []
    for entry in entries:
        header, cells = bench_grid(entry)
        lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        lines += ["| " + " | ".join(line) + " |" for line in cells]
        environment, plan = entry["environment"], entry["plan"]
        threads = f", {entry['threads']} threads" if entry["threads"] else ""
        lines += [
            "",
            f"`{entry['command']}` on one {entry['device']}{threads}, PyTorch "
            f"{environment['packages']['torch']}, medians of {plan['repeats']} interleaved repeats "
            f"of {plan['epochs']}, commit {environment['commit']}.",
            "",
        ]
    return "\n".join(lines)


def _figure(value: float | None, cited: float | None = None) -> str:
    """Three digits, without an exponent, and a cited figure in brackets."""
    shown = "–" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
    return shown if cited is None else f"{shown} [{cited:,}]"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}×"
