"""Checksums of a folder's files: every alteration shows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from specformer.files.manifest import Manifest


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
