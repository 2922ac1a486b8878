r"""What a comparison of models found, for Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from specformer.reports.standings import comparison_lines, verdict


@dataclass(frozen=True)
class Comparison:
    """What a comparison found: ``result.json`` of its folder, where its report is, too.

    Args:
        result: ``rows``, the best model first; ``differences`` of all pairs; ``failures``; ….
        run_dir: the folder, with the run folder of every model in it.
        report: the HTML page.
    """

    result: Mapping[str, Any]
    run_dir: Path
    report: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One per model, the best first."""
        return list(self.result["rows"])

    @property
    def differences(self) -> list[dict[str, Any]]:
        """One per pair of models, see :func:`.paired_differences`."""
        return list(self.result["differences"])

    def __str__(self) -> str:
        header, lines = comparison_lines(self.result)
        widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (header, *lines)
        ]
        return "\n".join([*table, verdict(self.result)])

    def _repr_html_(self) -> str:
        header, lines = comparison_lines(self.result)
        head, *body = (
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line)
            for tag, line in (("th", header), *(("td", line) for line in lines))
        )
        rows = "".join(f"<tr>{row}</tr>" for row in (head, *body))
        return f"<table>{rows}</table><p>{escape(verdict(self.result))}</p>"
