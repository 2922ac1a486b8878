"""JSON and YAML from any source, read within limits of size and depth.

A *sealed* document has a checksum of its content, so that an altered one is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import yaml

from specformer.files.atomic import is_special, write_json, write_text
from specformer.files.host_memory import raised

Record = TypeVar("Record")
#: Errors raised by code that expects a document of another shape.
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
#: The key of a document's checksum.
KEY = "checksum"
#: State of a file that a manifest lists.
State = Literal["intact", "altered", "missing"]
#: Limits far above any file of ours; without them, a file could use up all memory.
_DEPTH, _DIGITS = 50, 100
_YAML_BYTES, _JSON_BYTES = 2**20, 2**28


def read_json(path: Path) -> Any:
    """Read a JSON file; a ``ValueError`` says what is wrong with it."""
    return parse_json(_text(path, _JSON_BYTES))


def read_json_lines(path: Path) -> list[Any]:
    """Read a file with one JSON value per line, as :func:`read_json` does."""
    return [parse_json(line) for line in _text(path, _JSON_BYTES).splitlines()]


def parse_json(text: str) -> Any:
    """Parse JSON; a ``ValueError`` says what is wrong with it.

    Example:
        >>> parse_json("[" * 100_000)
        Traceback (most recent call last):
        ValueError: it is nested more than 50 deep
    """
    try:
        return _checked(json.loads(text), text)
    except RecursionError:
        raise _too_deep() from None


def parse_record(kind: type[Record], text: str) -> Record:
    """Parse JSON into a data class whose fields are text and numbers; else a ``ValueError``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Reading:
        ...     seconds: float
        >>> parse_record(Reading, '{"seconds": "3"}')
        Traceback (most recent call last):
        ValueError: seconds is '3'
    """
    found, kinds = parse_json(text), get_type_hints(kind)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    for name, value in found.items():
        expected = (int, float) if kinds.get(name) is float else kinds.get(name, ())
        if isinstance(value, bool) or not isinstance(value, expected):
            raise ValueError(f"{name[:50]} is {str(value)[:50]!r}")
    try:
        return kind(**found)
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from None


def read_yaml(path: Path) -> Any:
    """Read a YAML file; a ``ValueError`` says what is wrong with it."""
    return parse_yaml(_text(path, _YAML_BYTES))


def parse_yaml(text: str) -> Any:
    """Parse YAML: plain values, lists, and mappings whose keys are text.

    Aliases are refused: a few of them can expand to more than fits into memory.

    Example:
        >>> parse_yaml("{rates: [0.1, 0.2]}")
        {'rates': [0.1, 0.2]}
        >>> parse_yaml("[&a [1], *a]")
        Traceback (most recent call last):
        ValueError: it has aliases (*a); write their values out
    """
    try:
        return _checked(yaml.load(text, Loader=_Plain), text)  # noqa: S506 (safe) # nosec B506
    except RecursionError:
        raise _too_deep() from None
    except yaml.YAMLError as error:
        raise ValueError("not valid YAML") from error


def write_yaml(path: str | Path, content: Any) -> None:
    """Write YAML that :func:`read_yaml` reads, atomically; keys keep their order."""
    write_text(path, yaml.dump(content, Dumper=_WrittenOut, sort_keys=False))


class _Plain(yaml.SafeLoader):
    """PyYAML's safe loader; refuses aliases, keys that are not text, and very long numbers."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            name = self.peek_event().anchor[:20]
            raise ValueError(f"it has aliases (*{name}); write their values out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        for key in mapping:
            if not isinstance(key, str):
                raise ValueError(f"a key is of type {type(key).__name__}; put it in quotes")
        return mapping

    def construct_number(self, node: Any) -> Any:
        if len(node.value) > raised(_DIGITS):
            raise ValueError(f"it has a number of {len(node.value):,} digits")
        whole = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Plain.add_constructor(f"tag:yaml.org,2002:{_kind}", _Plain.construct_number)


class _WrittenOut(yaml.SafeDumper):
    """PyYAML's safe dumper without aliases: a repeated value is written each time."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(path: Path, most: int) -> str:
    if is_special(path):  # a device or a pipe may never end
        raise ValueError("it is not a plain file")
    size = path.stat().st_size
    if size > raised(most):
        raise ValueError(f"it has {size:,} bytes; at most {raised(most):,} are read")
    return path.read_text(encoding="utf-8")


def _checked(value: Any, text: str) -> Any:
    """Return the value if it is within the depth limit and can be written as UTF-8 again."""
    if "\\ud" in text.lower():  # perhaps half of a surrogate pair, which UTF-8 cannot encode
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            raise ValueError("it has incomplete characters (half of a surrogate pair)") from None
    level = [value]
    for _ in range(raised(_DEPTH) + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {raised(_DEPTH)} deep")


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


def write_manifest(path: Path, files: Mapping[str, bytes | None]) -> None:
    """Write the SHA-256 of files in its folder; give the content of those not on the disk yet."""
    path.unlink(missing_ok=True)  # an older manifest must not describe new files
    sums = {
        name: _file_digest(path.parent / name)
        if content is None
        else hashlib.sha256(content).hexdigest()
        for name, content in files.items()
    }
    write_json(path, sealed({"sha256": sums}))


def file_states(path: Path, *names: str) -> dict[str, State]:
    """The state of every file that a manifest lists, or of those with these names.

    Empty without a manifest; ``ValueError`` if it is damaged.
    """
    try:
        content = unsealed(read_json(path))
    except FileNotFoundError:
        return {}
    sums = content.get("sha256") if isinstance(content, dict) else None
    if not isinstance(sums, dict) or not all(isinstance(each, str) for each in sums.values()):
        raise ValueError("it does not hold checksums")
    states: dict[str, State] = {}
    for name in sums.keys() & names if names else sums:
        file = path.parent / name
        if not file.is_file():
            states[name] = "missing"
        else:
            states[name] = "intact" if _file_digest(file) == sums[name] else "altered"
    return states


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
