"""The checksum sees every bit, name, type, shape and the text."""

from __future__ import annotations

import torch

from specformer.files.checked_tensors import checksum


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
