r"""Pictures of filters, images, attention, training and spectra."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specformer.reports import numbers
from specformer.reports.looks import HEAT, INK, MUTED, RULE, Look, Named, by_look, head_looks, look
from specformer.reports.plots.drawing import (
    Window,
    above_hills,
    add_legend,
    add_title,
    draw_cells,
    draw_density,
    draw_line,
    draw_points,
    draw_tile,
    draw_tint,
    eigenvalue_axis,
    eigenvalue_limits,
    error_axis,
    histogram,
    panels,
    response_limits,
    styled,
    tell,
    thin,
    with_last_readings,
    within,
)

#: The paper's frequency bands: [0, 2/3), [2/3, 4/3), [4/3, 2].
BANDS = ("Low", "Medium", "High")
#: Most points of all heads together; more would only make a report heavy.
_MOST_POINTS = 2400

#: The signals whose energy is drawn, in the order of the columns.
ENERGIES = (
    Look("signals before the filter", "slate", (3, 1.2)),
    Look("after it", "vermilion", width=1.9),
    Look("labels", "blue", (1, 1.1)),
)
#: Width and height in inches. Three fit side by side on a page without small text.
_PANEL = (3.6, 2.6)


@styled
def filter_plot(
    eigenvalues: np.ndarray,
    target: np.ndarray | None,
    responses: Mapping[Named, np.ndarray],
    *,
    counts: np.ndarray | None = None,
    title: str = "",
    formula: str = "",
    window: Window | None = None,
    legend: bool = True,
) -> Figure:
    """Learned responses over the true one, as in the paper's figure of learned filters.

    Args:
        eigenvalues: distinct eigenvalues ``[p]``.
        target: the true response ``[p]``, drawn as a broad grey band.
        responses: model, or its look, to response, ``[p]`` or ``[images, p]``; of several images
            the line is the median and the tint the range.
        counts: how often each eigenvalue occurs ``[p]``, for the hills along the bottom.
        title: a heading.
        formula: the true filter's, beside the heading.
        window: the eigenvalues to show; all if not given.
        legend: name the lines.
    """
    figure, (axis,) = panels(*_PANEL)
    draw_density(axis, eigenvalues, counts, window)
    seen = within(eigenvalues, window)
    eigenvalues, target = eigenvalues[seen], None if target is None else target[seen]
    drawn = {style: np.atleast_2d(runs)[:, seen] for style, runs in by_look(responses).items()}
    if target is not None:
        true = thin(eigenvalues, target)
        axis.plot(*true, color=INK, alpha=0.22, lw=6.5, solid_capstyle="round", label="true filter")
        tell(axis, "true filter", *true)
    for style, runs in drawn.items():
        if len(runs) > 1:
            low, high = np.nanmin(runs, axis=0), np.nanmax(runs, axis=0)
            draw_tint(axis, eigenvalues, low, high, style, 0.15)
        draw_line(axis, *thin(eigenvalues, np.nanmedian(runs, axis=0)), style)
    axis.set_ylim(*response_limits(target, drawn))
    eigenvalue_axis(axis, eigenvalues, window)
    axis.set_ylabel("response")
    add_title(axis, title, formula)
    if legend:
        add_legend(axis, columns=2)
    return figure


@styled
def encoding_plot(eigenvalues: np.ndarray, encodings: Mapping[float, np.ndarray]) -> Figure:
    """Encodings of eigenvalues for several ε, as in the paper's figure.

    ``eigenvalues`` ``[q]`` are ascending and evenly spaced; ``encodings`` has their sines and
    cosines ``[q, d]`` by ε.
    """
    figure, axes = panels(2.9 * len(encodings), 2.6, len(encodings))
    ends = float(eigenvalues[0]), float(eigenvalues[-1])
    for axis, (epsilon, waves) in zip(axes, encodings.items(), strict=True):
        spread = (0.0, float(waves.shape[1]), *ends)
        axis.imshow(
            waves, cmap="RdBu_r", vmin=-1, vmax=1, origin="lower", aspect="auto", extent=spread
        )
        axis.set(xlabel="channel", ylabel="eigenvalue λ")
        add_title(axis, f"ε = {epsilon:g}")
    return figure


@styled
def heads_plot(
    eigenvalues: np.ndarray,
    responses: np.ndarray,
    *,
    points: bool = False,
    title: str = "",
    subtitle: str = "",
    window: Window | None = None,
    legend: bool = True,
) -> Figure:
    """The response ``[q, heads]`` of each head of a Specformer to the eigenvalues.

    With ``points``, for eigenvalues of many graphs, no line is drawn, because a response depends on
    the other eigenvalues of its graph too. ``window``: the eigenvalues to show; all if not given.
    """
    figure, (axis,) = panels(*_PANEL)
    draw_density(axis, eigenvalues, None, window)
    seen = within(eigenvalues, window)
    eigenvalues, responses = eigenvalues[seen], responses[seen]
    for style, response in zip(head_looks(responses.shape[1]), responses.T, strict=True):
        if points:
            draw_points(axis, eigenvalues, response, style, _MOST_POINTS // responses.shape[1])
        else:
            draw_line(axis, *thin(eigenvalues, response), style)
    eigenvalue_axis(axis, eigenvalues, window)
    axis.set_ylabel("response")
    axis.set_ylim(*above_hills(float(np.nanmin(responses)), float(np.nanmax(responses))))
    add_title(axis, title, subtitle=subtitle)
    if legend:
        add_legend(axis)
    return figure


@styled
def image_grid(
    raw: np.ndarray | None,
    true: np.ndarray,
    learned: Mapping[Named, np.ndarray],
    *,
    sse: Mapping[Named, float] | None = None,
    title: str = "",
) -> Figure:
    """The raw image, the truly filtered one and each model's in a row, with errors below.

    The filtered images ``[h, w]`` share one grey scale, the errors one colour scale (of square
    roots, so that small errors show beside large ones). ``sse``: the errors to print; measured from
    the images if not given.
    """
    images, printed = by_look(learned), by_look(sse or {})
    # A tile is too narrow for a model's name and its recipe's side by side.
    names = ["\n(".join(style.label.rsplit(" (", 1)) for style in images]
    columns, tall = 2 + len(images), true.shape[0] / true.shape[1]
    # One panel holds all tiles, a tile being 1 wide: ten times faster than one panel per tile.
    head = (0.46 if title else 0.2) + (0.14 if any("\n" in name for name in names) else 0.0)
    upper, lower = (head, head + tall), (head + 0.1 + tall, head + 0.1 + 2 * tall)
    width, height = columns + 0.07 * (columns - 1), lower[1] + 0.22
    figure, (axis,) = panels(0.94 * width, 0.94 * height)
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1)
    axis.set_axis_off()
    grey = {"cmap": "gray", "vmin": np.nanmin(true), "vmax": np.nanmax(true)}
    if raw is not None:
        draw_tile(axis, raw, 0, upper, "raw", cmap="gray")
    draw_tile(axis, true, 1, upper, "true", **grey)
    gaps = {style: np.abs(image - true) for style, image in images.items()}
    scale = max((float(np.nanmax(gap)) for gap in gaps.values()), default=0.0) or 1.0
    for column, (style, name) in enumerate(zip(images, names, strict=True), start=2):
        weight = "bold" if style.ours else "normal"
        draw_tile(axis, images[style], column, upper, name, weight, **grey)
        draw_tile(axis, gaps[style], column, lower, cmap="magma", norm=PowerNorm(0.5, 0.0, scale))
        text = f"SSE {numbers.error(printed.get(style, float(np.nansum(gaps[style] ** 2))))}"
        axis.text(1.07 * column + 0.5, lower[1] + 0.04, text, ha="center", va="top", fontsize=8)
    text = f"absolute error\nblack 0, bright {numbers.error(scale)}"
    axis.text(2.0, sum(lower) / 2, text, ha="right", va="center", fontsize=8, color=MUTED)
    axis.text(0, 0.04, title, va="top", fontsize=10, fontweight="bold")
    axis.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    return figure


@styled
def attention_heatmap(matrix: np.ndarray, *, title: str = "", subtitle: str = "") -> Figure:
    """Condensed attention ``[3, 3]``: how much each band (row) draws on each band (column).

    A band without eigenvalues has a row of zeros.
    """
    figure, (axis,) = panels(2.0, 2.12, left=0.4, bottom=0.42)
    shares = np.nan_to_num(matrix)
    texts = [
        [f"{x:.2f}" if np.isfinite(x) and drawn.any() else numbers.NONE for x in row]
        for row, drawn in zip(matrix, shares, strict=True)
    ]
    centres = np.arange(len(BANDS)) + 0.5
    notes = (
        f"{BANDS[row]} draws on {BANDS[column]}: {share:.4f}"
        for (row, column), share in np.ndenumerate(shares)
    )
    draw_cells(axis, np.clip(shares, 0, 1), texts, notes)
    axis.set_xticks(centres, BANDS)
    axis.set_yticks(centres, BANDS, rotation=90, va="center")
    axis.set_xlabel("draws on")
    axis.set_ylabel("band")
    add_title(axis, title, subtitle=subtitle)
    return figure


@styled
def curves_plot(
    curves: Mapping[Named, np.ndarray],
    *,
    ylabel: str = "loss",
    errors: bool = True,
    title: str = "",
) -> Figure:
    """Readings by epoch, ``[epochs]`` or ``[epochs, runs]``, NaN after a run's end.

    The line is the median over runs, in which a stopped run counts with its last reading; the tint
    is their range. With ``errors``, where lower is better, the lowest has a tick, and the axis is
    logarithmic, and says so, if they span a factor of ten.
    """
    figure, (axis,) = panels(*_PANEL, left=0.9)  # for long numbers
    faint = 0.12 * min(1.0, 5 / max(1, len(curves)))  # many tints would add up to grey
    longest, drawn = 0, [np.empty(0)]
    for style, curve in by_look(curves).items():
        runs = with_last_readings(np.asarray(curve, dtype=float).reshape(len(curve), -1))
        if not len(runs):
            continue
        longest = max(longest, len(runs))
        epochs = np.arange(1, len(runs) + 1)
        if runs.shape[1] > 1:
            draw_tint(axis, epochs, runs.min(axis=1), runs.max(axis=1), style, faint)
        drawn.append(np.median(runs, axis=1))
        draw_line(axis, *thin(epochs, drawn[-1]), style)
    lines = np.concatenate(drawn)
    is_log = errors and lines.size > 0 and error_axis(axis, lines, float(lines.min()))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.margins(x=0.03)
    if longest == 1:
        axis.set(xlim=(0.5, 1.5), xticks=[1])
    axis.grid(axis="y", color=RULE, lw=0.5)
    axis.set_xlabel("epoch")
    axis.set_ylabel(ylabel)
    add_title(axis, title, "logarithmic scale" if is_log else "")
    return figure


@styled
def spectrum_plot(
    eigenvalues: np.ndarray, *, counts: np.ndarray | None = None, title: str = ""
) -> Figure:
    """The density of the eigenvalues, and all of them in ascending order."""
    figure, (left, right) = panels(7.2, 2.7, 2)
    values = np.sort(eigenvalues if counts is None else np.repeat(eigenvalues, counts))
    color = look("gprgnn").color
    heights, edges = histogram(values, None)
    left.stairs(heights, edges, fill=True, color=color, alpha=0.3, lw=0)
    left.stairs(heights, edges, color=color, lw=1.1)
    spans = zip(heights, edges, edges[1:], strict=False)
    notes = (f"{count:,.0f} eigenvalues from {a:.3f} to {b:.3f}" for count, a, b in spans)
    tell(left, "", (edges[1:] + edges[:-1]) / 2, heights, notes)
    left.set_ylim(bottom=0)
    eigenvalue_axis(left, values)
    left.set_ylabel("eigenvalues in a bin")
    draw_line(
        right, *thin(np.arange(1, len(values) + 1), values), Look("sorted", "blue", width=1.6)
    )
    right.set(xlabel="rank", ylabel="eigenvalue λ", ylim=eigenvalue_limits(values))
    right.xaxis.set_major_formatter("{x:,.0f}")
    right.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    right.grid(axis="y", color=RULE, lw=0.5)
    add_title(left, title or "Density")
    add_title(right, "Sorted")
    return figure


@styled
def energy_plot(shares: np.ndarray, *, title: str = "") -> Figure:
    """Shares of energy over [0, 2], ``[bins, 3]``: before the filter, after it, of the labels."""
    figure, (axis,) = panels(*_PANEL)
    edges = np.linspace(0.0, 2.0, len(shares) + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    for style, column in zip(ENERGIES, 100 * shares.T, strict=True):
        draw_line(axis, middles, column, style)
    eigenvalue_axis(axis, np.array([0.0, 2.0]))
    axis.set_ylabel("energy in a bin (%)")
    axis.set_ylim(bottom=0)
    add_title(axis, title)
    return figure


@styled
def attention_image(matrix: np.ndarray, eigenvalues: np.ndarray, *, title: str = "") -> Figure:
    """How much each eigenvalue (row) attends to each eigenvalue (column), ``[m, m]``.

    Full colour, whose value is next to the heading, is the strongest, or four times the mean if all
    are about equal. The colour map starts transparent, so that the picture fits light and dark
    pages.
    """
    figure, (axis,) = panels(3.0, 3.0)
    clear = LinearSegmentedColormap.from_list("heat", [f"{HEAT}00", f"{HEAT}ff"])
    most = max(matrix.max(), 4 * matrix.mean())
    axis.imshow(
        matrix, clear, vmin=0, vmax=most, interpolation="none", aspect="auto", origin="lower"
    )
    ticks = np.unique(np.linspace(0, len(eigenvalues) - 1, 5).round().astype(int))
    names = [f"{eigenvalues[tick]:.2f}" for tick in ticks]
    axis.set_xticks(ticks, names)
    axis.set_yticks(ticks, names)
    axis.set(xlabel="attends to λ", ylabel="eigenvalue λ, by rank")
    add_title(axis, title, f"full colour: {100 * most:.2g}%")
    return figure
