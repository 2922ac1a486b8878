"""The checksum sees every bit, name, type, shape and the text."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specformer.files.checked_tensors import checksum, read_tensors, write_tensors


def test_any_difference_shows() -> None:
    ones = torch.ones(2, 3)
    variants = [
        checksum({"a": ones}),
        checksum({"b": ones}),
        checksum({"a": ones}, "text"),
        checksum({"a": ones.double()}),
        checksum({"a": ones.mT}),
        checksum({"a": ones.view(torch.int32)}),
        checksum({"a": torch.nextafter(ones, torch.zeros(()))}),
        checksum({"a": -ones}),
    ]
    assert len(set(variants)) == len(variants)


def test_memory_layout_and_order_of_names_do_not_matter() -> None:
    matrix, number = torch.arange(6.0).reshape(2, 3), torch.tensor(7)
    one = checksum({"a": matrix, "b": number})
    assert one == checksum({"b": number, "a": matrix.mT.contiguous().mT})


def test_nothing_has_a_checksum_too() -> None:
    empty = torch.zeros(0, dtype=torch.int32)
    strange = torch.as_strided(empty, (0,), (0,))
    assert checksum({"a": strange}) == checksum({"a": empty})
    assert checksum({"a": empty}) != checksum({"a": empty.long()})


def test_nothing_at_all_has_the_checksum_that_xxh3_publishes() -> None:
    assert checksum({}) == "99aa06d3014798d86001c324468d497f"


@pytest.mark.parametrize("sha256", [False, True], ids=["XXH3", "SHA-256 of earlier versions"])
def test_files_of_both_checksums_are_read_and_refused_once_altered(
    tmp_path: Path, sha256: bool
) -> None:
    path, values = tmp_path / "a.safetensors", torch.arange(3.0)
    if sha256:
        digest = hashlib.sha256(b"word" + b";a:torch.float32:(3,);" + values.numpy().tobytes())
        header = {"format": "test/1", "checksum": digest.hexdigest(), "key": "word"}
        save_file({"a": values}, path, header)
    else:
        write_tensors(path, {"a": values}, "test/1", {"key": "word"})
    tensors, words = read_tensors(path, "test file", "test/1", refused=ValueError)
    assert tensors["a"].tolist() == [0, 1, 2]
    assert words == {"key": "word"}
    del tensors
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum differs"):
        read_tensors(path, "test file", "test/1", refused=ValueError)
