"""Documents with a checksum of their content, so that an altered one is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specformer.files.atomic import write_json
from specformer.files.documents import read_json

#: The key of a document's checksum.
KEY = "checksum"


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a checksum of its values, which holds in any file format.

    Example:
        >>> sealed({"mean": 0.5})
        {'checksum': '8224d0dbc5c029bc', 'mean': 0.5}
    """
    as_read = json.loads(json.dumps(document))  # keys that are numbers come back as text
    return {KEY: _digest(as_read), **document}  # first, so that a cut-off end does not remove it


def unsealed(document: Any, *, needed: bool = False) -> Any:
    """Return the document without its checksum; ``ValueError`` if it was altered.

    A document without a checksum, from an earlier version or written by hand, is returned as it
    is, unless a checksum is ``needed``.

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
    """64 bits of SHA-256 of the values; the layout of the file does not matter."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


#: State of a file that a manifest lists.
State = Literal["intact", "altered", "missing"]


@dataclass(frozen=True)
class Manifest:
    """SHA-256 of some of a folder's files by name; tells whether one was altered."""

    path: Path

    def write(self, files: Mapping[str, bytes | None]) -> None:
        """Write the checksums of these files; give the content of those not on the disk yet."""
        self.path.unlink(missing_ok=True)  # an older manifest must not describe new files
        sums = {
            name: _file_digest(self.path.parent / name)
            if content is None
            else hashlib.sha256(content).hexdigest()
            for name, content in files.items()
        }
        write_json(self.path, sealed({"sha256": sums}))

    def sums(self) -> dict[str, str]:
        """Checksums by name; empty without a manifest; ``ValueError`` if it is damaged."""
        try:
            content = unsealed(read_json(self.path))
        except FileNotFoundError:
            return {}
        sums = content.get("sha256") if isinstance(content, dict) else None
        if not isinstance(sums, dict) or not all(isinstance(each, str) for each in sums.values()):
            raise ValueError("it does not hold checksums")
        return sums

    def states(self) -> dict[str, State]:
        """The state of every file."""
        return {name: self._state(name, digest) for name, digest in self.sums().items()}

    def is_altered(self, name: str) -> bool:
        """Whether a file exists and has changed; False if it is not in the manifest."""
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
