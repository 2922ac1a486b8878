"""Signals by name: where they are and how many, against files written here and NetworkX."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
from tests.cli.command_line import only_json
from tests.datasets.grid_images import write_grid_images

from specformer.datasets.signal_registry import SIGNAL_SETS, named_signals, survey_signals
from specformer.tasks.source import source_kind


def test_survey_tells_what_is_there(elsewhere: Path) -> None:
    embedded, missing = survey_signals()
    assert (embedded["name"], embedded["state"], embedded["path"]) == (
        "photographs",
        "embedded",
        None,
    )
    signals = named_signals("photographs")
    assert embedded["signals"] == len(signals.signals) == len(signals.titles)
    grid = nx.grid_2d_graph(*signals.shape)
    sizes = (grid.number_of_nodes(), grid.number_of_edges())
    assert (embedded["nodes"], embedded["edges"]) == sizes
    assert missing == {
        "name": "grid-images",
        "about": SIGNAL_SETS["grid-images"],
        "path": None,
        "state": "not found",
        "signals": 50,
        "nodes": 100 * 100,
        "edges": nx.grid_2d_graph(100, 100).number_of_edges(),
    }

    path = write_grid_images(elsewhere / "own", count=3, side=5)
    found = survey_signals(elsewhere / "own")[1]
    grid = nx.grid_2d_graph(5, 5)
    assert (found["state"], found["path"], found["signals"]) == ("found", str(path), 3)
    assert (found["nodes"], found["edges"]) == (25, grid.number_of_edges())

    path.write_bytes(b"PK not a zip")
    assert survey_signals(elsewhere / "own")[1] == missing | {"state": "damaged", "path": str(path)}


def test_the_command_lists_all_that_train_takes(call) -> None:
    listed = {row["name"]: row for row in only_json(call("datasets", "--json"))["datasets"]}
    assert {source_kind(name) for name in listed} == {"nodes", "molecules", "filters"}
    assert set(SIGNAL_SETS) <= set(listed)
    status, out, _ = call("datasets")
    assert status == 0
    (line,) = (line for line in out.splitlines() if "photographs " in line)
    assert {"4", "1,600", "3,120", "embedded"} <= set(line.split())
