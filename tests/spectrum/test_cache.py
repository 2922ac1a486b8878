"""The cache: found by content, rebuilt when damaged, never half written."""

from __future__ import annotations

import errno
import importlib
import logging
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.known_graphs import SMALL

from specformer import Spectrum, decompose
from specformer.errors import SpectrumError
from specformer.spectrum import cache

GRID = SMALL["grid"]
module = importlib.import_module("specformer.spectrum.decompose")


@pytest.fixture
def solves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a solve."""
    calls: list[int] = []
    solve = module._solve

    def counting(*arguments: Any) -> Spectrum:
        calls.append(1)
        return solve(*arguments)

    monkeypatch.setattr(module, "_solve", counting)
    return calls


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_a_second_call_is_a_hit(tmp_path: Path, solves: list[int]) -> None:
    first = decompose(GRID, cache=tmp_path / "spectra")
    again = decompose(GRID, cache=str(tmp_path / "spectra"))
    assert len(solves) == 1
    assert torch.equal(first.eigenvalues, again.eigenvalues)
    assert torch.equal(first.eigenvectors, again.eigenvectors)
    assert again.report == first.report
    assert len(files(tmp_path / "spectra")) == 1


@pytest.mark.parametrize("options", [{}, {"k": 9}, {"k": (4, 3), "solver": "lanczos"}], ids=str)
def test_solved_or_read_it_rounds_alike(tmp_path: Path, options: dict[str, Any]) -> None:
    """To the bit: a training must not depend on where its spectrum came from."""
    graph = nx.random_regular_graph(4, 90, seed=1)
    solved = decompose(graph, cache=tmp_path, **options)
    read = decompose(graph, cache=tmp_path, **options)
    assert solved.eigenvectors.stride() == read.eigenvectors.stride()
    assert read.eigenvectors.data_ptr() % 64 == 0  # else MKL may round in another way
    generator = torch.Generator().manual_seed(0)
    for columns in (1, 2, 40):
        x = torch.randn(90, columns, generator=generator)
        assert torch.equal(solved.gft(x), read.gft(x))
        assert torch.equal(solved.igft(solved.gft(x)), read.igft(read.gft(x)))


def test_the_same_graph_from_another_source_is_a_hit(tmp_path: Path, solves: list[int]) -> None:
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    decompose(edges, cache=tmp_path)
    decompose(edges.flip(0), cache=tmp_path)
    decompose(sp.coo_matrix(np.ones((3, 3)) - np.eye(3)), cache=tmp_path)
    decompose(edges, k=3, cache=tmp_path)  # as many as there are: the same request
    assert len(solves) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"k": 3},
        {"k": (0, 3)},
        {"k": 3, "at_cut": "exclude"},
        {"isolated": "zero"},
        {"dtype": torch.float64},
        {"solver": "dense"},
    ],
)
def test_other_options_miss(tmp_path: Path, solves: list[int], options: dict[str, Any]) -> None:
    decompose(GRID, cache=tmp_path)
    decompose(GRID, k=3, cache=tmp_path) if options != {"k": 3} else None
    before = len(solves)
    spectrum = decompose(GRID, cache=tmp_path, **options)
    assert len(solves) == before + 1
    assert spectrum.dtype == options.get("dtype", torch.float32)


def test_auto_takes_what_a_named_solver_left(tmp_path: Path, solves: list[int]) -> None:
    wheel = nx.wheel_graph(80)
    left = decompose(wheel, k=5, solver="lanczos", cache=tmp_path)
    taken = decompose(wheel, k=5, cache=tmp_path)
    assert len(solves) == len(files(tmp_path)) == 1
    assert taken.report == left.report
    assert torch.equal(taken.eigenvectors, left.eigenvectors)
    second = decompose(wheel, k=5, solver="chebyshev", cache=tmp_path)
    assert len(solves) == 2  # a second opinion is asked for
    assert torch.allclose(second.eigenvalues, taken.eigenvalues, atol=1e-6)


def test_other_graphs_miss(tmp_path: Path, solves: list[int]) -> None:
    decompose([[0], [1]], cache=tmp_path)
    decompose([[0], [1]], num_nodes=3, cache=tmp_path)
    decompose([[0], [1]], edge_weight=[2.0], cache=tmp_path)
    decompose([[0, 1], [1, 1]], cache=tmp_path)
    assert len(solves) == len(files(tmp_path)) == 4


def test_a_damaged_file_that_cannot_be_removed_does_not_cost_the_solve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = decompose(GRID, cache=tmp_path)
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:100])

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "unlink", refused)
    monkeypatch.setattr(Spectrum, "save", refused)
    assert torch.equal(decompose(GRID, cache=tmp_path).eigenvectors, first.eigenvectors)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_a_damaged_file_is_rebuilt(
    tmp_path: Path, solves: list[int], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    first = decompose(GRID, cache=tmp_path)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    flipped = whole[:-3] + bytes([whole[-3] ^ 64]) + whole[-2:]
    contents = {"cut": whole[:-5], "flip": flipped, "empty": b"", "foreign": b"{}" * 40}
    path.write_bytes(contents[damage])
    with caplog.at_level(logging.WARNING, "specformer"):
        again = decompose(GRID, cache=tmp_path)
    assert len(solves) == 2
    assert "It is computed again" in caplog.text
    assert torch.equal(first.eigenvectors, again.eigenvectors)
    assert torch.equal(Spectrum.load(path).eigenvectors, first.eigenvectors)


def test_a_full_disk_leaves_nothing_and_does_not_cost_the_solve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def disk_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "replace", disk_full)
        assert torch.equal(decompose(GRID, cache=tmp_path).eigenvalues, decompose(GRID).eigenvalues)
    assert caplog.messages == [f"{tmp_path}: the spectrum is not cached (No space left on device)."]
    assert files(tmp_path) == []
    assert decompose(GRID, cache=tmp_path).is_complete
    assert len(files(tmp_path)) == 1


_HANGS_WHILE_WRITING = """
import sys, time
from pathlib import Path
import specformer.files.checked_tensors as tensors
from specformer import decompose

def half_written(state, path, header):
    Path(path).write_bytes(b"half a file")
    print("writing", flush=True)
    time.sleep(60)

tensors._save = half_written
decompose([[0, 1], [1, 2]], cache=sys.argv[1])
"""


def test_killed_while_writing_leaves_no_half_file(tmp_path: Path, solves: list[int]) -> None:
    command = [sys.executable, "-c", _HANGS_WHILE_WRITING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
        finally:
            process.send_signal(signal.SIGKILL)
    assert not list(tmp_path.glob("*.safetensors"))
    spectrum = decompose([[0, 1], [1, 2]], cache=tmp_path)
    assert len(solves) == 1
    assert spectrum.eigenvalues.tolist() == [0.0, 1.0, 2.0]
    (path,) = tmp_path.glob("*.safetensors")
    assert torch.equal(Spectrum.load(path).eigenvalues, spectrum.eigenvalues)


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_is_refused_before_the_solve(
    tmp_path: Path, solves: list[int], place: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file"):
        decompose(GRID, cache=tmp_path / place)
    assert solves == []


def test_a_hit_needs_no_laplacian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decompose(GRID, cache=tmp_path)
    monkeypatch.setattr(module, "laplacian_of", None)
    assert decompose(GRID, cache=tmp_path).num_nodes == 16


def test_key_ignores_how_the_matrix_is_stored() -> None:
    wide = sp.csr_array(
        (GRID.data.astype(np.float32), GRID.indices.astype(np.int64), GRID.indptr.astype(np.int64))
    )
    assert cache.content(GRID) == cache.content(wide)
    assert len(cache.key(cache.content(GRID), {})) == 40


def test_fetch_of_nothing(tmp_path: Path) -> None:
    assert cache.fetch(tmp_path, ["absent"], "graph") is None
    path = cache.file_of(tmp_path / "deep" / "er", "name")
    assert cache.keep(path, decompose(GRID).save)
    assert files(path.parent) == [path]


def test_a_file_under_the_name_of_another_graph_is_computed_anew(
    tmp_path: Path, solves: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    ring, path = SMALL["ring"], SMALL["path"]
    for place, graph in (("a", ring), ("b", path), ("c", SMALL["star"])):
        decompose(graph, cache=tmp_path / place)
    (of_ring,) = files(tmp_path / "a")
    for place in ("b", "c"):  # with another number of nodes, and with the same
        of_ring.write_bytes(files(tmp_path / place)[0].read_bytes())
        before = len(solves)
        found = decompose(ring, cache=tmp_path / "a")
        assert len(solves) == before + 1
        assert torch.equal(found.eigenvalues, decompose(ring).eigenvalues)
    assert "not the spectrum of this graph. It is computed again" in caplog.text


@pytest.mark.parametrize("name", ["eigenvalues", "eigenvectors"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused_whatever_its_checksum(
    name: str, bad: float, tmp_path: Path, solves: list[int]
) -> None:
    good = decompose(GRID, cache=tmp_path)
    (path,) = files(tmp_path)
    broken = getattr(good, name).clone(memory_format=torch.contiguous_format)
    broken.view(-1)[-1] = bad
    replace(good, **{name: broken}).save(path)
    with pytest.raises(SpectrumError, match=f"{name} are not all finite"):
        Spectrum.load(path)
    again = decompose(GRID, cache=tmp_path)
    assert len(solves) == 2
    assert torch.equal(again.eigenvectors, good.eigenvectors)


@pytest.mark.parametrize("linked", [True, False])
def test_shards_in_the_cache_stay_when_their_folder_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, linked: bool
) -> None:
    if not linked:

        def refused(link: Path, target: Path) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(target), None, str(link))

        monkeypatch.setattr(Path, "hardlink_to", refused)
    graph = sp.block_diag([GRID, sp.csr_array((4, 4))], format="csr")  # four isolated nodes
    one, zero = (decompose(graph, k=6, isolated=isolated) for isolated in ("one", "zero"))
    out = tmp_path / "out"
    one.save(f"{out}/")
    cache.link_shards(cache.rows_folder(tmp_path, "name"), out)
    zero.save(f"{out}/")
    found = cache.fetch(tmp_path, ["name"], one.report.graph)
    assert found is not None
    laplacian = sp.csgraph.laplacian(sp.csr_array(GRID), normed=True).toarray()
    exact = np.sort(np.append(np.linalg.eigvalsh(laplacian), np.ones(4)))
    np.testing.assert_allclose(found.eigenvalues, exact[: found.num_eigenpairs], atol=1e-6)
