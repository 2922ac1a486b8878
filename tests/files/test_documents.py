"""JSON and YAML from strangers: read, or refused in a few words. What was altered shows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from specformer.datasets.registry import graph_source
from specformer.datasets.signals import image_signal
from specformer.errors import GraphError
from specformer.files import write_json
from specformer.files.documents import (
    file_states,
    parse_json,
    parse_yaml,
    read_json,
    read_json_lines,
    read_yaml,
    sealed,
    unsealed,
    write_manifest,
    write_yaml,
)
from specformer.files.host_memory import free_bytes
from specformer.graphs.checks import check_room

VALUES = {"a": [1, 2.5, "x", None, True], "b": {"c": {"d": [[]]}}, "e": "2"}
#: Ten lists of ten lists of … : 390 bytes that stand for ten thousand million words.
BOMB = "\n".join(
    ["a0: &a0 [lol, lol]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
)


def test_what_is_plain_comes_back(tmp_path: Path) -> None:
    assert parse_yaml(yaml.safe_dump(VALUES)) == VALUES
    assert parse_json(json.dumps(VALUES)) == VALUES
    assert parse_json(r'["\ud83d\ude00 \\udata"]') == ["\U0001f600 \\udata"]
    shared = [1, 2]
    write_yaml(tmp_path / "y", {"b": shared, "a": shared, **VALUES})
    assert list(yaml.safe_load((tmp_path / "y").read_text())) == ["b", "a", "e"]
    assert read_yaml(tmp_path / "y") == {"b": VALUES["b"], "a": VALUES["a"], "e": "2"}
    write_yaml(tmp_path / "y", [shared, shared])  # written out twice, not by an alias
    assert read_yaml(tmp_path / "y") == [shared, shared]
    (tmp_path / "j").write_text("[1]\n{}\n")
    assert read_json_lines(tmp_path / "j") == [[1], {}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, r"aliases \(\*a0\)"),
        ("a: &a [*a]", r"aliases"),
        ("a: &b 1\nc: *b", "aliases"),
        ("[" * 100_000, "nested more than 50 deep"),
        ("[" * 60 + "]" * 60, "nested more than 50 deep"),
        ("{a: " * 3000, "nested more than 50 deep"),
        ("- " * 3000, "nested more than 50 deep"),
        ("1: 2", "a key is of type int; put it in quotes"),
        ("null: 2", "a key is of type NoneType"),
        ("a: {true: 2}", "a key is of type bool"),
        ("? [a, b]\n: 2", "not valid YAML"),
        ("a: " + "9" * 5000, "a number of 5,000 digits"),
        ("a: 0x" + "f" * 5000, "a number of 5,002 digits"),
        ("a: 1." + "9" * 5000, "a number of 5,002 digits"),
        ("a: " + ":".join(["59"] * 2000), "a number of 5,999 digits"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("a: [", "not valid YAML"),
        ("a: 2001-77-77", "month must be in"),
        ("a: \x00", "not valid YAML"),
        (r'a: "\ud800"', "incomplete characters"),
    ],
    ids=lambda text: text[:24],
)
def test_yaml_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_yaml(text)
    assert len(str(refused.value)) < 100


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested more than 50 deep"),
        ('{"a": ' * 100_000, "nested more than 50 deep"),
        ("[" * 60 + "]" * 60, "nested more than 50 deep"),
        ("9" * 5000, "digits"),
        ("{", "Expecting"),
        (r'{"a": "\ud800"}', "incomplete characters"),
    ],
    ids=lambda text: text[:12],
)
def test_json_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text)


def test_files_that_are_too_long_or_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("läuft: 1".encode("latin-1"))
    for read in (read_yaml, read_json, read_json_lines):
        with pytest.raises(ValueError, match="can't decode byte"):
            read(path)
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ValueError, match="1,048,577 bytes; at most 1,048,576 are read"):
        read_yaml(path)


def test_limits_are_raised_and_lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep, path = "[" * 60 + "]" * 60, tmp_path / "noise.png"
    Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64)).save(path)
    monkeypatch.setenv("SPECFORMER_LIMITS", "2")
    assert parse_json(deep) == parse_yaml(deep)
    check_room(nodes=int(1.5 * free_bytes() / 100))
    monkeypatch.setenv("SPECFORMER_LIMITS", "1e-6")
    with pytest.raises(GraphError, match="exceeds limit of 178 pixels"):
        image_signal(path)
    with pytest.raises(GraphError, match="a grid may have at most 10 nodes"):
        graph_source("4x4")
    monkeypatch.setenv("SPECFORMER_LIMITS", "much")
    with pytest.raises(OSError, match="SPECFORMER_LIMITS=much: give a number"):
        parse_json("[]")


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
SINGLE = st.none() | st.booleans() | NUMBERS | WORDS
DOCUMENTS = st.dictionaries(
    WORDS.filter(lambda key: key != "checksum"),
    st.recursive(SINGLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner)),
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
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"first")
    write_manifest(tmp_path / "sums.json", {"in/a": None, "b": b"second"})
    (tmp_path / "b").write_bytes(b"second")
    return tmp_path / "sums.json"


def test_sums_are_those_of_sha256(manifest: Path) -> None:
    expected = {"in/a": b"first", "b": b"second"}
    assert json.loads(manifest.read_text())["sha256"] == {
        name: hashlib.sha256(content).hexdigest() for name, content in expected.items()
    }
    assert file_states(manifest) == {"in/a": "intact", "b": "intact"}


def test_what_was_altered_or_is_gone_shows(manifest: Path) -> None:
    (manifest.parent / "b").write_bytes(b"secone")
    assert file_states(manifest, "b") == {"b": "altered"}
    assert file_states(manifest, "in/a") == {"in/a": "intact"}
    assert file_states(manifest, "of no concern") == {}
    (manifest.parent / "in" / "a").unlink()
    assert file_states(manifest) == {"in/a": "missing", "b": "altered"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sha256": [1]}', '{"sha256": {"a": 1}}'])
def test_a_damaged_manifest_is_an_error(manifest: Path, text: str) -> None:
    manifest.write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011
        file_states(manifest)


def test_without_one_nothing_is_said(tmp_path: Path) -> None:
    assert file_states(tmp_path / "absent") == {}
