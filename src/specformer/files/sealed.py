"""Documents that carry a checksum of themselves, so that an altered one is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from specformer.files.atomic import write_json
from specformer.files.documents import read_json

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


#: What became of a file that a manifest names.
State = Literal["intact", "altered", "missing"]


class Manifest:
    """SHA-256 of some of a folder's files by name, so that readers can ask whether one is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, files: Mapping[str, bytes | None]) -> None:
        """Write the checksums of these files; what is not on the disk yet is given as bytes."""
        self.path.unlink(missing_ok=True)  # an older one must not speak of new files
        sums = {
            name: _file_digest(self.path.parent / name)
            if content is None
            else hashlib.sha256(content).hexdigest()
            for name, content in files.items()
        }
        write_json(self.path, sealed({"sha256": sums}))

    def sums(self) -> dict[str, str]:
        """Checksums by name, none where there is no manifest; ``ValueError`` if it is damaged."""
        try:
            content = unsealed(read_json(self.path))
        except FileNotFoundError:
            return {}
        sums = content.get("sha256") if isinstance(content, dict) else None
        if not isinstance(sums, dict) or not all(isinstance(each, str) for each in sums.values()):
            raise ValueError("it holds no checksums")
        return sums

    def states(self) -> dict[str, State]:
        """What became of every file."""
        return {name: self._state(name, digest) for name, digest in self.sums().items()}

    def is_altered(self, name: str) -> bool:
        """Whether a file is there and not as it was; False of one that is not in the manifest."""
        digest = self.sums().get(name)
        return digest is not None and self._state(name, digest) == "altered"

    def _state(self, name: str, digest: str) -> State:
        path = self.path.parent / name
        if not path.is_file():
            return "missing"
        return "intact" if _file_digest(path) == digest else "altered"


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
