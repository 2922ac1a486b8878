"""A spectrum as a folder of row shards: any rows of it, checked, whatever the number of shards."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from specformer import Spectrum, decompose
from specformer.datasets import csbm
from specformer.errors import SpectrumError
from specformer.spectrum import shards
from specformer.spectrum.cache import content
from specformer.spectrum.decompose import decompose_rows

GRAPH = csbm(0.5, num_nodes=42, num_features=3, seed=2)
WHOLE = decompose(GRAPH, k=7)


@pytest.fixture(params=[2**28, 7 * 4 * 10])
def folder(request, tmp_path: Path, monkeypatch) -> Path:
    """One shard, or shards of ten rows."""
    monkeypatch.setattr(shards, "SHARD", request.param)
    WHOLE.save(f"{tmp_path}/made/")
    return tmp_path / "made"


def test_a_folder_is_the_spectrum(folder: Path) -> None:
    again = Spectrum.load(folder)
    assert torch.equal(again.eigenvalues, WHOLE.eigenvalues)
    assert torch.equal(again.eigenvectors, WHOLE.eigenvectors)
    assert again.report == WHOLE.report
    assert len(list(folder.glob("rows-*"))) in (1, 5)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 42])
def test_rows_of_any_number_of_ranks(folder: Path, size: int) -> None:
    cuts = [42 * rank // size for rank in range(size + 1)]
    parts = [Spectrum.load(folder, slice(*pair)) for pair in pairwise(cuts)]
    assert torch.equal(torch.cat([part.eigenvectors for part in parts]), WHOLE.eigenvectors)
    assert all(torch.equal(part.eigenvalues, WHOLE.eigenvalues) for part in parts)


@pytest.mark.parametrize("k", [None, 10])
@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("nodes", [slice(0, 10), slice(0, 0), slice(0, 42)])
def test_rows_are_as_complete_as_the_whole(
    tmp_path: Path, k: int | None, place: str, nodes: slice
) -> None:
    made = decompose(GRAPH, k=k, nodes=nodes, **{place: tmp_path / "made"})
    (path,) = [tmp_path / "made"] if place == "out" else (tmp_path / "made").iterdir()
    for part in (made, Spectrum.load(path, nodes), made.to(torch.float64)):
        assert part.num_nodes == nodes.stop
        assert part.is_complete == (k is None)
        assert ("(complete)" in repr(part)) == (k is None)


def test_only_the_shards_of_its_rows_are_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shards, "SHARD", 7 * 4 * 10)
    WHOLE.save(f"{tmp_path}/made/")
    (tmp_path / "made" / "rows-00003.safetensors").unlink()
    part = Spectrum.load(tmp_path / "made", slice(5, 30))
    assert torch.equal(part.eigenvectors, WHOLE.eigenvectors[5:30])
    with pytest.raises(SpectrumError, match="rows-00003"):
        Spectrum.load(tmp_path / "made", slice(5, 31))


def test_what_was_altered_is_refused(folder: Path, tmp_path: Path) -> None:
    def refused(change, match: str) -> None:
        shutil.copytree(folder, tmp_path / "copy")
        change(tmp_path / "copy")
        with pytest.raises(SpectrumError, match=match):
            Spectrum.load(tmp_path / "copy")
        shutil.rmtree(tmp_path / "copy")

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    def edit(path: Path) -> None:
        index = json.loads((path / shards.INDEX).read_text())
        (path / shards.INDEX).write_text(json.dumps({**index, "num_nodes": 40}))

    def exchange(path: Path) -> None:
        decompose(csbm(0.1, num_nodes=42, num_features=3, seed=3), k=7, out=path / "other")
        shutil.copy(path / "other" / "rows-00000.safetensors", path)

    refused(lambda path: flip(path / "rows-00000.safetensors"), "rows-00000.*checksum differs")
    refused(lambda path: flip(path / "eigenvalues.safetensors"), "eigenvalues.*checksum differs")
    refused(edit, "spectrum.json: damaged")
    refused(exchange, "belongs to another spectrum")
    refused(lambda path: (path / shards.INDEX).unlink(), "it has no spectrum.json")


@pytest.mark.parametrize("nodes", [slice(3, 50), slice(-2, 5), slice(0, 8, 2)])
def test_rows_that_are_not_there(folder: Path, nodes: slice) -> None:
    with pytest.raises(SpectrumError, match=r"part of slice\(0, 42\)"):
        Spectrum.load(folder, nodes)


def test_processes_share_a_cache(tmp_path: Path) -> None:
    first = decompose_rows(GRAPH, slice(0, 20), k=7, cache=tmp_path)
    second = decompose_rows(GRAPH, slice(20, 42), k=7, cache=tmp_path, solve=False)
    both = torch.cat([first.eigenvectors, second.eigenvectors])
    assert torch.equal(both, WHOLE.eigenvectors)
    assert [path.suffix for path in tmp_path.iterdir()] == [".rows"]
    # One process takes the shards, and several what one has left.
    assert torch.equal(decompose(GRAPH, k=7, cache=tmp_path).eigenvectors, both)
    assert [path.suffix for path in tmp_path.iterdir()] == [".rows"]
    decompose(GRAPH, k=5, cache=tmp_path)
    decompose_rows(GRAPH, slice(20, 42), k=5, cache=tmp_path, solve=False)
    with pytest.raises(SpectrumError, match="--cache"):
        decompose_rows(GRAPH, slice(20, 42), k=6, cache=tmp_path, solve=False)
    # A process that has only its rows of the graph knows the content of all of it.
    rows = SimpleNamespace(adjacency=GRAPH.adjacency[20:42])
    whole = content(GRAPH.adjacency)
    found = decompose_rows(rows, slice(20, 42), k=7, cache=tmp_path, content=whole)
    assert torch.equal(found.eigenvectors, second.eigenvectors)
    with pytest.raises(SpectrumError, match="in parts; decompose it first"):
        decompose_rows(rows, slice(20, 42), k=7, cache=tmp_path, content="another graph's")


@pytest.mark.parametrize("nodes", [slice(0, 42, 2), slice(-2, None), slice(3, 100), [0, 1], 2])
def test_nodes_that_are_no_range_are_refused_and_cost_no_cached_file(
    tmp_path: Path, nodes: object
) -> None:
    decompose(GRAPH, k=7, cache=tmp_path)
    files = sorted(tmp_path.iterdir())
    with pytest.raises(SpectrumError, match=r"expected a part of slice\(0, 42\)"):
        decompose(GRAPH, k=7, cache=tmp_path, nodes=nodes)  # type: ignore[arg-type]
    assert sorted(tmp_path.iterdir()) == files


def test_an_empty_name_of_a_folder_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpectrumError, match=r"out='' names no folder; leave it out, or pass '\.'"):
        decompose(GRAPH, k=7, out="")
    assert not list(tmp_path.iterdir())
    decompose(GRAPH, k=7, out=".")
    assert torch.equal(Spectrum.load(".").eigenvectors, WHOLE.eigenvectors)
