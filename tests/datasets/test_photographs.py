"""The photographs inside scikit-image: always there, always the same."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from skimage import data

from specformer.datasets import photographs


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_shape_range_and_titles_without_network(no_network):
    found = photographs(size=20, count=6)
    assert found.signals.shape == (6, 400)
    assert found.signals.dtype == np.float32
    assert found.signals.min() >= 0
    assert found.signals.max() <= 1
    assert (found.signals.std(axis=1) > 0.01).all()
    assert found.titles == ("camera", "chelsea", "coffee", "astronaut", "rocket", "moon")
    assert found.graph.num_nodes == 400
    assert found.shape == (20, 20)
    assert found.mask.all()


def test_the_same_every_time():
    np.testing.assert_array_equal(photographs(16, 2).signals, photographs(16, 2).signals)


def test_a_photograph_is_the_mean_of_its_blocks():
    # 512 = 8 · 64: shrinking smooths first, which is close to a mean over each block.
    blocks = (data.camera() / 255).reshape(8, 64, 8, 64).mean(axis=(1, 3))
    found = photographs(size=8, count=1).signals[0].reshape(8, 8)
    assert np.corrcoef(found.ravel(), blocks.ravel())[0, 1] > 0.95
    assert abs(found.mean() - blocks.mean()) < 0.02
