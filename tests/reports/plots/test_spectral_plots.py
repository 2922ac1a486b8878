"""Figures hold what they were given."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from specformer.reports.looks import OURS, look
from specformer.reports.plots import spectral_plots as plots
from specformer.reports.plots.drawing import chart_values, thin
from specformer.reports.plots.svg import figure_svg, save_png

EIGENVALUES = np.linspace(0, 2, 50)


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_filter_plot_draws_truth_below_and_ours_last():
    target = np.abs(np.sin(np.pi * EIGENVALUES))
    runs = np.stack([target, target + 0.2, target - 0.1])

    figure = plots.filter_plot(
        EIGENVALUES, target, {OURS: runs, "gcn": 0 * target}, title="comb", formula="|sin(πλ)|"
    )

    axis = figure.axes[0]
    lines = {line.get_label(): line for line in axis.lines}
    assert list(lines) == ["true filter", "GCN", "Specformer"]
    np.testing.assert_array_equal(lines["true filter"].get_ydata(), target)
    np.testing.assert_allclose(lines["Specformer"].get_ydata(), np.median(runs, axis=0))
    assert to_hex(lines["Specformer"].get_color()) == look(OURS).color
    assert lines["Specformer"].get_linewidth() > lines["GCN"].get_linewidth()
    assert labels(figure) == ["true filter", "GCN", "Specformer"]
    assert axis.get_xlabel() == "eigenvalue λ"
    assert (axis.get_title("left"), axis.get_title("right")) == ("comb", "|sin(πλ)|")


def test_filter_plot_does_not_let_a_wild_response_flatten_the_truth():
    target = np.exp(-10 * EIGENVALUES**2)

    low, high = plots.filter_plot(EIGENVALUES, target, {"gcn": 1e6 * target}).axes[0].get_ylim()

    assert low < 0
    assert 1 < high < 2


def test_heads_plot_has_a_line_a_head():
    responses = np.random.default_rng(0).normal(size=(50, 10))

    figure = plots.heads_plot(EIGENVALUES, responses)

    lines = figure.axes[0].lines
    np.testing.assert_array_equal([line.get_ydata() for line in lines], responses.T)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 10
    assert labels(figure)[0] == "head 1"


def test_encodings_are_drawn_as_they_are():
    values = np.linspace(0, 2, 5)
    encodings = {scale: np.sin(np.outer(values, scale * np.arange(1, 5))) for scale in (1, 100)}
    figure = plots.encoding_plot(values, encodings)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["ε = 1", "ε = 100"]
    for axis, waves in zip(figure.axes, encodings.values(), strict=True):
        (image,) = axis.images
        np.testing.assert_array_equal(image.get_array(), waves)
        assert image.get_extent() == [0, 4, 0, 2]
        assert image.get_clim() == (-1, 1)


def test_image_grid_shares_scales_and_prints_errors():
    rng = np.random.default_rng(0)
    raw, true = rng.random((2, 6, 8))
    learned = {OURS: true + 0.01, "gcn": true + 0.5}

    figure = plots.image_grid(raw, true, learned, sse={OURS: 0.00048}, title="comb")

    images = figure.axes[0].images
    arrays = [np.asarray(image.get_array()) for image in images]
    for drawn, given in zip(
        arrays, [raw, true, learned["gcn"], 0.5 + 0 * true, learned[OURS]], strict=False
    ):
        np.testing.assert_allclose(drawn, given)
    assert images[1].get_clim() == images[2].get_clim() == images[4].get_clim()
    assert images[3].get_clim() == images[5].get_clim()
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert {"raw", "true", "GCN", "Specformer", "comb", "SSE 12.0", "SSE 4.80×10⁻⁴"} <= set(texts)


def test_attention_heatmap_prints_the_matrix():
    matrix = np.array([[0.12, 0.5, 0.38], [1.0, 0.0, 0.0], [0.333, 0.333, np.nan]])

    axis = plots.attention_heatmap(matrix, title="comb").axes[0]

    printed = [text.get_text() for text in axis.texts]
    assert printed == ["0.12", "0.50", "0.38", "1.00", "0.00", "0.00", "0.33", "0.33", "–"]
    for ticks in (axis.get_xticklabels(), axis.get_yticklabels()):
        assert [tick.get_text() for tick in ticks] == ["Low", "Medium", "High"]
    # The first row is on top, as in a printed matrix.
    assert axis.get_ylim() == (3, 0)


def test_curves_hold_the_last_reading_of_a_stopped_run():
    curve = np.array([[4.0, 8.0], [2.0, 6.0], [np.nan, 2.0], [np.nan, np.nan]])

    figure = plots.curves_plot({"gcn": curve})

    axis = figure.axes[0]
    np.testing.assert_array_equal(axis.lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), [6, 4, 2])


def test_a_single_epoch_is_a_dot_over_a_single_tick():
    figure = plots.curves_plot({"gcn": np.array([[0.5, 0.7]])})
    (axis,) = figure.axes
    (line,) = axis.lines
    assert (line.get_marker(), line.get_ydata().tolist()) == ("o", [0.6])
    figure.canvas.draw()
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1"]
    assert plots.curves_plot({"gcn": np.ones((2, 1))}).axes[0].lines[0].get_marker() in (
        "",
        "None",
    )


def test_curves_without_a_reading_are_no_lines():
    assert plots.curves_plot({"gcn": np.full((3, 2), np.nan)}).axes[0].lines[:] == []


def test_spectrum_plot_counts_every_eigenvalue():
    values, counts = np.array([0.0, 1.0, 2.0]), np.array([1, 5, 2])

    density, ranked = plots.spectrum_plot(values, counts=counts, title="grid").axes

    heights = density.patches[0].get_data().values
    assert (heights.sum(), heights.max()) == (8, 5)
    np.testing.assert_array_equal(ranked.lines[0].get_ydata(), np.repeat(values, counts))
    assert density.get_title("left") == "grid"


@pytest.mark.parametrize("values", [np.array([0.0]), np.zeros(0)])
def test_spectrum_plot_of_tiny_graphs(values):
    assert figure_svg(plots.spectrum_plot(values))


def test_thin_keeps_short_lines_and_every_spike():
    x, y = np.arange(5000), np.zeros(5000)
    y[[17, 4321]] = 1, -1

    short = thin(x[:10], y[:10])
    thinned_x, thinned_y = thin(x, y, limit=100)

    np.testing.assert_array_equal(short[0], x[:10])
    assert len(thinned_x) <= 102
    assert (thinned_x[0], thinned_x[-1]) == (0, 4999)
    assert {17, 4321} <= set(thinned_x.tolist())
    assert (thinned_y.max(), thinned_y.min()) == (1, -1)


def test_svg_is_xml_that_follows_the_page():
    figure = plots.attention_heatmap(np.eye(3), title='<b> & $x$ "q"')

    svg = figure_svg(figure, alt='says "<hello>"')

    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'says "<hello>"'
    assert root.get("width") is None
    assert "var(--plot-heat, #ee8434)" in svg
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert '<b> & $x$ "q"' in texts
    assert svg == figure_svg(plots.attention_heatmap(np.eye(3), title='<b> & $x$ "q"'),
                                   alt='says "<hello>"')  # fmt: skip


def test_png_is_written_whole(tmp_path):
    path = save_png(plots.spectrum_plot(EIGENVALUES), tmp_path / "new" / "spectrum.png")

    assert path.read_bytes().startswith(b"\x89PNG")
    assert [item.name for item in path.parent.iterdir()] == ["spectrum.png"]


@pytest.fixture(autouse=True, scope="module")
def others_are_closed() -> None:
    """Figures that examples in the documentation opened are not ours."""
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_no_figure_needs_pyplot():
    # A figure that pyplot knows of is never freed. Others' tests may have imported it.
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def y_labels(figure) -> dict[str, float]:
    """The labels of the y axis within its limits, and where they stand."""
    figure.canvas.draw()
    (axis,) = figure.axes
    low, high = axis.get_ylim()
    return {
        label.get_text(): float(place)
        for place, label in zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
        if low <= place <= high
    }


@pytest.mark.parametrize(
    ("high", "low", "expected"),
    [
        (1.67, 0.558, ["0.558", "1", "1.5"]),
        (1.4, 0.9, ["0.9", "1", "1.2", "1.4"]),
        (0.0712, 0.0664, ["0.0664", "0.068", "0.07"]),
    ],
)
def test_errors_within_a_decade_have_a_linear_axis_with_the_lowest_on_it(high, low, expected):
    figure = plots.curves_plot({"specformer": np.geomspace(high, low, 40)})
    (axis,) = figure.axes
    assert axis.get_yscale() == "linear"
    assert axis.get_title(loc="right") == ""
    assert list(y_labels(figure)) == expected


@pytest.mark.parametrize("low", [0.0123, 1.5, 15_000.0, 3e-7])
@pytest.mark.parametrize("ratio", [12, 32, 1e5])
def test_a_logarithmic_axis_says_so_and_has_the_lowest_on_it(low, ratio):
    figure = plots.curves_plot({"specformer": np.geomspace(ratio * low, low, 40)})
    (axis,) = figure.axes
    assert axis.get_yscale() == "log"
    assert axis.get_title(loc="right") == "logarithmic scale"
    places = list(y_labels(figure).values())
    assert len(places) >= 3
    assert places[0] == pytest.approx(low)


def test_what_a_tick_says_is_where_it_stands():
    shown = y_labels(plots.curves_plot({"specformer": np.geomspace(3.2, 0.0123, 40)}))
    for text, place in shown.items():
        assert float(text.replace(",", "")) == pytest.approx(place)


def test_accuracies_have_a_linear_axis_whatever_they_span():
    figure = plots.curves_plot({"gcn": np.geomspace(1, 90, 40)}, errors=False)
    assert figure.axes[0].get_yscale() == "linear"


def test_a_subtitle_has_a_line_of_its_own():
    for draw in (
        lambda **how: plots.heads_plot(EIGENVALUES, np.ones((50, 2)), title="cora", **how),
        lambda **how: plots.attention_heatmap(np.eye(3), title="cora", **how),
    ):
        plain, figure = draw(), draw(subtitle="Specformer (best)")
        figure.canvas.draw()
        (axis,) = figure.axes
        named = {text.get_text(): text for text in axis.findobj(Text)}
        parts = (axis, named["Specformer (best)"], named["cora"])
        boxes = [part.get_window_extent() for part in parts]
        # One above the other, nothing cut off at the top, and the panel as large as without it.
        assert boxes[0].y1 < boxes[1].y0
        assert boxes[1].y1 <= boxes[2].y0
        assert boxes[2].y1 <= figure.bbox.y1
        plain.canvas.draw()
        np.testing.assert_allclose(boxes[0].size, plain.axes[0].get_window_extent().size)


@pytest.mark.parametrize("title", ["cora", "cornell-texas", "my-customers-2024", "a" * 26])
def test_a_note_does_not_run_into_the_heading(title):
    eigenvalues = np.linspace(0, 2, 9)
    for figure in (
        plots.attention_image(np.ones((9, 9)) / 9, eigenvalues, title=title),
        plots.curves_plot({"gcn": np.geomspace(1, 90, 40)}, title=title),
    ):
        figure.canvas.draw()
        texts = {text.get_text(): text for text in figure.axes[0].findobj(Text)}
        note = next(text for text in texts if text.startswith(("full colour", "logarithmic")))
        heading, beside = (texts[text].get_window_extent() for text in (title, note))
        assert not heading.overlaps(beside)
        assert max(heading.y1, beside.y1) <= figure.bbox.y1
        assert heading.x1 <= figure.bbox.x1


def test_names_of_tiles_do_not_run_into_each_other():
    image = np.random.default_rng(0).random((8, 8))
    looks = [look(OURS).by_recipe(name, n) for n, name in enumerate(("paper", "projected"))]

    figure = plots.image_grid(image, image, dict.fromkeys(looks, image), title="low-pass")

    figure.canvas.draw()
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    assert {"Specformer\n(paper)", "Specformer\n(projected)"} <= {t.get_text() for t in texts}
    boxes = [text.get_window_extent() for text in texts]
    overlapping = [
        (texts[i].get_text(), texts[j].get_text())
        for i in range(len(boxes))
        for j in range(i)
        if boxes[i].overlaps(boxes[j])
    ]
    assert overlapping == []


def test_energy_has_a_line_for_each_signal():
    shares = np.zeros((4, 3))
    shares[1] = 1.0

    figure = plots.energy_plot(shares)

    series = chart_values(figure)["panels"][0]["series"]
    assert [each["name"] for each in series] == ["signals before the filter", "after it", "labels"]
    assert series[0]["x"] == pytest.approx([0.25, 0.75, 1.25, 1.75])
    assert all(each["y"] == [0, 100, 0, 0] for each in series)
