"""Documents that carry a checksum of themselves, so that an altered one is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: The key that a document's checksum is kept under.
KEY = "checksum"


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with a checksum of its content, whatever file format it goes into.

    Example:
        >>> sealed({"mean": 0.5})
        {'checksum': '8224d0dbc5c029bc', 'mean': 0.5}
    """
    as_read = json.loads(json.dumps(document))  # keys that are numbers come back as text
    return {KEY: _digest(as_read), **document}  # first: what is cut off must not take it along


def unsealed(document: Any, *, needed: bool = False) -> Any:
    """The document without its checksum; ``ValueError`` if it is not what was sealed.

    One without a checksum, by an earlier version or by hand, is returned as it is, unless it is
    ``needed``: of lines that nobody writes by hand.

    Example:
        >>> unsealed({"mean": 0.6, "checksum": "8224d0dbc5c029bc"})
        Traceback (most recent call last):
        ValueError: it was altered or damaged; ...
    """
    if not isinstance(document, dict) or KEY not in document:
        if needed:
            raise ValueError("a line has no checksum")
        return document
    content = {key: value for key, value in document.items() if key != KEY}
    if document[KEY] != _digest(content):
        raise ValueError(
            "it was altered or damaged; put it back, or remove its checksum to use it as it is"
        )
    return content


def _digest(document: Mapping[str, Any]) -> str:
    """64 bits of SHA-256: of the values, not of how a file writes them."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
