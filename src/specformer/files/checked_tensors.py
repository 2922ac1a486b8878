"""Tensors and text entries in a safetensors file, protected by a checksum."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import load
from torch import Tensor

from specformer.files.atomic import replacing

#: Names of types in such a file.
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    form: str,
    words: Mapping[str, str] | None = None,
    beside: str = "",
) -> str:
    """Write tensors and words atomically, with a checksum of both; return the checksum.

    ``form`` is the header's ``format``, ``words`` are further entries of the header. The checksum
    also covers ``beside``, a text that is stored in another file.
    """
    words = dict(words or {})
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    digest = checksum(state, "".join(words[key] for key in sorted(words)) + beside)
    with replacing(path) as part:
        _save(state, part, {"format": form, "checksum": digest, **words})
    return digest


def read_tensors(
    path: Path,
    what: str,
    form: str,
    *,
    refused: type[Exception],
    names: Iterable[str] | None = None,
    beside: str = "",
    verify: bool = True,
    mapped: bool = True,
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of these names, or all, and the words.

    A file that is missing, of another form, damaged or altered raises ``refused``, whose message
    calls it ``what``. ``verify`` compares the checksum, which reads everything once. A file that is
    ``mapped`` into memory is not copied. Do not map what is copied anyway: safetensors 0.8 leaks 64
    bytes for each such tensor.
    """
    if not path.is_file():
        raise refused(f"{path}: no such {what}.")
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata() or {}
            if header.get("format") != form:
                raise refused(f"{path}: not a {what} saved by specformer ({form}).")
            whole = None if mapped else load(path.read_bytes())
            kept = list(file.keys()) if names is None else names
            tensors = {
                name: file.get_tensor(name) if whole is None else whole[name] for name in kept
            }
    except (SafetensorError, OSError, LookupError, RuntimeError, ValueError) as error:
        raise refused(f"{path}: damaged {what} ({error}).") from error
    words = {key: value for key, value in header.items() if key not in ("format", "checksum")}
    told, text = header.get("checksum", ""), "".join(words[key] for key in sorted(words))
    if verify and not has_checksum(told, tensors, text + beside):
        which = "it, or a file beside it," if beside else "the file"
        raise refused(f"{path}: checksum differs; {which} was altered or damaged.")
    return tensors, words


def _save(state: Mapping[str, Tensor], path: Path, header: Mapping[str, str]) -> None:
    """Write a safetensors file whose largest tensor is aligned as PyTorch aligns new ones.

    How MKL rounds a product with one column depends on the matrix's address modulo 16. So a tensor
    mapped from the file gives the same bits as the one in memory that was written. Safetensors' own
    writer aligns to eight bytes and puts smaller tensors first.
    """
    parts = sorted(state.items(), key=lambda item: (-item[1].itemsize, -item[1].numel(), item[0]))
    content: dict[str, object] = {"__metadata__": dict(header)}
    offset = 0
    for name, tensor in parts:
        entry = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape)}
        content[name] = entry | {"data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(content).encode()
    text = text.ljust(len(text) + -(8 + len(text)) % 64)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in parts:
            if tensor.numel():
                file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)


def has_checksum(digest: str, tensors: Mapping[str, Tensor], text: str = "") -> bool:
    """Whether this is the :func:`checksum` of tensors and a text.

    Older files and SLEPc's ranks, which run in a Python of their own, have SHA-256.
    """
    algorithm = hashlib.sha256 if len(digest) == 64 else xxhash.xxh3_128
    return digest == checksum(tensors, text, algorithm)


def checksum(
    tensors: Mapping[str, Tensor],
    text: str = "",
    algorithm: Callable[[bytes], Any] = xxhash.xxh3_128,
) -> str:
    """A hash of named tensors on the CPU and of a text: of every bit, type and shape.

    XXH3 is 14 times as fast as SHA-256. It finds accidental changes, and a checksum in the same
    file cannot do more.
    """
    digest = algorithm(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f";{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        if tensor.numel():  # view() fails on the stride 0 that an empty one may have
            digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
    return str(digest.hexdigest())
