r"""Tensors and a report in a safetensors file, read whole and unaltered or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from specformer.errors import SpectrumError
from specformer.spectrum.checksum import checksum


def read_checked(
    path: Path, what: str, form: str, names: Iterable[str], *, verify: bool = True
) -> tuple[dict[str, Any], str]:
    """The tensors of these names, mapped into memory and not copied, and the report.

    Args:
        path: the file.
        what: how it is called where it is refused.
        form: its header's ``format``.
        names: of the tensors.
        verify: whether to compare the checksum, which reads everything once.
    """
    if not path.is_file():
        raise SpectrumError(f"{path}: no such {what}.")
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, Any] = file.metadata() or {}
            if header.get("format") != form:
                raise SpectrumError(f"{path}: not a {what} saved by specformer ({form}).")
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise SpectrumError(f"{path}: damaged {what} ({error}).") from error
    report = header.get("report", "")
    if verify and header.get("checksum") != checksum(tensors, report):
        raise SpectrumError(f"{path}: checksum differs; the file was altered or damaged.")
    return tensors, report
