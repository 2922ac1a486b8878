"""Hooks of MkDocs: notebooks become pages, and the program lists its own commands and options."""

from __future__ import annotations

import json
from typing import Any

from mkdocs.structure.files import File

from tools.pages import commands, notebook_page

#: Is replaced by the options of every command.
MARK = "<!-- options of every command -->"


class NotebookFile(File):
    """A notebook that MkDocs treats as a page."""

    def is_documentation_page(self) -> bool:
        """Always true, although the name does not end in .md."""
        return True

    @property
    def content_string(self) -> str:
        """The notebook as Markdown."""
        return notebook_page(json.loads(super().content_string))

    @content_string.setter
    def content_string(self, value: str) -> None:
        self._content = value


def on_files(files: Any, config: Any) -> Any:
    """Replace every notebook by a page."""
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
    """Insert the options of every command into the page that has the mark."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown
