r"""Tensors and some words in a safetensors file, read whole and unaltered or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save_file
from torch import Tensor

from specformer.files.atomic import replacing
from specformer.files.checksum import checksum

_OURS = ("format", "checksum")


def write_tensors(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    form: str,
    words: Mapping[str, str] | None = None,
    beside: str = "",
) -> None:
    """Write tensors and words atomically, with a checksum of both.

    Args:
        path: the file.
        tensors: what to keep; they are copied to the CPU where they are not there.
        form: what the file is, its header's ``format``.
        words: further entries of its header.
        beside: what the checksum covers too, and another file holds.
    """
    words = dict(words or {})
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"format": form, "checksum": checksum(state, _joined(words) + beside), **words}
    with replacing(path) as part:
        save_file(state, part, metadata=header)


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
    """The tensors and the words.

    Args:
        path: the file.
        what: how it is called where it is refused.
        form: its header's ``format``.
        refused: the error of a file that is missing, of another form, damaged or altered.
        names: of the tensors; None for all.
        beside: as it was written with.
        verify: whether to compare the checksum, which reads everything once.
        mapped: whether to map the file into memory and copy nothing. Not what is copied anyway:
            safetensors 0.8 keeps 64 bytes of each tensor that it maps, for good.
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
    words = {key: value for key, value in header.items() if key not in _OURS}
    if verify and header.get("checksum") != checksum(tensors, _joined(words) + beside):
        which = "it, or what lies beside it," if beside else "the file"
        raise refused(f"{path}: checksum differs; {which} was altered or damaged.")
    return tensors, words


def _joined(words: Mapping[str, str]) -> str:
    return "".join(words[key] for key in sorted(words))
