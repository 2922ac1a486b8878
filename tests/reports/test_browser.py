"""What a person does with a report, in Chromium: point, tap, choose, sort, copy, print, or read."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from tests.reports.browser import WIDTHS, opened, start_browser
from tests.reports.example_run import write_run
from typer.testing import CliRunner

from specformer.cli import app
from specformer.datasets import csbm
from specformer.graphs import write_npz
from specformer.reports.html import write_report
from specformer.training.runs.folder import RunFolder


@pytest.fixture(scope="module")
def browser():
    yield from start_browser()


@pytest.fixture(scope="module")
def report(run):
    return write_report(run)


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory):
    """A graph whose nodes and classes have names."""
    path, ids = tmp_path_factory.mktemp("graph") / "pets.npz", tuple(f"pet-{i}" for i in range(400))
    write_npz(path, replace(csbm(0.7, num_nodes=400), node_ids=ids, class_names=("cat", "dog")))
    return str(path)


@pytest.fixture(scope="module")
def node_report(graph_file, tmp_path_factory):
    """The report of a run on nodes."""
    folder = tmp_path_factory.mktemp("nodes") / "run"
    few = ("--set", "schedule.epochs=10", "--set", "form=paper", "--runs", "2", "--quiet")
    assert CliRunner().invoke(app, ["train", graph_file, *few, "--out", str(folder)]).exit_code == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def molecule_report(tmp_path_factory):
    """The report of a run on molecules."""
    pytest.importorskip("rdkit")
    folder = tmp_path_factory.mktemp("molecules")
    chains = ["C" * carbons + end for carbons in range(1, 13) for end in ("O", "N", "Cl", "")]
    rows = [f"{smiles},{len(smiles)}" for smiles in chains]
    (folder / "chains.csv").write_text("\n".join(["smiles,length", *rows]), encoding="utf-8")
    few = ("--set", "schedule.epochs=3", "--quiet", "--out", str(folder / "run"))
    assert CliRunner().invoke(app, ["train", str(folder / "chains.csv"), *few]).exit_code == 0
    return folder / "run" / "report.html"


@pytest.fixture(scope="module")
def comparison(node_report, graph_file, tmp_path_factory):
    """The page of two runs on the same splits."""
    folder = tmp_path_factory.mktemp("comparison")
    few = ("--set", "schedule.epochs=10", "--runs", "2", "--quiet", "--model", "mlp")
    train = ["train", graph_file, *few, "--out", str(folder / "mlp")]
    assert CliRunner().invoke(app, train).exit_code == 0
    page = folder / "both.html"
    report = ["report", str(node_report.parent), str(folder / "mlp"), "--out", str(page)]
    assert CliRunner().invoke(app, report).exit_code == 0
    return page


def figure_of(page, title):
    return page.locator("figure").filter(has=page.get_by_role("heading", name=title, exact=True))


def inside(chart, share=0.5):
    """A place in a chart's first panel, so far from its left, in pixels of the window."""
    chart.scroll_into_view_if_needed()
    return chart.evaluate(
        """(picture, share) => {
            const [left, top, width, height] = JSON.parse(picture.dataset.values).panels[0].box;
            const at = new DOMPoint(left + share * width, top + height / 2);
            const spot = at.matrixTransform(picture.querySelector("svg").getScreenCTM());
            return [spot.x, spot.y];
        }""",
        share,
    )


@pytest.fixture(scope="module")
def reports(report, node_report, molecule_report, comparison):
    """A report of each kind."""
    return {"demo": report, "nodes": node_report, "molecules": molecule_report, "runs": comparison}


KINDS = ["demo", "nodes", "molecules", "runs"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_report_fits_its_window_and_shows_values(browser, reports, kind, width, theme):
    with opened(browser, reports[kind], width=width, theme=theme) as page:
        assert page.locator("h1").is_visible()
        chart = figure_of(page, "Training").last.locator(".picture[data-values]").first
        page.locator("nav a").filter(has_text="Training").last.click()
        assert chart.is_visible()
        if width == WIDTHS["phone"]:
            page.touchscreen.tap(*inside(chart))
        else:
            page.mouse.move(*inside(chart))
        assert page.locator(".tip").inner_text().startswith("epoch ")


@pytest.mark.parametrize("kind", KINDS)
def test_every_report_is_complete_without_javascript(browser, reports, kind):
    with opened(browser, reports[kind]) as page:
        shown = page.locator("figure svg[role=img]:visible").count()
    with opened(browser, reports[kind], script=False) as page:
        assert page.locator("figure svg[role=img]:visible").count() == shown
        assert page.locator("table").first.is_visible()
        assert page.locator("button, select").count() == 0


def test_without_javascript_all_main_content_is_there(browser, report):
    with opened(browser, report, script=False) as page:
        assert page.get_by_text("Specformer has the smallest error").first.is_visible()
        for title in ("Learned filters", "Filtered images", "Training", "Accuracy"):
            assert figure_of(page, title).locator("svg[role=img]").first.is_visible()


def test_values_stand_under_the_pointer(browser, report, contents):
    _, arrays = contents
    with opened(browser, report) as page:
        chart = figure_of(page, "Learned filters").first.locator(".picture[data-values]").first
        page.mouse.move(*inside(chart, 0.25))
        lines = page.locator(".tip").inner_text().splitlines()
        told = {line.rsplit(" ", 1)[0]: line.rsplit(" ", 1)[1] for line in lines}
        at = float(told.pop("eigenvalue λ"))
        nearest = abs(arrays["filters/eigenvalues"] - at).argmin()
        assert set(told) == {"true filter", "GCN", "GPR-GNN", "BernNet", "Specformer"}
        true = arrays["filters/low-pass/target"][nearest]
        assert float(told["true filter"]) == pytest.approx(true, abs=1e-3)
        page.mouse.move(2, 2)
        assert page.locator(".tip").is_hidden()


def test_a_tap_shows_values_too(browser, report):
    with opened(browser, report, width=WIDTHS["phone"]) as page:
        chart = figure_of(page, "Accuracy").locator(".picture").first
        page.touchscreen.tap(*inside(chart))
        assert "%" in page.locator(".tip").inner_text()


def test_a_chart_is_read_with_the_keyboard(browser, report):
    with opened(browser, report) as page:
        chart = figure_of(page, "Training").first.locator(".picture").first
        chart.focus()
        page.keyboard.press("ArrowRight")
        first = page.get_by_role("status").inner_text()
        page.keyboard.press("End")
        last = page.get_by_role("status").inner_text()
        assert first.startswith("epoch 1\n")
        assert last.startswith("epoch ")
        assert last != first
        page.keyboard.press("Escape")
        assert page.locator(".tip").is_hidden()


def test_a_key_hides_and_shows_a_model(browser, report):
    with opened(browser, report) as page:
        figure = figure_of(page, "Learned filters").first
        lines = figure.locator('.picture:visible [data-series="GPR-GNN"]')
        button = figure.get_by_role("button", name="GPR-GNN")
        assert lines.first.is_visible()
        button.press("Space")
        assert button.get_attribute("aria-pressed") == "false"
        assert lines.count() == 0 or not lines.first.is_visible()
        chart = figure.locator(".picture[data-values]").first
        page.mouse.move(*inside(chart))
        assert "GPR-GNN" not in page.locator(".tip").inner_text()
        button.click()
        assert figure.locator('.picture:visible [data-series="GPR-GNN"]').first.is_visible()


def test_a_reader_looks_closer_at_a_filter(browser, report):
    with opened(browser, report) as page:
        figure = figure_of(page, "Learned filters").first
        before = figure.locator(".picture:visible").count()
        choice = figure.get_by_label("λ")
        choice.select_option("near 1")
        shown = figure.locator(".picture:visible")
        assert shown.count() == before
        low, high = shown.first.evaluate("(p) => JSON.parse(p.dataset.values).panels[0].x")
        assert (low, high) == pytest.approx((0.9, 1.1), abs=0.01)


def test_a_table_is_sorted_by_its_numbers(browser, report, contents):
    rows = [each for each in contents[0]["filters"] if each["filter"] == "comb"]
    wanted = sorted(rows, key=lambda each: each["sse"]["mean"])
    with opened(browser, report) as page:
        table = page.locator("table").first
        table.get_by_role("button", name="comb").click()
        names = [name.strip() for name in table.locator("tbody th").all_inner_texts()]
        labels = {"gcn": "GCN", "gat": "GAT", "gprgnn": "GPR-GNN", "bernnet": "BernNet",
                  "specformer": "Specformer"}  # fmt: skip
        assert names == [labels[each["model"]] for each in wanted]
        head = table.locator("thead th").filter(has_text="comb")
        assert head.get_attribute("aria-sort") == "ascending"
        table.get_by_role("button", name="comb").press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        assert table.locator("tbody th").all_inner_texts()[0].strip() == names[-1]


def test_a_table_is_copied_as_csv(browser, report):
    with opened(browser, report) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy as CSV").first.click()
        page.get_by_role("button", name="Copied").wait_for()
        rows = list(csv.reader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
        assert rows[0] == ["Model", "low-pass", "band-rejection", "comb"]
        assert [row[0] for row in rows[1:]] == ["GCN", "GAT", "GPR-GNN", "BernNet", "Specformer"]
        assert all("±" in cell for row in rows[1:] for cell in row[1:])


def test_print_leaves_the_controls_out(browser, report):
    with opened(browser, report) as page:
        page.emulate_media(media="print")
        assert not page.locator(".choices, .copy").first.is_visible()
        assert page.locator("figure svg[role=img]").first.is_visible()


def test_no_other_script_runs(browser, report):
    page = browser.new_page()
    page.goto(report.as_uri())
    page.evaluate("""document.body.append(
        Object.assign(document.createElement("script"), {textContent: "window.taken = true"}))""")
    assert page.evaluate("window.taken") is None
    page.close()


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_graphs_nodes_are_painted_and_read(browser, node_report, width):
    with opened(browser, node_report, width=width, theme="dark") as page:
        figure = figure_of(page, "The graph")
        circle = figure.locator("circle").first
        assert f"{figure.locator('circle').count()} of 400 nodes" in figure.inner_text()
        figure.get_by_label("colour by").select_option(label="prediction")
        assert "plot-" in circle.get_attribute("style")
        figure.get_by_label("colour by").select_option(label="confidence")
        strengths = {float(each.evaluate("c => getComputedStyle(c).fillOpacity"))
                     for each in figure.locator("circle").all()[:40]}  # fmt: skip
        assert len(strengths) > 5
        circle.hover(force=True)
        told = page.locator(".tip").inner_text()
        assert told.startswith("node pet-")
        assert "sure" in told
        assert "uncoloured" in figure.locator(".key").get_attribute("class")
        spread = figure.locator("option").filter(has_text="spread from node pet-").first
        figure.get_by_label("colour by").select_option(label=spread.inner_text())
        assert figure.locator("circle.centre").count() == 1
        figure.get_by_role("button", name="cat", exact=True).click()
        shown = figure.locator('circle[data-series="cat"]').first
        assert not shown.is_visible()


def test_runs_and_heads_are_chosen_and_worst_nodes_listed(browser, node_report):
    with opened(browser, node_report) as page:
        figure = figure_of(page, "Learned filters")
        first = figure.locator(".picture:visible").inner_html()
        figure.get_by_label("λ").select_option("near 1")
        figure.get_by_label("run").select_option("2")
        assert figure.locator(".picture:visible").count() == 1
        assert figure.locator(".picture:visible").inner_html() != first
        assert figure.get_by_label("λ").input_value() == "whole"
        head = figure_of(page, "Attention in detail")
        first = head.locator(".picture:visible").inner_html()
        head.get_by_role("combobox").select_option("2")
        assert head.locator(".picture:visible").inner_html() != first
        table = page.locator("table").filter(has_text="Chance of its class")
        table.get_by_role("button", name="Chance of its class").click()
        chances = [float(text[:-1]) for text in table.locator("td:nth-child(4)").all_inner_texts()]
        assert chances == sorted(chances)
        assert table.locator("tbody th").first.inner_text().startswith("pet-")


def test_molecules_are_drawn_and_their_atoms_read(browser, molecule_report):
    with opened(browser, molecule_report) as page:
        drawing = figure_of(page, "Largest errors").locator(".picture").first
        assert "measured" in drawing.inner_text()
        drawing.focus()
        page.keyboard.press("Home")
        assert page.get_by_role("status").inner_text().startswith("C 1: ")


def test_runs_lie_side_by_side(browser, comparison):
    with opened(browser, comparison) as page:
        table = page.locator("table").filter(has_text="Verdict")
        assert table.locator("tbody tr").count() == 1
        settings = page.locator("table").filter(has_text="Settings that differ.")
        assert settings.get_by_role("rowheader", name="model", exact=True).is_visible()
        key = figure_of(page, "Training").get_by_role("button")
        assert sorted(key.all_inner_texts()) == ["MLP", "Specformer"]


def test_long_names_of_classes_fit_a_phone_and_keep_rows_short(browser, node_report, tmp_path):
    kept = RunFolder(node_report.parent)
    told = json.dumps(kept.result()).replace('"cat"', f'"{"cat" * 40}"')
    long = write_report(write_run(tmp_path / "long", json.loads(told), kept.outputs()))
    with opened(browser, long, width=WIDTHS["phone"]) as page:
        assert page.get_by_text("cat" * 40).first.is_visible()
    with opened(browser, long) as page:
        rows = page.locator("table.words tbody tr")
        heights = rows.evaluate_all("rows => rows.map(row => row.clientHeight)")
        assert 0 < max(heights) < 150
