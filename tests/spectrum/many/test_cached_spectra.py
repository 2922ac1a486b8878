"""One file a data set: found by content, damaged ones noticed."""

from __future__ import annotations

import logging
import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.spectrum.many_graphs import mixed_set

from specformer.errors import SpectrumError
from specformer.graphs import GraphSet
from specformer.spectrum import ManySpectra, decompose_many
from specformer.spectrum.many.spectra import key_of_set

GRAPHS = mixed_set(15)


def the_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_found_again_and_equal(tmp_path: Path) -> None:
    plain = decompose_many(GRAPHS)
    first = decompose_many(GRAPHS, cache=tmp_path)
    written = the_file(tmp_path).stat().st_mtime_ns
    second = decompose_many(GRAPHS, cache=tmp_path)
    assert the_file(tmp_path).stat().st_mtime_ns == written
    for spectra in (first, second):
        assert torch.equal(spectra.sizes, plain.sizes)
        assert torch.equal(spectra.eigenvalues, plain.eigenvalues)
        assert torch.equal(spectra.eigenvectors, plain.eigenvectors)
    assert first.report == second.report


def test_the_name_follows_the_content_alone() -> None:
    bare = GraphSet([2, 2], [1, 1], [[0, 0], [1, 1]])
    coloured = GraphSet([2, 2], [1, 1], [[0, 0], [1, 1]], node_feat=[[1], [2], [3], [4]], y=[1, 2])
    moved = GraphSet([2, 2], [2, 0], [[0, 1], [1, 0]])
    assert key_of_set(bare, "laplacian") == key_of_set(coloured, "laplacian")
    names = {
        key_of_set(bare, "laplacian"),
        key_of_set(bare, "adjacency-with-loops"),
        key_of_set(moved, "laplacian"),
        key_of_set(GraphSet([2, 3], [1, 1], [[0, 0], [1, 1]]), "laplacian"),
    }
    assert len(names) == 4


def test_spectra_end_up_in_one_plain_safetensors_file(tmp_path: Path) -> None:
    path, whole = tmp_path / "many.safetensors", decompose_many(GRAPHS)
    whole.save(path)
    tensors = load_file(path)  # by the library itself
    for name in ("sizes", "eigenvalues", "eigenvectors"):
        assert torch.equal(tensors[name], getattr(whole, name))
        assert torch.equal(tensors[name], getattr(ManySpectra.load(path), name))


@pytest.mark.parametrize("place", [20, 400, -1, -200, 2048, 2060])
def test_an_altered_file_is_computed_anew(
    place: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = decompose_many(GRAPHS, cache=tmp_path)
    kept = plain.eigenvectors.clone()
    path = the_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.unlink()  # the arrays above still lie in the old file
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        again = decompose_many(GRAPHS, cache=tmp_path)
    assert "It is computed again" in caplog.text
    assert torch.equal(again.eigenvectors, kept)
    assert torch.equal(ManySpectra.load(path).eigenvectors, kept)


def test_cut_foreign_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.safetensors"
    with pytest.raises(SpectrumError, match="no such file of spectra"):
        ManySpectra.load(path)
    save_file({"a": torch.ones(2)}, path)
    with pytest.raises(SpectrumError, match="not a file of spectra saved by specformer"):
        ManySpectra.load(path)
    decompose_many(GRAPHS).save(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(SpectrumError, match="damaged file of spectra"):
        ManySpectra.load(path)


def test_without_room_for_the_file_spectra_stay_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = decompose_many(GRAPHS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        with caplog.at_level(logging.WARNING, "specformer"):
            found = decompose_many(GRAPHS, cache=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caplog.messages == [f"{tmp_path}: the spectra are not cached (File too large)."]
    assert torch.equal(found.eigenvectors, plain.eigenvectors)
    assert not list(tmp_path.iterdir())


def test_where_no_folder_can_be_made_spectra_stay_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that may not be written to: root, who runs tests, may write everywhere."""

    def refused(self: Path, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    plain, cache = decompose_many(GRAPHS), tmp_path / "cache"
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "specformer"):
        patched.setattr(Path, "mkdir", refused)
        found = decompose_many(GRAPHS, cache=cache)
    assert caplog.messages == [f"{cache}: the spectra are not cached (Permission denied)."]
    assert torch.equal(found.eigenvectors, plain.eigenvectors)


def test_a_cache_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(NotADirectoryError, match=str(tmp_path / "cache")):
        decompose_many(GRAPHS, cache=tmp_path / "cache")


def test_a_failed_solve_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise SpectrumError("no convergence")

    monkeypatch.setattr("specformer.spectrum.many.spectra.solved", broken)
    with pytest.raises(SpectrumError, match="no convergence"):
        decompose_many(GRAPHS, cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_of_other_graphs_or_options_is_computed_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decompose_many(GRAPHS, matrix="adjacency-with-loops", cache=tmp_path / "other")
    kept = decompose_many(GRAPHS, cache=tmp_path / "own").eigenvalues.clone()
    path = the_file(tmp_path / "own")
    path.unlink()
    path.write_bytes(the_file(tmp_path / "other").read_bytes())
    again = decompose_many(GRAPHS, cache=tmp_path / "own")
    assert "not the spectra of these graphs. It is computed again" in caplog.text
    assert torch.equal(again.eigenvalues, kept)


def test_what_is_not_a_number_is_refused_whatever_its_checksum(tmp_path: Path) -> None:
    path, good = tmp_path / "many.safetensors", decompose_many(GRAPHS)
    vectors = good.eigenvectors.clone()
    vectors[-1] = torch.nan
    replace(good, eigenvectors=vectors).save(path)
    with pytest.raises(SpectrumError, match="eigenvectors are not all finite"):
        ManySpectra.load(path)
