"""Pictures and the HTML report of a run folder, or of several side by side."""

from specformer.reports.html import (
    render_comparison,
    render_report,
    write_comparison,
    write_report,
)

__all__ = ["render_comparison", "render_report", "write_comparison", "write_report"]
