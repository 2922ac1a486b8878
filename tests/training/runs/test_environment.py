"""What a result was measured with."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
import torch

import specformer
from specformer.errors import ConfigError
from specformer.training.runs.environment import choose_device, commit, environment


def test_environment_is_json_and_true():
    found = environment(torch.device("cpu"))
    assert json.loads(json.dumps(found)) == found
    assert found["specformer"] == specformer.__version__
    assert found["packages"]["torch"] == metadata.version("torch")
    assert found["device"]
    assert found["threads"] == torch.get_num_threads()


def test_commit_may_be_stated(monkeypatch):
    monkeypatch.setenv("SPECFORMER_COMMIT", "abc123")
    assert commit() == "abc123"


def test_devices():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto").type == expected
    assert choose_device("cpu").type == "cpu"
    for name in ("tpu", "gpu", "", "cuda:99x"):
        with pytest.raises(ConfigError, match="choose auto, cpu or cuda"):
            choose_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_cuda_is_not_replaced_in_silence():
    with pytest.raises(ConfigError, match="sees no CUDA device"):
        choose_device("cuda")
