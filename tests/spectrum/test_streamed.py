"""Streamed eigenvectors: the resident ones' results and gradients, from memory and from files."""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path

import networkx as nx
import pytest
import torch
from tests.drawn import random
from tests.spectrum.known_graphs import SMALL, adjacency
from tests.undropped import undropped

from specformer import Spectrum, decompose
from specformer.errors import SpectrumError
from specformer.spectrum.decompose import decompose_streamed, vectors_fit

CPU = torch.device("cpu")
GRAPH = adjacency(nx.gnp_random_graph(40, 0.15, seed=8))
#: Unit roundoff of bfloat16: eight bits of significand.
ROUNDOFF = 2.0**-8


@pytest.mark.parametrize("rows", [1, 7, 40, 1000])
@pytest.mark.parametrize("k", [None, (9, 4)])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_transforms_are_the_resident_ones(rows: int, k, lead: tuple[int, ...]) -> None:
    whole = decompose(GRAPH, k=k, dtype=torch.float64)
    parts = whole.streamed(rows=rows)
    assert parts.is_streamed
    assert not whole.is_streamed
    x, c = random(*lead, 40, 2), random(*lead, whole.num_eigenpairs, 2)
    torch.testing.assert_close(parts.gft(x), whole.eigenvectors.T @ x)
    torch.testing.assert_close(parts.igft(c), whole.eigenvectors @ c)


def test_filters_and_gradients_are_the_resident_ones() -> None:
    whole = decompose(GRAPH, k=12, dtype=torch.float64)
    q, weight = whole.num_eigenpairs, random(3, 40, 2, seed=3)
    found = []
    for spectrum in (whole, whole.streamed(rows=7)):
        x, g = random(3, 40, 2).requires_grad_(), random(3, q, 2, seed=1).requires_grad_()
        out = spectrum.filter(x, g)
        (out * weight).sum().backward()
        bank = spectrum.filter_bank(x.detach(), g.detach())
        found.append((out, x.grad, g.grad, bank))
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other)
    x, g = random(40, 2).requires_grad_(), random(q).requires_grad_()
    assert torch.autograd.gradcheck(whole.streamed(rows=9).filter, (x, g))


def test_a_model_trains_the_same() -> None:
    torch.manual_seed(0)
    model = undropped(5, 8, 3, num_heads=2)
    whole = decompose(GRAPH, k=20)
    gradients = []
    for spectrum in (whole, whole.streamed(rows=11)):
        model.zero_grad()
        model(random(40, 5, dtype=torch.float32), spectrum).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [3, None])
def test_bfloat16_is_within_its_bound(rows: int | None) -> None:
    """‖Ũ g Ũᵀ x − U g Uᵀ x‖ ≤ (2 e + e²) ‖g‖∞ ‖x‖ with e = ‖Ũ − U‖ ≤ 2⁻⁸ ‖U‖_F."""
    whole = decompose(GRAPH, k=15)
    brief = whole.streamed(storage=torch.bfloat16, rows=rows)
    assert brief.eigenvectors.dtype == torch.bfloat16
    assert brief.dtype == brief.distinct.values.dtype == torch.float32
    e = ROUNDOFF * float(whole.eigenvectors.norm())
    x, g = random(40, 1, dtype=torch.float32), torch.exp(-whole.eigenvalues)
    difference = brief.filter(x, g) - whole.filter(x, g)
    assert 0 < float(difference.norm()) <= (2 * e + e**2) * float(g.max()) * float(x.norm())
    rounded = whole.eigenvectors.bfloat16().float()
    torch.testing.assert_close(brief.filter(x, g), rounded @ (g[:, None] * (rounded.T @ x)))


def test_entry_wise_bases_take_streamed_vectors() -> None:
    torch.manual_seed(0)
    model = undropped(3, 4, 2, num_heads=2, bases="ffn", epsilon=10.0)
    whole, x = decompose(GRAPH), random(40, 3, dtype=torch.float32)
    brief = model(x, whole.streamed(storage=torch.bfloat16))
    torch.testing.assert_close(brief, model(x, whole), rtol=0.05, atol=0.05)


def test_moving_makes_it_whole_again() -> None:
    whole = decompose(GRAPH, k=10)
    assert not whole.streamed(rows=3).to("cpu").is_streamed
    brief = whole.streamed(storage=torch.bfloat16)
    for moved, kept in ((brief.to("cpu"), torch.bfloat16), (brief.to(dtype=torch.float32), None)):
        assert not moved.is_streamed
        assert moved.eigenvectors.dtype == (kept or torch.float32)
        assert torch.equal(moved.eigenvectors.float(), whole.eigenvectors.bfloat16().float())
    assert "streamed from cpu in torch.bfloat16" in repr(brief)
    assert "streamed" not in repr(whole)


def test_bad_options() -> None:
    whole = decompose(SMALL["ring"])
    with pytest.raises(SpectrumError, match="rows=0 must be at least 1"):
        whole.streamed(rows=0)
    with pytest.raises(SpectrumError, match=r"storage=torch.int8: choose torch.bfloat16"):
        whole.streamed(storage=torch.int8)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", [torch.float32, torch.bfloat16])
def test_saved_as_it_is_kept(tmp_path: Path, storage: torch.dtype) -> None:
    kept = decompose(GRAPH, k=10).streamed(storage=storage)
    kept.save(tmp_path / "s")
    again = Spectrum.load(tmp_path / "s")
    assert again.eigenvectors.dtype == storage
    assert again.eigenvalues.dtype == torch.float32
    assert torch.equal(again.eigenvectors, kept.eigenvectors)
    x, g = random(40, 2, dtype=torch.float32), again.eigenvalues
    torch.testing.assert_close(again.filter(x, g), kept.filter(x, g))


def test_half_the_disk(tmp_path: Path) -> None:
    whole = decompose(GRAPH)
    whole.save(tmp_path / "whole")
    whole.streamed(storage=torch.bfloat16).save(tmp_path / "half")
    saved = (tmp_path / "whole").stat().st_size - (tmp_path / "half").stat().st_size
    assert saved == pytest.approx(2 * 40 * 40, abs=8)  # headers differ by a few characters


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/maps is Linux's")
def test_a_loaded_spectrum_is_mapped_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "mapped.safetensors"
    decompose(GRAPH).save(path)
    loaded = Spectrum.load(path)
    address = loaded.eigenvectors.data_ptr()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    spans = [line.split()[0].split("-") for line in maps if str(path) in line]
    assert any(int(low, 16) <= address < int(high, 16) for low, high in spans)


@pytest.mark.parametrize("storage", [torch.float32, torch.bfloat16])
def test_decomposed_once_then_read(tmp_path: Path, storage, monkeypatch) -> None:
    options = {"k": (6, 3), "storage": storage, "cache": tmp_path}
    first = decompose_streamed(GRAPH, **options)
    whole = decompose(GRAPH, k=(6, 3))
    assert torch.equal(first.eigenvectors, whole.eigenvectors.to(storage))
    assert first.report.solver == whole.report.solver
    module = sys.modules["specformer.spectrum.decompose"]
    monkeypatch.setattr(module, "_solve", lambda *_: pytest.fail("solved again"))
    again = decompose_streamed(GRAPH, **options)
    assert again.is_streamed
    assert torch.equal(again.eigenvectors, first.eigenvectors)
    assert again.report == first.report


def test_a_spectrum_in_the_cache_is_taken(tmp_path: Path, monkeypatch) -> None:
    whole = decompose(GRAPH, k=5, cache=tmp_path)
    module = sys.modules["specformer.spectrum.decompose"]
    monkeypatch.setattr(module, "_solve", lambda *_: pytest.fail("solved again"))
    for storage in (torch.float32, torch.bfloat16):
        found = decompose_streamed(GRAPH, k=5, storage=storage, cache=tmp_path)
        assert torch.equal(found.eigenvectors, whole.eigenvectors.to(storage))


def test_a_full_disk_does_not_cost_the_solve(tmp_path: Path, monkeypatch, caplog) -> None:
    def disk_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", disk_full)
    with caplog.at_level(logging.WARNING):
        found = decompose_streamed(GRAPH, k=5, storage=torch.bfloat16, cache=tmp_path)
    whole = decompose(GRAPH, k=5)
    assert torch.equal(found.eigenvectors, whole.eigenvectors.bfloat16())
    said = f"{tmp_path}: the spectrum is not cached (No space left on device)."
    assert set(caplog.messages) == {said}
    assert list(tmp_path.iterdir()) == []


def test_without_a_cache() -> None:
    found = decompose_streamed(GRAPH, k=5)
    assert found.is_streamed
    assert torch.equal(found.eigenvectors, decompose(GRAPH, k=5).eigenvectors)


def test_what_fits(monkeypatch) -> None:
    """Half of 8 GB are free for vectors: 1,000 of a million nodes are 4 GB in float32."""
    monkeypatch.setattr(
        sys.modules["specformer.spectrum.decompose"],
        "available_bytes",
        lambda _: 8_000_000_000,
    )
    gpu, n = torch.device("cuda"), 1_000_000
    assert vectors_fit(n, 1000, gpu)
    assert not vectors_fit(n, 1001, gpu)
    assert not vectors_fit(n, (600, 401), gpu)
    assert vectors_fit(n, (600, 401), gpu, torch.bfloat16)
    assert not vectors_fit(n, None, gpu)
    assert vectors_fit(30_000, None, gpu)
    assert vectors_fit(n, None, CPU)
