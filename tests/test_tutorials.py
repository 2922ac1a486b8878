"""The tutorials: every notebook runs from its first cell to its last."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from tools.notebooks import FOLDER, code_cells, run

NOTEBOOKS = [pytest.param(path, id=path.stem) for path in sorted(FOLDER.glob("*.ipynb"))]


def test_there_are_five() -> None:
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_cells_compile_and_import_what_is_there(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for source, cell in code_cells(notebook):
        for node in ast.walk(ast.parse(source, path.name)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("specformer"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), node.module
        assert all(output["output_type"] != "error" for output in cell["outputs"])


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebooks_are_small_and_were_run(path: Path) -> None:
    assert path.stat().st_size < 600_000
    notebook = json.loads(path.read_text(encoding="utf-8"))
    counts = [cell["execution_count"] for _, cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "run `make notebooks`"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebooks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.switch_backend("Agg")
    notebook = run(path)
    drawn = [
        output
        for _, cell in code_cells(notebook)
        for output in cell["outputs"]
        if output["output_type"] == "display_data"
    ]
    assert len(drawn) >= 2
