"""Counting walks: of functions written here, and of a command."""

from __future__ import annotations

import scipy.sparse as sp
from typer.testing import CliRunner

from benchmarks.walks import Walk, app, walked
from specformer.errors import check_known
from specformer.graphs import normalised_laplacian


def test_rooms_are_the_first_folders() -> None:
    steps = (("cli/a.py", "f"), ("nn/b.py", "g"), ("nn/filter/c.py", "h"), ("files.py", "k"))
    walk = Walk(steps)
    assert (walk.files, walk.functions, walk.room_changes) == (4, 4, 2)
    assert Walk(()).room_changes == 0


def test_only_functions_of_the_package_count_and_each_once() -> None:
    def call() -> None:
        sorted([3, 1])
        for _ in range(2):
            check_known("letter", ("a", "b"), "a")

    assert walked(call).steps == (("errors.py", "check_known"),)
    assert walked(lambda: sorted([3, 1])).steps == ()


def test_steps_come_in_the_order_of_their_first_calls() -> None:
    pair = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    steps = walked(lambda: normalised_laplacian(pair)).steps
    assert steps[0][1] == "normalised_laplacian"
    assert len(steps) == len(set(steps)) > 1


def test_any_command_can_be_walked() -> None:
    done = CliRunner().invoke(app, ["--steps", "datasets", "--json"])
    assert done.exit_code == 0, done.output
    assert "cli/inspecting.py datasets" in done.stdout
    assert "room changes" in done.stdout
