"""How a CSV file is written: its encoding, what parts its columns, its decimal sign."""

from __future__ import annotations

import codecs
import gzip
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specformer.errors import GraphError
from specformer.files.host_memory import free_bytes, gib

logger = logging.getLogger(__name__)

#: What parts columns, those first that are rare in names, and what to call it.
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
_SPACES = {" ": "spaces"}
#: Tried in turn; the last one reads anything. Windows' programs write the second.
ENCODINGS = ("utf-8-sig", "cp1252", "latin-1")
_QUOTED = re.compile(r'"[^"]*"')
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+")
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+")


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The bytes of a file, decompressed if its name ends in ``.gz``."""
    reader = _Bounded if path.suffix.lower() == ".gz" else open
    with reader(path, "rb") as file:
        yield file


class _Bounded(gzip.GzipFile):
    """A compressed file that may not unpack to more than a quarter of the free memory.

    A cell of a table takes several times what its text does.
    """

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._most = free_bytes() // 4

    def read(self, size: int | None = -1) -> bytes:
        whole = size is None or size < 0
        return self._checked(super().read(self._most + 1 if whole else size))

    def read1(self, size: int = -1) -> bytes:
        return self._checked(super().read1(size))

    def _checked(self, found: bytes) -> bytes:
        if self.tell() > self._most:
            raise GraphError(f"{self.name}: unpacks to more than {gib(self._most)}; free memory")
        return found


def encodings(path: Path) -> tuple[str, ...]:
    """The encodings that a file may have, the likeliest first; refused if it is no text."""
    with opened(path) as file:
        start = file.read(4096)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ("utf-16",)
    if b"\0" in start:
        raise GraphError(f"{path}: is no text; export it as CSV")
    return ENCODINGS


def separator(header: str, second: str = "") -> str:
    r"""What parts the columns: the commonest sign of the header that is as often in the second row.

    Without such a sign it is the commonest of the header. Without any of them it is spaces, if both
    rows hold as many words, two or more, and else a comma.

    Example:
        >>> separator("id;age;label"), separator("id\tage"), separator('"a;b",c'), separator("id")
        (';', '\t', ',', ',')
        >>> separator("size, cm;age", "1;2"), separator("source target", "1   2")
        (';', ' ')
    """
    bare, below = _QUOTED.sub("", header), _QUOTED.sub("", second)
    there = [sign for sign in _SEPARATORS if sign in bare]
    words = len(bare.split())
    if not there:
        return " " if words > 1 and len(below.split()) == words else ","
    alike = [sign for sign in there if bare.count(sign) == below.count(sign)]
    return max(alike or there, key=bare.count)  # the first of equals


def writes_decimal_commas(parted_by: str, cells: Iterable[str]) -> bool:
    """Whether numbers are written as 0,5: some are so and none has a point.

    Where commas part the columns they are nothing else.

    Example:
        >>> writes_decimal_commas(";", ["0,5", "7"]), writes_decimal_commas(";", ["0,5", "1.5"])
        (True, False)
    """
    if parted_by == ",":
        return False
    found = False
    for cell in cells:
        if _WITH_POINT.fullmatch(cell):
            return False
        found = found or _WITH_COMMA.fullmatch(cell) is not None
    return found


def say_how(path: Path, encoding: str, parted_by: str = ",", decimal_commas: bool = False) -> None:
    """Log what was guessed."""
    if encoding in ENCODINGS[1:]:
        logger.warning("%s: is not UTF-8 text; it is read as %s", path, "Latin-1 (Windows-1252)")
    if parted_by != ",":
        logger.info("%s: columns are parted by %s", path, {**_SEPARATORS, **_SPACES}[parted_by])
    if decimal_commas:
        logger.info("%s: commas in numbers are read as decimal points", path)
