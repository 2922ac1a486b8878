"""Tables of what the benchmarks record, and those that the docs show."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import tables
from benchmarks.tables import bench_grids, bench_markdown
from specformer.errors import RunError
from specformer.files import write_json


def trained(loss: float, accuracy: float, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "by_loss": {"mean": loss, "ci95": 0.0125, "values": []},
        "by_accuracy": {"mean": accuracy, "ci95": 0.01, "values": []},
        "epochs": 300.0,
        "seconds": seconds,
        **more,
    }


def same_row(case: str = "cora") -> dict[str, Any]:
    return {
        "case": case,
        "plain": trained(0.7, 0.75, 45.0),
        "ours": trained(
            0.705,
            0.7299,
            1.25,
            difference={"by_loss": 0.005, "by_accuracy": -0.0201},
            inside={"by_loss": True, "by_accuracy": False},
        ),
        "exact": trained(
            0.7,
            0.75,
            12.5,
            difference={"by_loss": 0.0, "by_accuracy": 0.0},
            inside={"by_loss": None, "by_accuracy": None},
        ),
        "losses_apart": 3.2e-6,
        "losses_apart_by_order": 1.5e-6,
        "landmark_errors": {"64": 0.21, "128": None},
    }


def entry(case: str, **changes: Any) -> dict[str, Any]:
    return {
        "schema": "specformer.bench/1",
        "name": f"same-{case}",
        "suite": "same",
        "command": f"specformer bench same --datasets {case}",
        "created": "2026-01-01T00:00:00+00:00",
        "device": "a card",
        "threads": None,
        "plan": {"runs": 10, "epochs": None},
        "environment": {"packages": {"torch": "2.11.0"}, "commit": "abc"},
        "rows": [same_row(case)],
    } | changes


def test_beside_a_decomposition_stands_arpack_and_no_plain_loop() -> None:
    row = {"case": "cora", "nodes": 2708, "eigenpairs": 50, "ours_ms": 250.0}
    row |= {"reference_ms": 4000.0, "ratio": 16.0, "ours_mb": None, "peers": {}}
    [(header, lines)] = bench_grids({"suite": "spectrum", "rows": [row]})
    assert header == ["case", "nodes", "eigenpairs", "ours, ms", "ARPACK, ms", "ratio"]
    assert lines == [["cora", "2,708", "50", "250", "4,000", "16.0×"]]


def test_accuracies_have_a_line_a_rule() -> None:
    (header, lines), _ = bench_grids({"suite": "same", "rows": [same_row()]})
    first, second = (dict(zip(header, line, strict=True)) for line in lines)
    assert first["picked by"] == "validation loss"
    assert first["plain, %"] == "70.00 ± 1.25"
    assert first["ours, %"] == "70.50 ± 1.25"
    assert first["ours − plain"] == "+0.50, inside"
    assert first["exact − plain"] == "+0.00"
    assert second["picked by"] == "validation accuracy"
    assert second["ours − plain"] == "−2.01, outside"


def test_seconds_and_errors_have_a_line_a_set() -> None:
    _, (header, lines) = bench_grids({"suite": "same", "rows": [same_row()]})
    shown = dict(zip(header, *lines, strict=True))
    assert [shown[f"{name}, s"] for name in ("plain", "ours", "exact")] == ["45.0", "1.25", "12.5"]
    assert shown["losses apart"] == "3.2×10⁻⁶"
    assert (shown["error, b = 64"], shown["error, b = 128"]) == ("2.1×10⁻¹", "–")


def test_sets_measured_alike_stand_together() -> None:
    text = bench_markdown([entry("actor"), entry("cora")])
    assert text.count("| case | picked by |") == text.count("| case | plain, s |") == 1
    assert text.count("| actor |") == text.count("| cora |") == 3
    assert "--datasets actor`, `specformer bench same --datasets cora` on one a card" in text
    assert "means of 10 splits with 95% intervals, commit abc." in text


def test_sets_measured_otherwise_are_apart() -> None:
    short = entry("cora", plan={"runs": 2, "epochs": 30})
    text = bench_markdown([entry("actor"), short])
    assert text.count("| case | picked by |") == 2
    assert "means of 2 splits of at most 30 epochs with 95% intervals" in text


def test_times_stay_tables_of_their_own() -> None:
    row = {"case": "cora", "ours_ms": 0.5, "reference_ms": 9.0, "ratio": 18.0, "peers": {}}
    row |= {"ours_mb": 40.0, "reference_mb": 350.0, "floor_ms": 0.02}
    plan = {"epochs": 100, "repeats": 5, "warmup": 1}
    timed = entry("cora", suite="node", plan=plan, rows=[row])
    text = bench_markdown([timed, timed, entry("cora")])
    assert text.count("| case | ours, ms |") == 2
    assert text.count("| case | picked by |") == 1
    assert text.count("medians of 5 interleaved repeats of 100") == 2


def test_pages_show_what_is_recorded(tmp_path) -> None:
    write_json(tmp_path / "bench" / "same-cora.json", entry("cora"))
    shown = tables.bench_blocks("<!-- results:bench -->\n<!-- /results -->\n", tmp_path)
    assert "| cora | validation loss | 70.00 ± 1.25 | 70.50 ± 1.25 |" in shown


def test_an_entry_that_no_table_can_be_made_of_is_named(tmp_path) -> None:
    text, path = "<!-- results:bench -->\n<!-- /results -->\n", tmp_path / "bench" / "cora.json"
    for changes, why in (
        ({"suite": 3}, "suite should be str"),
        ({"rows": [{}]}, "KeyError: 'case'"),
    ):
        write_json(path, entry("cora", **changes))
        with pytest.raises(RunError, match=why):
            tables.bench_blocks(text, tmp_path)


def test_a_case_measured_again_is_shown_once() -> None:
    first = entry("cora", rows=[same_row("cora"), same_row("actor")])
    again = entry("cora", created="2026-01-02T00:00:00+00:00", plan={"runs": 5, "epochs": None})
    elsewhere = entry("cora", device="another card")
    shown = bench_markdown([again, first, elsewhere])
    assert shown.count("| cora | validation loss") == 2  # the later one, and the other card's
    assert shown.count("| actor | validation loss") == 1
    assert "means of 5 splits" in shown


def test_stops_are_added_up_and_silences_are_not() -> None:
    rows = [
        {"case": "nodes", "stops": 8, "went on": 6, "no folder": 2, "seconds": 60.0},
        {"case": "an image", "stops": 2, "went on": 1, "wrong": 1, "seconds": 60.0},
    ]
    header, lines = bench_grids({"suite": "interruptions", "rows": rows})[0]
    assert [len(line) for line in lines] == [len(header)] * 3
    assert lines[-1] == ["all", "10", "7", "0", "0", "0", "2", "1"]
    heard = {"seconds": 9.25, "first": 0.2, "longest": 1.71, "after": "Reading", "leaving": 0.5}
    shown = bench_grids({"suite": "silence", "rows": [{"case": "`train` (file)", **heard}]})
    assert shown[0][1] == [["`train` (file)", "9.2", "0.2", "1.7", "0.5"]]


def test_attacks_are_added_up():
    counts = {"refused": 7, "unaffected": 3, "wrong": 0, "tracebacks": 0, "seconds": 60.0}
    rows = [
        {"case": "one bit: model", "tried": 10, **counts},
        {"case": "full disk: train", **dict.fromkeys(("tried", *counts), 0)},  # no disk to mount
        {"case": "one bit: cache", "tried": 1_990, **counts, "refused": 1_987},
    ]
    header, lines = bench_grids({"suite": "reliability", "rows": rows})[0]
    assert header == ["attack", "tried", "refused", "unaffected", "wrong", "tracebacks"]
    assert lines == [
        ["one bit: model", "10", "7", "3", "0", "0"],
        ["one bit: cache", "1,990", "1,987", "3", "0", "0"],
        ["all", "2,000", "1,994", "6", "0", "0"],
    ]
    environment = {"packages": {"torch": "2.13.0"}, "commit": "abc"}
    entry = {"suite": "reliability", "command": "attack", "device": "CPU", "threads": 1, "plan": {}}
    entry |= {"environment": environment, "created": "2026", "rows": rows}
    assert "PyTorch 2.13.0, 2 minutes, commit abc" in bench_markdown([entry])
    entry["rows"] = [{**row, "processor_seconds": 20.0} for row in rows]
    assert "2 minutes, 1 of processor time, commit" in bench_markdown([entry])
