"""Pictures: arrays in, a Matplotlib figure out.

No function touches pyplot, so that none needs a display or leaves a figure open. Titles are short
headings; a legend is drawn unless the page has one for all pictures.
"""

from specformer.reports.plots.chart import chart_values
from specformer.reports.plots.drawing import thin
from specformer.reports.plots.prediction_plots import agreement_plot, confusion_plot, parting_plot
from specformer.reports.plots.ranking_plots import accuracy_plot, errors_plot
from specformer.reports.plots.spectral_plots import (
    BANDS,
    attention_heatmap,
    curves_plot,
    encoding_plot,
    filter_plot,
    heads_plot,
    image_grid,
    save_png,
    spectrum_plot,
)
from specformer.reports.plots.svg import figure_svg

__all__ = [
    "BANDS",
    "accuracy_plot",
    "agreement_plot",
    "attention_heatmap",
    "chart_values",
    "confusion_plot",
    "curves_plot",
    "encoding_plot",
    "errors_plot",
    "figure_svg",
    "filter_plot",
    "heads_plot",
    "image_grid",
    "parting_plot",
    "save_png",
    "spectrum_plot",
    "thin",
]
