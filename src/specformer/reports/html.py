r"""The report of a run folder: one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from specformer.files import write_text
from specformer.reports import numbers
from specformer.reports.findings import summary
from specformer.reports.looks import theme_css
from specformer.reports.sections import figures
from specformer.reports.sections.filter_section import filter_section
from specformer.reports.sections.molecule_section import molecule_section
from specformer.reports.sections.node_section import node_section
from specformer.reports.sections.report_tables import Listing, Table
from specformer.training.runs.folder import OUTPUTS, REPORT, RunFolder


def render_report(run: RunFolder) -> str:
    """The report as one self-contained page.

    It shows what ``result.json`` and ``outputs.npz`` hold and leaves out what they do not.
    """
    result = run.result()
    arrays = run.outputs() if (run.path / OUTPUTS).exists() else {}
    sections = (
        *filter_section(result, arrays),
        *node_section(result, arrays),
        *molecule_section(result, arrays),
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
    environment.tests["listing"] = lambda block: isinstance(block, Listing)
    return environment
