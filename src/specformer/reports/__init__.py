"""Pictures and the HTML report of a run folder."""

from specformer.reports.html import render_report, write_report

__all__ = ["render_report", "write_report"]
