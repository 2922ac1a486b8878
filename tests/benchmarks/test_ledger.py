"""The ledger: runs go in, tables come out, and what is wrong with either is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import ledger
from specformer.cli import main
from specformer.errors import ConfigError, RunError
from specformer.files import write_json
from specformer.files.documents import sealed, unsealed
from specformer.paper.recorded import recorded_rows, results_folder
from specformer.training.runs.folder import RunFolder


def row(model: str, recipe: str, mean: float, metric: str = "sse") -> dict:
    return {
        "model": model,
        "recipe": recipe,
        "dataset": "comb",
        "metric": metric,
        "mean": mean,
        "ci95": None,
        "runs": 3,
        "paper": 0.5,
        "parameters": 2001,
        "seconds": 2.0,
    }


def finished_run(path: Path, **changes) -> RunFolder:
    run = RunFolder.create(path, {"command": "table"})
    result = {
        "kind": "filters",
        "table": 1,
        "title": "Learning spectral filters (Table 1)",
        "command": "specformer table 1",
        "created": "2024-01-01T00:00:00+00:00",
        "seconds": 9.0,
        "spectrum_seconds": 1.0,
        "seed": 0,
        "environment": {
            "device": "Some CPU",
            "packages": {"torch": "2.13.0"},
            "commit": "0123456789ab",
        },
        "recipes": {"paper": {"landmarks": 1}, "projected": {"landmarks": 2}},
        "rows": [
            row("specformer", "paper", 0.25),
            row("specformer", "paper", 0.99, "r2"),
            row("specformer", "projected", 0.125),
            row("specformer", "projected", 0.995, "r2"),
            row("gcn", "paper", 50.0),
            row("gcn", "paper", 0.5, "r2"),
        ],
    }
    result |= changes
    run.write_result({key: value for key, value in result.items() if value is not None})
    return run


@pytest.fixture
def results(tmp_path) -> Path:
    """A ledger with one entry, inside a repository with a README and docs that show it."""
    folder = tmp_path / "repository" / "results"
    folder.mkdir(parents=True)
    ledger.add(finished_run(tmp_path / "runs" / "table-1"), folder)
    block = "<!-- results:table-1 -->\nold\n<!-- /results -->\n"
    (folder.parent / "docs").mkdir()
    (folder.parent / "README.md").write_text(f"# Title\n\n{block}\nThe end, 50.0.\n")
    (folder.parent / "docs" / "page.md").write_text(f"{block}between\n{block}")
    (folder.parent / "docs" / "other.md").write_text("no tables here\n")
    return folder


def entry_path(results: Path) -> Path:
    (path,) = (results / "table-1").iterdir()
    return path


def rewrite(path: Path, **changes) -> None:
    """Change an entry as its own program would: with the right checksum."""
    write_json(path, sealed(unsealed(json.loads(path.read_text())) | changes))


def test_an_entry_holds_what_was_measured(results):
    path = entry_path(results)
    assert path.name == "table-1.json"
    entry = json.loads(path.read_text())
    assert entry["schema"] == "specformer.result/1"
    assert entry["name"] == "table-1"
    assert entry["seconds"] == 9.0
    assert entry["environment"]["commit"] == "0123456789ab"
    assert len(entry["rows"]) == 6


def test_only_some_recipes(results, tmp_path):
    run = RunFolder.open(tmp_path / "runs" / "table-1")
    path = ledger.add(run, results, "projected", ["projected"])
    entry = json.loads(path.read_text())
    assert path == results / "table-1" / "projected.json"
    assert {row["recipe"] for row in entry["rows"]} == {"projected"}
    assert set(entry["recipes"]) == {"projected"}
    assert entry["seconds"] == 1.0 + 2.0  # the spectrum, and its own rows


def test_a_recipe_keeps_the_one_that_its_models_start_by(tmp_path):
    recipes = {
        "paper": {"molhiv": {"gcn": {"start": None}}},
        "best": {"molhiv": {"specformer": {"start": "molpcba"}}},
        "start": {"molpcba": {"specformer": {"start": None}}},
    }
    rows = [row("gcn", "paper", 0.7), row("specformer", "best", 0.8)]
    run = finished_run(tmp_path / "run", recipes=recipes, rows=rows)
    for name, kept in (("paper", {"paper"}), ("best", {"best", "start"})):
        entry = json.loads(ledger.add(run, tmp_path, name, [name]).read_text())
        assert set(entry["recipes"]) == kept
    with pytest.raises(RunError, match="rows is empty"):
        ledger.add(run, tmp_path, "start", ["start"])


def test_an_unknown_recipe_is_refused(results, tmp_path):
    run = RunFolder.open(tmp_path / "runs" / "table-1")
    with pytest.raises(RunError, match="no recipe fast; it has paper, projected"):
        ledger.add(run, results, "x", ["paper", "fast"])
    assert not (results / "table-1" / "x.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": None}, "only runs of `specformer table`"),
        ({"command": None}, "command should be str"),
        ({"seconds": "long"}, "seconds should be float"),
        ({"rows": []}, "rows is empty"),
        ({"rows": [{"model": "gcn"}]}, "row 0 lacks recipe, dataset"),
        ({"environment": None}, "environment should be dict"),
    ],
)
def test_what_cannot_be_recorded(changes, message, results, tmp_path):
    run = finished_run(tmp_path / "bad", **changes)
    with pytest.raises(RunError, match=message):
        ledger.add(run, results)
    assert len(list(results.rglob("*.json"))) == 1


@pytest.mark.parametrize("name", ["../evil", "a/b", "/tmp/evil", ".."])
def test_an_entry_stays_in_the_ledger(name, results, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=r"--name .*: the name must not contain folders"):
        ledger.add(RunFolder.open(tmp_path / "runs" / "table-1"), results, name)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_entry_is_replaced_only_if_asked_to(results, tmp_path):
    path = entry_path(results)
    before = path.read_bytes()
    other = finished_run(tmp_path / "other", seed=7)
    with pytest.raises(RunError, match=r"table-1\.json: recorded before; take another --name"):
        ledger.add(other, results, "table-1")
    assert path.read_bytes() == before
    assert ledger.add(other, results, "table-1", replace=True) == path
    assert json.loads(path.read_text())["seed"] == 7


def test_an_unfinished_run_is_not_recorded(results, tmp_path):
    with pytest.raises(RunError, match="not finished"):
        ledger.add(RunFolder.create(tmp_path / "new", {}), results)


def test_rows_come_in_the_papers_order(results):
    rows = recorded_rows(results, 1)
    assert [row["model"] for row in rows] == ["gcn"] * 2 + ["specformer"] * 4
    assert recorded_rows(results, 2) == []


def test_what_was_measured_again_is_shown_once(results):
    path = next((results / "table-1").glob("*.json"))
    entry = json.loads(path.read_text())
    again = dict(entry["rows"][0], mean=0.123)
    older = dict(entry["rows"][4], mean=0.456)
    for name, created, row in (("again", "9999", again), ("older", "1999", older)):
        shutil.copy(path, path.with_name(f"{name}.json"))
        rewrite(path.with_name(f"{name}.json"), name=name, created=created, rows=[row])
    means = [row["mean"] for row in recorded_rows(results, 1)]
    # The new sse stands alone: the former r2 is of another run.
    assert means == [50.0, 0.5, 0.123, 0.125, 0.995]


def test_tables_are_written_once(results):
    root = results.parent
    assert len(ledger.check(results)) == 2
    assert all("make tables" in problem for problem in ledger.check(results))
    assert ledger.write_tables(results) == [root / "README.md", root / "docs" / "page.md"]
    assert ledger.check(results) == []
    assert ledger.write_tables(results) == []
    readme = (root / "README.md").read_text()
    assert readme.startswith("# Title\n\n<!-- results:table-1 -->\n| model |")
    assert readme.endswith("<!-- /results -->\n\nThe end, 50.0.\n")
    assert (root / "docs" / "page.md").read_text().count("<!-- /results -->\nbetween") == 1
    assert (root / "docs" / "other.md").read_text() == "no tables here\n"


def test_the_table_shows_the_rows(results):
    ledger.write_tables(results)
    lines = (results.parent / "README.md").read_text().splitlines()
    cells = {
        line.split("|")[1].strip(" *"): line.split("|")[3].strip()
        for line in lines
        if line.startswith("| ")
    }
    assert cells["model"] == "comb"
    assert cells["GCN"].startswith("50.0 (0.5000) [0.5")
    assert cells["Specformer"].startswith("0.250 (0.9900)")
    assert cells["Specformer, projected"].startswith("**0.125 (0.9950)")
    assert any("Some CPU" in line and "0123456789ab" in line for line in lines)


def test_a_changed_number_is_noticed(results):
    ledger.write_tables(results)
    readme = results.parent / "README.md"
    readme.write_text(readme.read_text().replace("50.0 (", "40.0 ("))
    (problem,) = ledger.check(results)
    assert "README.md" in problem
    ledger.write_tables(results)
    entry = json.loads(entry_path(results).read_text())
    entry["rows"][0]["mean"] = 0.001
    rewrite(entry_path(results), rows=entry["rows"])
    assert len(ledger.check(results)) == 2


def test_a_number_changed_by_hand_is_refused(results):
    ledger.write_tables(results)
    path = entry_path(results)
    path.write_text(path.read_text().replace("0.25", "0.24"))
    for use in (ledger.check, ledger.write_tables):
        with pytest.raises(RunError, match=r"table-1\.json: .* altered .*benchmarks.ledger add`"):
            use(results)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "specformer.result/0"}, "is not specformer.result/1"),
        ({"schema": None}, "schema should be str"),
        ({"name": 1}, "name should be str"),
        ({"table": "1"}, "table should be int"),
        ({"command": None}, "command should be str"),
        ({"created": None}, "created should be str"),
        ({"seconds": "1"}, "seconds should be float"),
        ({"seed": 0.5}, "seed should be int"),
        ({"environment": []}, "environment should be dict"),
        ({"recipes": None}, "recipes should be dict"),
        ({"rows": {}}, "rows should be list"),
        ({"rows": []}, "rows is empty"),
        ({"rows": [3]}, "row 0 lacks model"),
        ({"rows": [{**row("gcn", "paper", 1.0), "mean": None}]}, "row 0: mean is None"),
        ({"rows": [row("gcn", "paper", float("nan"))]}, "row 0: mean is nan"),
    ],
    ids=str,
)
def test_every_violation_is_reported(change, message, results):
    ledger.write_tables(results)
    path = entry_path(results)
    path.write_text(json.dumps(unsealed(json.loads(path.read_text())) | change))
    problems = ledger.check(results)
    assert any(message in problem and str(path) in problem for problem in problems)
    with pytest.raises(RunError):
        recorded_rows(results, 1)


def test_no_object_at_all(results):
    entry_path(results).write_text("[1, 2]")
    assert "should be an object" in ledger.check(results)[0]


def test_a_damaged_entry_is_named(results):
    entry_path(results).write_text('{"schema": ')
    with pytest.raises(RunError, match=r"table-1\.json: damaged"):
        ledger.check(results)


def test_a_block_without_entries(results):
    text = "<!-- results:table-9 -->\n<!-- /results -->\n"
    with pytest.raises(ConfigError, match="results:table-9 has no entry"):
        ledger.rendered(text, results)
    ledger.write_tables(results)
    (results.parent / "docs" / "more.md").write_text(text)
    (problem,) = ledger.check(results)
    assert "more.md" in problem


def test_text_without_blocks_stays(results):
    assert ledger.rendered("a 1.0e-5 b\n", results) == "a 1.0e-5 b\n"


def test_where_the_ledger_is(tmp_path, monkeypatch, results):
    assert results_folder(results) == results
    monkeypatch.chdir(results.parent)
    assert results_folder().resolve() == results
    # Named but absent: never another one in its place.
    with pytest.raises(RunError, match="nowhere: no such folder"):
        results_folder(tmp_path / "nowhere")


def test_the_summary_has_ours_the_papers_and_the_best_other_model(tmp_path):
    cells = [
        ("gcn", "default", "cora", 0.75),
        ("gcn", "best", "cora", 0.8),
        ("mlp", "default", "cora", 0.625),
        ("specformer", "paper", "cora", 0.5),
        ("specformer", "best", "cora", 0.875),
        ("gcn", "best", "pubmed", 0.99),  # not of the paper's table
    ]
    rows = [
        {**row(model, recipe, mean + shift, metric), "dataset": dataset}
        for model, recipe, dataset, mean in cells
        for metric, shift in (("accuracy", 0.01), ("accuracy-by-accuracy", 0.0))
    ]
    recipes = {name: {} for name in ("default", "best", "paper")}
    folder = tmp_path / "results"
    ledger.add(finished_run(tmp_path / "one"), folder)
    ledger.add(finished_run(tmp_path / "two", table=2, rows=rows, recipes=recipes), folder)
    molecules = [{**row("specformer", "paper", 0.25, metric), "dataset": "zinc"}
                 for metric in ("mae", "mae-at-end")]  # fmt: skip
    molecules.append({**row("specgn", "default", 0.3, "mae"), "dataset": "zinc"})
    ledger.add(finished_run(tmp_path / "three", table=3, rows=molecules), folder)
    text = "<!-- results:summary -->\n<!-- /results -->\n"
    assert ledger.rendered(text, folder).splitlines()[3:-1] == [
        "| comb filter: squared error | 0.250 | **0.125** | 0.500 | 50.0 GCN |",
        "| cora: accuracy, % | 50.00 | **87.50** | 50.00 | 80.00 GCN |",
        "| zinc: MAE | 0.2500 | – | 0.5000 | **0.0700 ± 0.0020** Spec-GN, cited |",
    ]


@pytest.fixture
def command(monkeypatch, capsys):
    """The ledger's commands, in this process: status, standard output and standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ledger", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main(ledger.app)
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


def test_the_commands(command, results, tmp_path, monkeypatch):
    monkeypatch.chdir(results.parent)
    run, path = tmp_path / "runs" / "table-1", results / "table-1" / "small.json"
    assert command("check")[0] == 1  # README and docs show no table yet
    assert command("tables")[1] == "updated README.md\nupdated docs/page.md\n"
    assert json.loads(command("tables", "--json")[1]) == {"updated": []}
    assert command("check") == (0, "1 entries, 0 problems.\n", "")
    assert json.loads(command("check", "--json")[1]) == {"entries": 1, "problems": []}
    entry_path(results).unlink()
    assert command("add", run, "--name", "small") == (
        0,
        "recorded results/table-1/small.json\n",
        "",
    )
    status, out, err = command("add", run, "--name", "small")
    assert (status, out) == (2, "")
    assert "small.json: recorded before" in err
    again = command("add", run, "--name", "small", "--replace", "--json")
    assert json.loads(again[1]) == {"recorded": "results/table-1/small.json"}
    assert "absent: there is no such run folder" in command("add", "absent")[2]
    path.write_text("{}")
    status, out, err = command("check", "--json")
    assert status == 1
    assert json.loads(out)["problems"]


def test_tables_of_benchmarks_are_written_too(results):
    page = results.parent / "docs" / "page.md"
    page.write_text("<!-- results:reliability -->\nold\n<!-- /results -->\n")
    (results / "reliability").mkdir()
    assert page in ledger.write_tables(results)
    assert page.read_text() == "<!-- results:reliability -->\n<!-- /results -->\n"
