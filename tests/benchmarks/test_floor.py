"""The floor: counts by hand on a small case, and bounds that any machine keeps."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.undropped import undropped

from benchmarks.floor import EpochWork, Peaks, graph_work, measure_peaks, node_work
from specformer import GraphSpecformer, decompose
from specformer.graphs import Graph

#: A star of four: eigenvalues 0, 1, 1, 2, so three are distinct.
STAR = Graph(
    sp.csr_array(np.array([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=float)),
    x=sp.csr_array(np.eye(4, 10, dtype=np.float32)),
    y=np.array([0, 1, 0, 1]),
)
SPECTRUM = decompose(STAR)


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_node_work_with_dropout_between_the_convolutions() -> None:
    model = undropped(10, 8, 2, num_layers=2, num_heads=4, propagation_dropout=0.5)
    work = node_work(model, STAR, SPECTRUM)
    # U, 16 numbers: twice forward and twice backward in each of two layers, twice to evaluate.
    # Four nonzero features with their indices, three times. Adam: seven numbers a parameter.
    assert work.moved == 4 * (10 * 16 + 3 * 2 * 4 + 7 * parameters(model))
    # Columns of the products with U: 2, 4·2, 4·2 and 2 in each layer, then 2 and 2.
    assert work.products == 2 * 16 * (2 * (2 + 8 + 8 + 2) + 4) + 3 * 2 * 4 * 8
    assert work.attention == 16 * 3 * 3 * 8


def test_linear_convolutions_count_as_one() -> None:
    counts = [
        node_work(undropped(10, 8, 2, num_layers=layers), STAR, SPECTRUM).products
        for layers in (1, 3)
    ]
    assert counts[0] == counts[1] == 2 * 16 * (4 * 2 + 2 * 2) + 3 * 2 * 4 * 8
    bent = undropped(10, 8, 2, num_layers=3, space="hidden", activation="relu")
    assert node_work(bent, STAR, SPECTRUM).products == 2 * 16 * 8 * 18 + 3 * 2 * 4 * 8


def test_graph_work() -> None:
    model = GraphSpecformer([5], [3], 8, 1, num_layers=2, num_heads=4)
    work = graph_work(model, np.array([2, 3]))
    assert work.moved == 4 * 13 * 8 * (3 + 4) + 28 * parameters(model)
    network, convolution = 2 * 13 * (4 + 1 + 8) * 8, 6 * 5 * 8 * 8
    assert work.products == 3 * (2 * 4 * 35 + network + 2 * convolution)
    assert work.attention == 12 * 13 * 8


def test_the_slower_of_memory_and_arithmetic() -> None:
    peaks = Peaks(bandwidth=1e6, float32=1e6, tf32=2e6, bfloat16=4e6)
    assert EpochWork(5e3, 1e3, 1e3).floor_ms(peaks, "highest") == 5.0
    work = EpochWork(0.0, 8e3, 8e3)
    floors = [work.floor_ms(peaks, level) for level in ("highest", "high", "medium", "bf16")]
    assert floors == [16.0, 8.0, 6.0, 4.0]


def test_peaks_of_this_machine() -> None:
    peaks = measure_peaks(torch.device("cpu"))
    assert peaks.bandwidth > 1e7
    assert peaks.float32 == peaks.tf32 == peaks.bfloat16 > 1e7


@pytest.mark.parametrize("complete", [True, False])
def test_a_truncated_spectrum_needs_less(complete: bool) -> None:
    model = undropped(10, 8, 2)
    spectrum = SPECTRUM if complete else decompose(STAR, k=1)
    work = node_work(model, STAR, spectrum)
    assert work.attention == 16 * 8 * (9 if complete else 1)
