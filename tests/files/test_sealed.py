"""Documents with a checksum: whatever format they go through, what is altered is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specformer.files import write_json
from specformer.files.documents import read_json, read_yaml, write_yaml
from specformer.files.sealed import Manifest, sealed, unsealed

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


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"first")
    manifest = Manifest(tmp_path / "sums.json")
    manifest.write({"in/a": None, "b": b"second"})
    (tmp_path / "b").write_bytes(b"second")
    return manifest


def test_sums_are_those_of_sha256(manifest: Manifest) -> None:
    expected = {"in/a": b"first", "b": b"second"}
    assert json.loads(manifest.path.read_text())["sha256"] == {
        name: hashlib.sha256(content).hexdigest() for name, content in expected.items()
    }
    assert manifest.states() == {"in/a": "intact", "b": "intact"}


def test_what_was_altered_or_is_gone_shows(manifest: Manifest) -> None:
    folder = manifest.path.parent
    (folder / "b").write_bytes(b"secone")
    assert manifest.is_altered("b")
    assert not manifest.is_altered("in/a")
    assert not manifest.is_altered("of no concern")
    (folder / "in" / "a").unlink()
    assert manifest.states() == {"in/a": "missing", "b": "altered"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sha256": [1]}', '{"sha256": {"a": 1}}'])
def test_a_damaged_manifest_is_an_error(manifest: Manifest, text: str) -> None:
    manifest.path.write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011
        manifest.states()


def test_without_one_nothing_is_said(tmp_path: Path) -> None:
    assert Manifest(tmp_path / "absent").sums() == {}
    assert not Manifest(tmp_path / "absent").is_altered("a")
