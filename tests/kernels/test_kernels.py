"""When fused kernels are used, and what happens where they cannot be."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from specformer import kernels

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """Every test asks anew."""
    for name in ("SPECFORMER_KERNELS", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    kernels._compiles.cache_clear()
    yield
    kernels._compiles.cache_clear()


def probing(monkeypatch, probe):
    monkeypatch.setattr(kernels, "find_spec", lambda name: name)
    monkeypatch.setitem(
        sys.modules, "specformer.kernels.triton.language", SimpleNamespace(probe=probe)
    )


def test_tried_once(monkeypatch):
    calls = []
    probing(monkeypatch, lambda: calls.append(1))
    assert kernels.runs_on(CUDA, "layer_norm")
    assert kernels.runs_on(torch.device("cuda", 0), "layer_norm")
    assert len(calls) == 1


def test_without_a_compiler_a_sentence_says_why(monkeypatch, caplog):
    def probe():
        raise RuntimeError("Failed to find C compiler.\nPlease specify one.")

    probing(monkeypatch, probe)
    with caplog.at_level(logging.WARNING):
        assert not kernels.runs_on(CUDA, "layer_norm")
        assert not kernels.runs_on(CUDA, "layer_norm")
    (record,) = caplog.records
    assert record.getMessage().endswith("used instead: Failed to find C compiler.")


def test_only_on_the_current_gpu(monkeypatch):
    probing(monkeypatch, lambda: None)
    assert not kernels.runs_on(torch.device("cuda", 1), "layer_norm")


def test_switched_off(monkeypatch):
    probing(monkeypatch, lambda: None)
    monkeypatch.setenv("SPECFORMER_KERNELS", "0")
    assert not kernels.runs_on(CUDA, "layer_norm")


def test_one_switched_off(monkeypatch):
    probing(monkeypatch, lambda: None)
    monkeypatch.setattr(kernels, "OFF", {"layer_norm"})
    assert not kernels.runs_on(CUDA, "layer_norm")
    assert kernels.runs_on(CUDA, "pair_sum")


def test_without_triton(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert not kernels.runs_on(CUDA, "layer_norm")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_the_probe_runs():
    pytest.importorskip("triton")
    from specformer.kernels.triton.language import probe

    probe()
