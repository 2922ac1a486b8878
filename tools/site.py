"""MkDocs' hooks: notebooks become pages, and the options of every command come from the program."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import typer
from mkdocs.structure.files import File

#: Replaced by the options of every command.
MARK = "<!-- options of every command -->"


class NotebookFile(File):
    """A notebook that MkDocs takes for a page."""

    def is_documentation_page(self) -> bool:
        """It is one, whatever its name ends with."""
        return True

    @property
    def content_string(self) -> str:
        """The notebook as Markdown."""
        return notebook_page(json.loads(super().content_string))

    @content_string.setter
    def content_string(self, value: str) -> None:
        self._content = value


def on_files(files: Any, config: Any) -> Any:
    """Put a page in the place of every notebook."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            page = NotebookFile(
                file.src_uri, file.src_dir, config.site_dir, config.use_directory_urls
            )
            page.inclusion = file.inclusion
            files.append(page)
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write the options of every command where a page asks for them."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def notebook_page(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: text, code, and what the code gave."""
    blocks = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
        else:
            blocks.append(f"```python\n{source}\n```")
            blocks += [shown for output in cell["outputs"] for shown in _shown(output)]
    return "\n\n".join(blocks) + "\n"


def _shown(output: dict[str, Any]) -> Iterator[str]:
    """One output of a cell as Markdown."""
    if output["output_type"] == "stream":
        yield f"```text\n{''.join(output['text']).rstrip()}\n```"
        return
    data = output["data"]
    if "image/png" in data:
        picture = f"data:image/png;base64,{data['image/png']}"
        yield f'<img alt="What the code above draws" src="{picture}">'
    elif "image/svg+xml" in data:
        yield "<div>" + re.sub(r"\s*\n\s*", " ", "".join(data["image/svg+xml"])) + "</div>"
    elif "text/html" in data:
        yield "<div>" + re.sub(r"\s*\n\s*", " ", "".join(data["text/html"])) + "</div>"
    else:
        yield f"```text\n{''.join(data['text/plain'])}\n```"


def commands() -> str:
    """Every command of the program with its arguments and options."""
    from specformer.cli import app

    return "\n\n".join(_command(typer.main.get_command(app), "specformer"))


def _command(command: Any, name: str) -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield f"## {name}"
        yield _plain(command.help or "")
        words = " ".join(_argument(parameter) for parameter in command.params)
        yield f"```text\n{name} {words.strip()} [OPTIONS]\n```".replace("  ", " ")
        rows = [_option(parameter) for parameter in command.params if not parameter.hidden]
        yield "\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows])
        return
    for below, one in command.commands.items():
        if not one.hidden:
            yield from _command(one, f"{name} {below}")


def _argument(parameter: Any) -> str:
    if parameter.param_type_name != "argument":
        return ""
    word: str = parameter.metavar or parameter.name.upper()
    return word


def _option(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{_argument(parameter)}`"
    else:
        name = ", ".join(f"`{word}`" for word in [*parameter.opts, *parameter.secondary_opts])
    given = parameter.default
    default = "" if given is None or given is False or given == () or callable(given) else given
    default = ", ".join(map(str, default)) if isinstance(default, list | tuple) else default
    meaning = _plain(parameter.help or "").replace("|", "\\|")
    return f"| {name} | {f'`{default}`' if default != '' else ''} | {meaning} |"


def _plain(text: str) -> str:
    """Help as Markdown: one line per paragraph, nothing of Rich's markup."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", ""))
    return "\n\n".join(html.escape(" ".join(part.split()), quote=False) for part in paragraphs)
