"""Eigenpairs as a folder of row shards, so that a process reads only the rows of its nodes.

``spectrum.json`` is the index: sizes, the report, and file, rows and checksum of every shard. It is
written last: a folder without it is not a complete spectrum.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from specformer.errors import SpectrumError
from specformer.files import make_folder, write_json
from specformer.files.checked_tensors import has_checksum, read_tensors, write_tensors
from specformer.files.documents import MALFORMED, read_json, sealed, unsealed

FORMAT = "specformer.spectrum-rows/1"
INDEX = "spectrum.json"
_VALUES = "eigenvalues.safetensors"
#: Bytes of a shard. A process reads and checks every shard that holds some of its rows.
SHARD = 2**26


def is_folder(path: str | Path) -> bool:
    """Whether a path means a folder of shards: it ends in a slash or is an existing folder."""
    return str(path).endswith("/") or Path(path).is_dir()


def emptied(folder: Path) -> Path:
    """Prepare a folder for new shards: remove an older index and its shards."""
    make_folder(folder)
    (folder / INDEX).unlink(missing_ok=True)
    for old in folder.glob("rows-*.safetensors"):
        old.unlink()
    return folder


def write_shards(folder: Path, values: Tensor, vectors: Tensor, report: Any) -> None:
    """Write eigenvalues ``[q]``, eigenvectors ``[n, q]`` and a report that JSON can hold."""
    emptied(folder)
    height = max(1, SHARD // max(1, vectors[:1].numel() * vectors.element_size()))
    shards = []
    for number, first in enumerate(range(0, max(1, len(vectors)), height)):
        part, name = vectors[first : first + height], f"rows-{number:05d}.safetensors"
        digest = write_tensors(folder / name, {"eigenvectors": part}, FORMAT)
        shards.append({"file": name, "rows": [first, first + len(part)], "checksum": digest})
    write_index(folder, len(vectors), values, shards, report)


def write_index(
    folder: Path, num_nodes: int, values: Tensor, shards: list[dict[str, Any]], report: Any
) -> None:
    """Write eigenvalues and index; shards have ``file``, ``rows``, ``checksum``, in row order."""
    digest = write_tensors(folder / _VALUES, {"eigenvalues": values}, FORMAT)
    index = {
        "format": FORMAT,
        "num_nodes": num_nodes,
        "num_eigenpairs": len(values),
        "eigenvalues": digest,
        "report": report,
        "shards": shards,
    }
    write_json(folder / INDEX, sealed(index))


def read_shards(folder: Path, nodes: slice | None = None) -> tuple[dict[str, Tensor], Any, int]:
    """Eigenvalues and the eigenvectors' rows of these nodes, by name, report and number of nodes.

    Rows within one shard are mapped into memory; rows of several shards are copied.
    """
    path = folder / INDEX
    if not path.is_file():
        raise SpectrumError(f"{folder}: not the folder of a spectrum, because it has no {INDEX}.")
    try:
        index = unsealed(read_json(path), needed=True)
    except (OSError, ValueError) as error:
        raise SpectrumError(f"{path}: damaged ({error}).") from error
    if index.get("format") != FORMAT:
        raise SpectrumError(f"{path}: not the index of a spectrum ({FORMAT}).")
    try:
        count, total, report = index["num_nodes"], index["num_eigenpairs"], index["report"]
        first, last = chosen_rows(nodes, count)
        values = _checked(folder, _VALUES, index["eigenvalues"], "eigenvalues", [total])
        vectors, upto = values.new_empty(0, total), first
        for shard in index["shards"]:
            low, high = shard["rows"]
            if not low <= upto < min(high, last):
                continue
            shape, upto = [high - low, total], min(high, last)
            rows = _checked(folder, shard["file"], shard["checksum"], "eigenvectors", shape)
            if low <= first and last <= high:
                vectors = rows[first - low : last - low]
                break
            if not len(vectors):  # copy, so that only one shard is mapped at a time
                vectors = rows.new_empty(last - first, total)
            start = max(low, first)
            vectors[start - first : upto - first] = rows[start - low : upto - low]
    except MALFORMED as error:
        raise SpectrumError(f"{path}: damaged ({error}).") from error
    if upto < last:
        raise SpectrumError(f"{path}: damaged (no shard has row {upto}).")
    return {"eigenvalues": values, "eigenvectors": vectors}, report, count


def chosen_rows(nodes: Any, count: int) -> tuple[int, int]:
    """The first of some nodes and the end of their range; refuses nodes that do not exist."""
    if nodes is None:
        return 0, count
    if isinstance(nodes, slice) and nodes.step in (None, 1):
        first, last = nodes.start or 0, count if nodes.stop is None else nodes.stop
        if 0 <= first <= last <= count:
            return first, last
    raise SpectrumError(f"nodes={nodes}: expected a part of slice(0, {count}).")


def _checked(folder: Path, name: str, digest: str, content: str, shape: list[int]) -> Tensor:
    """Read a shard's tensor and compare it with the index."""
    path = folder / Path(name).name
    tensors, _ = read_tensors(
        path, "part of a spectrum", FORMAT, refused=SpectrumError, names=[content], verify=False
    )
    if not has_checksum(digest, tensors) or list(tensors[content].shape) != shape:
        raise SpectrumError(
            f"{path}: checksum differs from that in {INDEX}; the file was altered or damaged, or "
            "belongs to another spectrum."
        )
    return tensors[content]
