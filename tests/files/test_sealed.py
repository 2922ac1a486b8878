"""Documents with a checksum: whatever format they go through, what is altered is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specformer.files import write_json
from specformer.files.documents import read_json, read_yaml, write_yaml
from specformer.files.sealed import sealed, unsealed

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
VALUES = st.none() | st.booleans() | NUMBERS | WORDS
DOCUMENTS = st.dictionaries(
    WORDS.filter(lambda key: key != "checksum"),
    st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner)),
    max_size=4,
)


@given(DOCUMENTS)
def test_a_document_comes_back_through_json_and_yaml(tmp_path_factory, document):
    folder = tmp_path_factory.mktemp("documents")
    write_json(folder / "a.json", sealed(document))
    assert unsealed(read_json(folder / "a.json")) == document
    write_yaml(folder / "a.yaml", sealed(document))
    assert unsealed(read_yaml(folder / "a.yaml")) == document


def test_every_flipped_bit_is_refused_or_changes_nothing():
    document = {"mean": 0.25, "rows": [{"name": "a", "runs": 3}, None, True], "ü": "x"}
    text = json.dumps(sealed(document)).encode()
    refused = 0
    for place in range(8 * len(text)):
        altered = bytearray(text)
        altered[place // 8] ^= 1 << place % 8
        try:
            found = unsealed(json.loads(altered.decode()))
        except ValueError:
            refused += 1
        else:
            found = {key: found[key] for key in document}  # beside a key that was "checksum"
            assert found == document
    assert refused > 7 * len(text)


def test_order_numbers_as_keys_and_tuples_do_not_matter():
    written = json.loads(json.dumps(sealed({"by": {10: 1, 9: (2, 3)}, "a": 1}), sort_keys=True))
    assert unsealed(written) == {"a": 1, "by": {"10": 1, "9": [2, 3]}}


@pytest.mark.parametrize("value", [{"mean": 1}, [1], None, "text"])
def test_what_has_no_checksum_is_taken_as_it_is(value):
    assert unsealed(value) == value
