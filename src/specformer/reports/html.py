r"""The report of a run folder: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from specformer.files import write_text
from specformer.reports import numbers
from specformer.reports.findings import summary
from specformer.reports.looks import theme_css
from specformer.reports.sections.blocks import Section
from specformer.reports.sections.filter_section import filter_section
from specformer.reports.sections.molecule_section import molecule_section
from specformer.reports.sections.node_section import link_section, node_section
from specformer.reports.sections.pictures import spectra
from specformer.reports.sections.report_tables import search_section
from specformer.reports.standings import (
    differences_section,
    differing_settings,
    merged_runs,
    standings_section,
)
from specformer.reports.variants import Arrays, Rows, kept_arrays
from specformer.training.runs.folder import REPORT, RunFolder

#: The section of each kind of learning, in the order of the page.
_SECTIONS = {
    "filters": filter_section,
    "nodes": node_section,
    "links": link_section,
    "molecules": molecule_section,
}


def render_report(run: RunFolder) -> str:
    """The report as one self-contained page.

    It shows what ``result.json`` and ``outputs.npz`` hold and leaves out what they do not.
    """
    result = run.result()
    first = []
    if "differences" in result:  # between models, whose run folders lie beside the report
        models = {row["name"]: RunFolder(run.path / row["folder"]) for row in result["rows"]}
        finished = {name: own for name, own in models.items() if own.is_finished}
        first.append(standings_section(result, differing_settings(finished)))
    return _page(result, kept_arrays(run), run.path.resolve().name, first)


def render_comparison(runs: Sequence[RunFolder]) -> str:
    """Several runs side by side, as one self-contained page."""
    result, arrays = merged_runs(runs)
    return _page(result, arrays, "", [differences_section(runs, result)])


def render_search(result: dict[str, Any], trials: Sequence[Mapping[str, Any]]) -> str:
    """A search for settings, with all its trials, as one self-contained page."""
    return _page(result, {}, "", [search_section(result, trials)])


def _page(
    result: dict[str, Any], arrays: Arrays, run_name: str, first: Sequence[Section] = ()
) -> str:
    """A page with these sections first, then those of each kind of learning."""
    sections = list(first)
    for kind, section in _SECTIONS.items():
        rows = Rows.of(kind, result, arrays)
        if rows.entries:
            made = section(rows)
            if "differences" in result:  # the first section has the standings
                shown = [each for each in made.blocks if not getattr(each, "in_standings", False)]
                made = replace(made, blocks=shown)
            sections.append(made)
    code = files("specformer.reports").joinpath("templates/report.js").read_text(encoding="utf-8")
    # The page's content policy allows only the script with this hash.
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    environment = Environment(
        loader=PackageLoader("specformer.reports", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        result=result,
        run_name=run_name,
        title=result.get("title") or f"Specformer {result.get('kind') or 'run'}",
        summary=result.get("summary") or summary(result),
        sections=sections,
        spectra=result.get("spectra") or [],
        spectra_pictures=tuple(spectra(result, arrays)),
        environment=result.get("environment") or {},
        theme=Markup(theme_css()),
        n=numbers,
        script=Markup(code),
        script_hash=f"sha256-{digest}",
    )


def write_report(run: RunFolder) -> Path:
    """Write ``report.html`` into the run folder, atomically, in place of an older one."""
    with run.answering_for_files("no report can be made of it"):
        page = render_report(run)
    write_text(run.path / REPORT, page)
    return run.path / REPORT
