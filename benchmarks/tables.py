r"""Recorded results of benchmarks as tables, for the terminal and for pages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from specformer.errors import RunError
from specformer.files.documents import MALFORMED
from specformer.paper.recorded import entries, newest_rows
from specformer.paper.table_rows import interval
from specformer.reports.looks import look
from specformer.reports.numbers import NONE, scientific

#: Keys that an entry must have, and their types.
_KEYS = {
    "name": str,
    "suite": str,
    "command": str,
    "created": str,
    "device": str,
    "environment": dict,
    "rows": list,
}
#: A block that shows a folder of ``results/``.
_BLOCK = re.compile(
    r"(<!-- results:(?P<name>bench|reliability|waiting) -->\n)(?P<body>.*?)(<!-- /results -->)",
    re.DOTALL,
)
SCHEMA = "specformer.bench/1"
#: Header and cells.
Grid = tuple[list[str], list[list[str]]]
#: Rules that choose the epoch that counts: their names in rows of ``same`` and in tables.
_RULES = {"by_loss": "validation loss", "by_accuracy": "validation accuracy"}


def bench_grids(result: Mapping[str, Any]) -> list[Grid]:
    """The tables of a result: two for the suite ``same``, one for all others."""
    grids = {
        "same": (_accuracy_grid, _error_grid),
        "decompose": (_decomposition_grid,),
        "spectrum": (_arpack_grid,),
        "reliability": (_reliability_grid,),
        "silence": (_silence_grid,),
        "interruptions": (_stops_grid,),
    }
    if (suite := result.get("suite")) in grids:
        return [grid(result["rows"]) for grid in grids[suite]]
    return [bench_grid(result)]


def bench_grid(result: Mapping[str, Any]) -> Grid:
    """Times and memory, with the paper's numbers in brackets. Empty columns are left out."""
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
    kept = [any(line[column] != NONE for line in lines) for column in range(len(header))]
    return list(compress(header, kept)), [list(compress(line, kept)) for line in lines]


def _cells(row: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    # Milliseconds per epoch equal seconds per 1000 epochs, the unit of the paper's tables.
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


def _accuracy_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Two lines per case, one per rule."""
    header = ["case", "picked by", "plain, %"]
    header += ["ours, %", "ours − plain", "exact, %", "exact − plain"]
    lines = []
    for row in rows:
        for rule, name in _RULES.items():
            line = [row["case"], name, interval(row["plain"][rule])]
            for found in (row["ours"], row["exact"]):
                line += [interval(found[rule]), _against(found, rule)]
            lines.append(line)
    return header, lines


def _error_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Values that do not depend on the rule: seconds, losses, and errors of landmarks."""
    counts = sorted({count for row in rows for count in row["landmark_errors"]}, key=int)
    losses = {
        "losses apart": "losses_apart",
        "by order": "losses_apart_by_order",
        "in float64": "losses_apart_in_float64",
    }
    header = ["case", "plain, s", "ours, s", "exact, s", *losses]
    header += [f"error, b = {count}" for count in counts]
    lines = [
        [
            row["case"],
            *(_figure(row[name]["seconds"]) for name in ("plain", "ours", "exact")),
            *(scientific(row.get(key)) for key in losses.values()),
            *(scientific(row["landmark_errors"].get(count)) for count in counts),
        ]
        for row in rows
    ]
    return header, lines


def _decomposition_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Time and memory of eigenpairs, and how exact they are."""
    header = ["graph", "nodes", "edges", "asked", "eigenpairs", "solver", "seconds", "peak, MB"]
    header += ["residual", "orthogonality", f"ARPACK, {rows[0]['arpack_pairs']} pairs, s"]
    lines = []
    for row in rows:
        arpack, limit = row["arpack_seconds"], row["arpack_limit"]
        lines.append(
            [
                row["case"] if row["graphs"] == 1 else f"{row['case']}, {row['graphs']:,} graphs",
                f"{row['nodes']:,}",
                f"{row['edges']:,}",
                row["asked"],
                f"{row['eigenpairs']:,}",
                row["solver"],
                _figure(row["seconds"]),
                _figure(row["mb"]),
                scientific(row["residual"]),
                scientific(row["orthogonality"]),
                f"> {limit:.0f}" if limit and arpack is None else _figure(arpack),
            ]
        )
    return header, lines


def _arpack_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """The suite ``spectrum``, which has no epochs, no plain loop and no memory."""
    header = ["case", "nodes", "eigenpairs", "ours, ms", "ARPACK, ms", "ratio"]
    lines = [
        [
            row["case"],
            f"{row['nodes']:,}",
            f"{row['eigenpairs']:,}",
            _figure(row["ours_ms"]),
            _figure(row["reference_ms"]),
            _times(row["ratio"]),
        ]
        for row in rows
    ]
    return header, lines


def _reliability_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Outcomes of attacks, and their totals."""
    counts = ("tried", "refused", "unaffected", "wrong", "tracebacks")
    total = {name: sum(row[name] for row in rows) for name in counts}
    lines = [
        [row["case"], *(f"{row[name]:,}" for name in counts)]
        for row in (*rows, {"case": "all", **total})
        if row["tried"]
    ]
    return ["attack", *counts], lines


def _silence_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """How long commands took, and how long they printed nothing."""
    header = ["command, and where it writes", "seconds", "first words after, s"]
    times = ("seconds", "first", "longest", "leaving")
    lines = [[row["case"], *(f"{row[name]:.1f}" for name in times)] for row in rows]
    return [*header, "longest silence, s", "last words before its end, s"], lines


def _stops_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Outcomes of stopped training runs by kind, and their totals."""
    kinds = {
        "stops": "stops", "went on": "`resume` went on", "started over": "started over",
        "wrote its report": "wrote the report", "had ended": "had ended before",
        "no folder": "nothing written yet", "wrong": "said something wrong",
    }  # fmt: skip
    total = {kind: sum(row.get(kind, 0) for row in rows) for kind in kinds}
    lines = [
        [row["case"], *(str(row.get(kind, 0)) for kind in kinds)]
        for row in (*rows, {"case": "all", **total})
    ]
    return ["training on", *kinds.values()], lines


def _against(found: Mapping[str, Any], rule: str) -> str:
    """The difference from the plain loop's mean in points, inside or outside its interval."""
    place = {True: ", inside", False: ", outside", None: ""}[found["inside"][rule]]
    return f"{100 * found['difference'][rule]:+.2f}{place}".replace("-", "−")


def markdown_lines(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of Markdown."""
    first, *others = (f"| {' | '.join(line)} |" for line in (header, *cells))
    return [first, "|" + "---|" * len(header), *others]


def bench_markdown(entries: Sequence[Mapping[str, Any]]) -> str:
    """Recorded results as Markdown, with a line on how each was measured.

    Results of the suite ``same`` are joined if only their cases differ. If a suite measured a case
    several times on the same device, only the newest is shown.
    """
    lines = []
    for entry in _joined(newest_cases(entries)):
        for number, (header, cells) in enumerate(bench_grids(entry)):
            lines += [""] * min(number, 1) + markdown_lines(header, cells)
        environment = entry["environment"]
        threads = f", {entry['threads']} threads" if entry["threads"] else ""
        lines += [
            "",
            f"`{entry['command']}` on one {entry['device']}{threads}, PyTorch "
            f"{environment['packages']['torch']}, {_manner(entry)}, "
            f"commit {environment['commit']}.",
            "",
        ]
    return "\n".join(lines)


def newest_cases(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Entries without cases that a later entry of the same suite and device has too."""
    return newest_rows(
        entries, lambda entry, row: (entry["suite"], entry["device"], row["case"], row.get("asked"))
    )


def _manner(entry: Mapping[str, Any]) -> str:
    plan = entry["plan"]
    if entry["suite"] in ("reliability", "silence", "interruptions"):
        whole, worked = (
            sum(row.get(name, 0.0) for row in entry["rows"]) / 60
            for name in ("seconds", "processor_seconds")
        )
        return f"{whole:.0f} minutes" + (f", {worked:.0f} of processor time" if worked else "")
    if entry["suite"] == "decompose":
        return f"median of {plan['repeats']}" if plan["repeats"] > 1 else "measured once"
    if entry["suite"] != "same":
        return f"medians of {plan['repeats']} interleaved repeats of {plan['epochs']}"
    cap = f" of at most {plan['epochs']} epochs" if plan["epochs"] else ""
    return f"means of {plan['runs']} splits{cap} with 95% intervals"


def _joined(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Entries; those of the suite ``same`` that differ only in their cases are joined."""
    found: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(entries):
        how = [entry[name] for name in ("suite", "device", "threads", "plan", "environment")]
        alike = json.dumps(how, sort_keys=True) if entry["suite"] == "same" else str(number)
        before = found.get(alike)
        found[alike] = dict(entry)
        if before:
            found[alike] |= {
                "command": f"{before['command']}`, `{entry['command']}",
                "rows": [*before["rows"], *entry["rows"]],
            }
    return list(found.values())


def _figure(value: float | None, cited: float | None = None) -> str:
    """Three digits without an exponent, and the cited number in brackets."""
    shown = NONE if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
    return shown if cited is None else f"{shown} [{cited:,}]"


def _times(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}×"


def bench_blocks(text: str, folder: Path) -> str:
    """``text`` with each block of benchmarks made again from its entries."""

    def block(match: re.Match[str]) -> str:
        found = []
        for path, entry in entries(folder / match["name"]):
            _check(path, entry)
            found.append(entry)
        return f"{match[1]}{bench_markdown(found)}{match[4]}"

    return _BLOCK.sub(block, text)


def _check(path: Path, entry: Any) -> None:
    """Refuse an entry that cannot be shown as a table."""
    for key, kind in _KEYS.items():
        if not isinstance(entry, dict) or not isinstance(entry.get(key), kind):
            raise RunError(f"{path}: {key} should be {kind.__name__}.")
    try:
        bench_markdown([entry])
    except MALFORMED as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError(f"{path}: no table can be made of it ({why}).") from error
