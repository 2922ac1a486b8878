"""Learning one filter: the models that come back are those the numbers are of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from tests.tasks.jobs import train_on

from specformer import decompose
from specformer.datasets import image_signal, target_filter
from specformer.errors import ConfigError, DataNotFoundError, GraphError
from specformer.tasks.job import source_kind
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")


@pytest.fixture
def image(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "mine.png")
    return str(tmp_path / "mine.png")


def train(source, **options):
    usual = {
        "filter": "comb",
        "model": "specformer",
        "recipe": "projected",
        "assignments": ["schedule.epochs=5"],
    }
    return train_on(source, device=CPU, progress=Silent(), **{**usual, **options})


@pytest.mark.parametrize("recipe", ["paper", "projected"])
def test_an_image_of_ones_own(image, recipe):
    result, study = train(image, recipe=recipe, filter="high-pass")
    assert result["dataset"] == "mine"
    assert result["runs"] == 1
    (model,) = study.models
    signals = image_signal(image)
    spectrum = decompose(signals.graph)
    x = torch.as_tensor(signals.signals[0])
    wanted = spectrum.filter(x, target_filter("high-pass")(spectrum.eigenvalues))
    with torch.no_grad():
        found = model(x.unsqueeze(-1), spectrum).squeeze(-1)
    sse = (found - wanted).square().sum().item()
    assert result["test"]["values"] == pytest.approx([sse], rel=1e-3)
    assert result["parameters"] == sum(p.numel() for p in model.parameters())


def test_a_baseline(image):
    result, study = train(image, model="gprgnn", recipe="paper")
    assert result["model"] == "gprgnn"
    assert study.models == []
    assert np.isfinite(result["test"]["mean"])


def test_a_training_that_diverges_says_so(image, caplog):
    train(image, assignments=["schedule.epochs=5", "schedule.learning_rate=1e30"])
    (said,) = caplog.messages
    assert "run 1 of 1 diverged in epoch 2, first in " in said
    assert said.endswith("; the best model before is kept.")


def test_photographs():
    result, study = train("photographs", runs=2)
    assert result["dataset"] == "photographs"
    assert len(result["test"]["values"]) == len(study.models) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "resnet"}, "unknown model 'resnet'"),
        ({"filter": "all-pass"}, "unknown filter 'all-pass'"),
        ({"recipe": "best"}, "unknown recipe 'best'"),
        ({"assignments": ["modle.hidden_channels=4"]}, "did you mean 'model'"),
        ({"assignments": ["model.hidden_channels=7"]}, "hidden_channels=7 must be an even"),
        ({"runs": 2}, "2 images asked for"),
    ],
)
def test_what_is_wrong_is_said(options, message, image):
    with pytest.raises(ConfigError, match=message):
        train(image, **options)


def test_a_missing_image():
    with pytest.raises(GraphError, match="no such image"):
        train("nowhere.png")


def test_what_names_signals():
    for source in ("photographs", "grid-images", "a/b.png", "X.JPG", "y.tiff"):
        assert source_kind(source) == "filters"
    assert source_kind("cora") == "nodes"
    for source in ("folder", "graph.npz", "png"):
        with pytest.raises(DataNotFoundError):
            source_kind(source)
