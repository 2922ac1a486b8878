"""What the documentation's pages are made of, without building them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import typer

from specformer.cli import app
from tools.notebooks import FOLDER, code_cells
from tools.pages import as_markdown, commands, notebook_page


def every_command(command: Any, name: str) -> list[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        return [(name, command)]
    found = command.commands.items()
    return [pair for below, one in found for pair in every_command(one, f"{name} {below}")]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        pytest.param(*pair, id=pair[0])
        for pair in every_command(typer.main.get_command(app), "specformer")
        if not pair[1].hidden
    ],
)
def test_every_option_of_a_command_is_on_the_page(name: str, command: Any) -> None:
    text = commands() + "\n\n## "
    section = re.search(rf"^## {name}\n(.*?)(?=^## )", text, re.M | re.S)
    assert section is not None
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            assert f"`{parameter.opts[0]}`" in section[1]
            assert (parameter.help or "").split(" ")[0] in section[1]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_becomes_a_page(path: Any) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    page = notebook_page(notebook)
    assert page.startswith("# ")
    assert page.count("```python\n") == sum(1 for _ in code_cells(notebook))
    assert "<img" in page
    assert "http" not in re.sub(r"xmlns(:\w+)?='[^']*'", "", page)  # nothing from other servers


@pytest.mark.parametrize(
    ("sphinx", "markdown"),
    [
        (r":math:`U^\top x`", "`Uᵀ x`"),
        (":func:`specformer.decompose`", "`specformer.decompose`"),
        ("takes ``[n, q]``", "takes `[n, q]`"),
        (".. math::\n\n    y = \\lambda x\n\nEnd.", "```text\ny = λ x\n```\n\nEnd."),
    ],
)
def test_docstrings_become_markdown(sphinx: str, markdown: str) -> None:
    assert as_markdown(sphinx) == markdown
