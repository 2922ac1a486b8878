"""Run the tutorials' notebooks and write their outputs into them.

    python -m tools.notebooks                                  all of docs/tutorials
    python -m tools.notebooks docs/tutorials/own-graph.ipynb   one of them

All code cells of a notebook run in one namespace, in an empty folder, without Jupyter. The outputs
of a cell are its printed text, the value of its last line, and its pictures. Some pictures are
also saved for the gallery.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
PICTURES = FOLDER.parent / "images" / "gallery"
#: Names of the gallery's pictures by notebook, in drawing order; None is not in the gallery.
GALLERY = {
    "filter-on-an-image": ("waves", "filtered", "comb-learned", None, None),
    "large-spectra": ("ring-waves", None, "density-checked", "heat"),
    "molecules": ("molecules", None, "molecules-predicted", "molecules-wrong"),
    "own-graph": ("labels-energy", "responses"),
    "own-model": (None, None, "own-filter"),
}


def code_cells(notebook: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The text and the cell of every code cell."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"]), cell


def run(path: Path) -> dict[str, Any]:
    """Run a notebook; returns it with new outputs. Errors of a cell are raised."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, (source, cell) in enumerate(code_cells(notebook), 1):
            cell["execution_count"] = number
            cell["outputs"] = _run_cell(source, f"{path.name}, cell {number}", namespace)
    return notebook


def _run_cell(source: str, name: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None and not source.rstrip().endswith(";"):
        outputs.append(_shown(value))
    return outputs + [_displayed(png) for png in _drawn()]


def _shown(value: Any) -> dict[str, Any]:
    """The value of a cell's last line, as Jupyter stores it."""
    if isinstance(value, str) and "<svg" in value[:500]:  # RDKit's drawings, outside of Jupyter
        picture = value[value.index("<svg") :]
        data: dict[str, Any] = {"image/svg+xml": picture.splitlines(keepends=True)}
        return {"output_type": "display_data", "data": data, "metadata": {}}
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    for kind, method in (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_")):
        if text := getattr(value, method, lambda: None)():
            data[kind] = text.splitlines(keepends=True)
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _displayed(png: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(png).decode()
    return {"output_type": "display_data", "data": {"image/png": encoded}, "metadata": {}}


def _drawn() -> Iterator[bytes]:
    """The open figures as PNG; closes them."""
    import matplotlib.pyplot as plt

    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, format="png", dpi=80, metadata={"Software": None})
        yield file.getvalue()
    plt.close("all")


def pictures(notebook: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The pictures of a notebook, each as file extension and bytes."""
    for _, cell in code_cells(notebook):
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                yield "png", base64.b64decode(data["image/png"])
            elif "image/svg+xml" in data:
                yield "svg", "".join(data["image/svg+xml"]).encode()


def keep_pictures(notebook: dict[str, Any], stem: str) -> None:
    """Save the pictures of a notebook that the gallery shows."""
    PICTURES.mkdir(exist_ok=True)
    for name, (ending, content) in zip(GALLERY[stem], pictures(notebook), strict=True):
        if name:
            (PICTURES / f"{name}.{ending}").write_bytes(content)


def main(paths: list[str]) -> None:
    """Run the named notebooks, or all, and write their outputs."""
    os.environ["MPLBACKEND"] = "Agg"
    for path in map(Path, paths) if paths else sorted(FOLDER.glob("*.ipynb")):
        started = time.perf_counter()
        notebook = run(path)
        keep_pictures(notebook, path.stem)
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: {time.perf_counter() - started:.1f} s, {len(text) // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
