"""`specformer figure`."""

from __future__ import annotations

import json

from tests.reports.example_run import example, write_run


def test_figures_are_listed(call):
    status, out, _ = call("figure", "--list", "--json")

    assert status == 0
    assert [each["figure"] for each in json.loads(out)["figures"]] == [
        "model", "filters", "dependencies", "graphs", "molecules", "encodings", "images",
    ]  # fmt: skip


def test_a_figure_of_a_run_is_written_beside_its_numbers(call, here):
    write_run(here / "run", *example())

    status, out, _ = call("figure", "dependencies", "--run", "run", "--out", "drawn", "--json")

    told = json.loads(out)
    assert status == 0
    assert (told["number"], told["run_dir"]) == (3, "run")
    assert told["files"] == ["drawn/dependencies.png", "drawn/dependencies.svg"]
    assert all((here / file).stat().st_size > 1000 for file in told["files"])


def test_what_cannot_be_drawn_is_said(call, here):
    write_run(here / "run", {"kind": "nodes"}, {})
    for arguments, told in (
        (["figure"], "Name a figure"),
        (["figure", "eight"], "eight"),
        (
            ["figure", "encodings", "--run", "run"],
            "--run: leave it out, as figure encodings needs no run.",
        ),
        (["figure", "filters", "--run", "run"], "The run holds nothing that figure 2 shows"),
        (
            ["figure", "filters", "--run", "run", "--set", "a=1"],
            "--set: cannot change a finished run",
        ),
        (["figure", "graphs", "--run", "nowhere"], "nowhere"),
    ):
        status, out, error = call(*arguments)
        assert (status, out) == (2, ""), arguments
        assert told in error
        assert error.count("Error:") == 1


def test_a_fresh_run_that_is_refused_leaves_nothing(call, here):
    status, _, error = call("figure", "graphs", "--set", "nonsense=1", "--data", here, "--quiet")

    assert status == 2
    assert "nonsense" in error
    assert not list((here / "runs").glob("*"))


def test_several_runs_have_one_report(call, here):
    for name in "ab":
        write_run(here / name, example()[0], {})

    status, out, _ = call("report", "a", "b", "--json")

    assert status == 0
    assert json.loads(out) == {"run_dirs": ["a", "b"], "report": "comparison.html"}
    assert "2 runs side by side" in (here / "comparison.html").read_text(encoding="utf-8")
    status, _, error = call("report", "a", "--out", "x.html")
    assert status == 2
    assert "--out" in error
