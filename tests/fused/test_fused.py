"""When fused kernels are used, and what happens where they cannot be."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from specformer import fused

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """Every test asks anew."""
    for name in ("SPECFORMER_KERNELS", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    fused._compiles.cache_clear()
    yield
    fused._compiles.cache_clear()


def probing(monkeypatch, probe):
    monkeypatch.setattr(fused, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "specformer.fused.probe", SimpleNamespace(probe=probe))


def test_tried_once(monkeypatch):
    calls = []
    probing(monkeypatch, lambda: calls.append(1))
    assert fused.runs_on(CUDA)
    assert fused.runs_on(torch.device("cuda", 0))
    assert len(calls) == 1


def test_without_a_compiler_a_sentence_says_why(monkeypatch, caplog):
    def probe():
        raise RuntimeError("Failed to find C compiler.\nPlease specify one.")

    probing(monkeypatch, probe)
    with caplog.at_level(logging.WARNING):
        assert not fused.runs_on(CUDA)
        assert not fused.runs_on(CUDA)
    (record,) = caplog.records
    assert record.getMessage().endswith("used instead: Failed to find C compiler.")


def test_only_on_the_current_gpu(monkeypatch):
    probing(monkeypatch, lambda: None)
    assert not fused.runs_on(torch.device("cuda", 1))


def test_switched_off(monkeypatch):
    probing(monkeypatch, lambda: None)
    monkeypatch.setenv("SPECFORMER_KERNELS", "0")
    assert not fused.runs_on(CUDA)


def test_without_triton(monkeypatch):
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    assert not fused.runs_on(CUDA)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_the_probe_runs():
    pytest.importorskip("triton")
    from specformer.fused.probe import probe

    probe()
