"""A run in a notebook."""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot
from tests.reports.example_run import write_run

from specformer.training.runs.folder import RunFolder


def test_a_run_shows_what_it_reached(tmp_path):
    test = {"mean": 0.91234, "ci95": 0.0123, "values": [0.9, 0.92]}
    result = {"kind": "nodes", "model": "<gcn>", "metric": "accuracy", "test": test}
    run = write_run(tmp_path / "run", result, {"nodes/a/gcn/curve": np.ones((5, 2, 3))})

    shown = run._repr_html_()

    assert "<th>test</th><td>0.9123 ± 0.0123</td>" in shown
    assert "&lt;gcn&gt;" in shown


def test_an_unfinished_run_says_so(tmp_path):
    shown = RunFolder.create(tmp_path / "run", {"model": "mlp", "seed": 0})._repr_html_()

    assert "not finished" in shown
    assert "mlp" in shown


def test_a_runs_losses_are_plotted(tmp_path):
    curve = np.stack([np.arange(1.0, 6), np.arange(3.0, 8)], axis=1)[..., None].repeat(3, axis=2)
    arrays = {"nodes/cora/gcn/curve": curve, "filters/comb/gcn/curve": curve[..., 0]}
    run = write_run(tmp_path / "run", {"kind": "nodes"}, arrays)

    axes = run.plot()

    assert [line.get_label() for line in axes.lines] == ["cora/gcn", "comb/gcn"]
    for line in axes.lines:
        np.testing.assert_allclose(line.get_ydata(), np.arange(2.0, 7))
    pyplot.close(axes.figure)
