"""An extension for mkdocstrings: Sphinx markup in our docstrings becomes Markdown."""

from __future__ import annotations

from typing import Any

import griffe

from tools.pages import as_markdown


class SphinxRoles(griffe.Extension):
    """Rewrite every docstring as Markdown before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
