r"""The least time of an epoch: bytes over bandwidth, operations over peak, both measured here.

.. math::
    t \ge \max\Big(\frac{\text{bytes}}{\text{bandwidth}},\;
    \frac{\text{product operations}}{\text{peak}} +
    \frac{\text{attention operations}}{\text{its peak}}\Big)

:func:`node_work` and :func:`graph_work` count what an epoch must move and compute. They count the
algorithm in float32, whatever the implementation. Exponentials, normalisations, random numbers and
kernel launches are not counted, so no implementation reaches this time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from benchmarks.measure import seconds
from specformer.graphs import Graph
from specformer.nn import GraphSpecformer, Specformer
from specformer.spectrum import Spectrum
from specformer.training.evaluation.graphs import GraphPrecision
from specformer.training.runs.environment import Precision, matmul_precision

_FLOAT = 4
#: Bytes that Adam moves per parameter: it reads the parameter, its gradient and two moments, and
#: writes all but the gradient.
_ADAM = 7 * _FLOAT


@dataclass(frozen=True)
class Peaks:
    """Measured bytes and operations per second of this machine."""

    bandwidth: float
    float32: float
    tf32: float
    bfloat16: float


@dataclass(frozen=True)
class EpochWork:
    """Bytes to move, operations of matrix products, and operations of attention.

    Example:
        >>> peaks = Peaks(bandwidth=2e9, float32=1e9, tf32=2e9, bfloat16=4e9)
        >>> work = EpochWork(moved=4e6, products=1e6, attention=4e6)
        >>> work.floor_ms(peaks, "highest"), work.floor_ms(peaks, "medium")
        (5.0, 2.0)
    """

    moved: float
    products: float
    attention: float

    def floor_ms(self, peaks: Peaks, precision: Precision | GraphPrecision) -> float:
        """The floor in milliseconds, at a precision that recipes name."""
        peak = {"highest": peaks.float32, "bf16": peaks.bfloat16}.get(precision, peaks.tf32)
        attention_peak = peaks.bfloat16 if precision == "medium" else peak
        compute = self.products / peak + self.attention / attention_peak
        return 1e3 * max(self.moved / peaks.bandwidth, compute)


def measure_peaks(device: torch.device) -> Peaks:
    """Copy a large tensor and multiply large matrices.

    A CPU always works in float32, so its three peaks are equal.
    """
    gpu = device.type == "cuda"
    numbers = torch.ones(2**28 if gpu else 2**25, device=device)
    target = torch.empty_like(numbers)
    copied = 2 * numbers.nbytes / _best(lambda: target.copy_(numbers), device)
    size = 8192 if gpu else 1024
    matrix = torch.randn(
        size, size, device=device
    )  # random: with zeros and ones a GPU needs less power and is faster

    def peak(matrix: Tensor, level: Precision) -> float:
        with matmul_precision(level, device):
            return 2 * size**3 / _best(lambda: matrix @ matrix, device)

    exact = peak(matrix, "highest")
    if not gpu:
        return Peaks(copied, exact, exact, exact)
    return Peaks(copied, exact, peak(matrix, "high"), peak(matrix.bfloat16(), "high"))


def _best(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call: the smallest of three means over five calls."""

    def repeated(times: int) -> None:
        for _ in range(times):
            work()

    repeated(2)
    return min(seconds(repeated, 5, device) / 5 for _ in range(3))


def node_work(model: Specformer, graph: Graph, spectrum: Spectrum) -> EpochWork:
    r"""The work of one epoch of node classification: training step and evaluation.

    With n nodes, q eigenpairs, p of them distinct, width d, M heads, C filtered channels and L
    convolutions:

    - U is read once per product with it. In training, a convolution has two products forward and
      two backward. Evaluation has two per convolution, or two in all if convolutions are linear
      and follow each other directly. Without dropout and nonlinearity between them, L counts
      as 1 in training too.
    - Products with U have C columns, or M·C if dropout keeps the heads apart.
    - Features are read three times and multiplied by the first weights: for the output, its
      gradient and the evaluation. Counted are nonzero entries with an index each, or all entries
      if these are fewer bytes.
    - Attention takes :math:`4p^2d` operations forward, twice as many backward, and once more in
      evaluation.
    - Adam reads and writes seven numbers per parameter.
    """
    config = model.config
    n, q = spectrum.num_nodes, spectrum.num_eigenpairs
    p, d, heads = len(spectrum.distinct.values), config["hidden_channels"], config["num_heads"]
    channels = config["out_channels"] if config["space"] == "output" else d
    linear = not (config["norm"] or config["activation"])
    layers = config["num_layers"]
    apart = heads if config["propagation_dropout"] > 0 else 1
    trained = 1 if linear and apart == 1 else layers
    evaluated = 1 if linear else layers
    passes = 4 * trained + 2 * evaluated
    columns = channels * (trained * (2 + 2 * apart) + 2 * evaluated)
    assert graph.x is not None
    nonzero = int(graph.x.nnz if isinstance(graph.x, sp.csr_array) else np.count_nonzero(graph.x))
    stored = min(2 * nonzero, int(np.prod(graph.x.shape))) * _FLOAT
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return EpochWork(
        moved=passes * n * q * _FLOAT + 3 * stored + parameters * _ADAM,
        products=2.0 * n * q * columns + 3 * 2.0 * nonzero * d,
        attention=16.0 * p * p * d * len(model.filters),
    )


def graph_work(model: GraphSpecformer, sizes: np.ndarray) -> EpochWork:
    r"""The work of one training step on graphs of these sizes.

    With N nodes, P pairs of nodes, width d, M heads and L convolutions:

    - The bases, :math:`P \times d`, are written once by their network, and read by every
      convolution forward and backward. Their gradient is written and read once.
    - Products: building the bases takes :math:`2M\sum n^3` operations, their network
      :math:`2P(M + 1 + d)d`, a convolution :math:`6Nd^2`; all take twice as many backward.
    - Attention takes :math:`4d\sum n^2` operations forward and twice as many backward.
    - Adam reads and writes seven numbers per parameter.
    """
    config = model.config
    nodes, pairs = float(sizes.sum()), float((sizes.astype(np.float64) ** 2).sum())
    cubes = float((sizes.astype(np.float64) ** 3).sum())
    d, heads, layers = config["hidden_channels"], config["num_heads"], config["num_layers"]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    networks, filters = len(model.bases), len(model.filters)
    held = pairs * d * _FLOAT
    return EpochWork(
        moved=held * (3 * networks + 2 * layers) + parameters * _ADAM,
        products=3.0
        * (
            2.0 * heads * cubes * filters
            + 2.0 * pairs * (heads + 1 + d) * d * networks
            + 6.0 * nodes * d * d * layers
        ),
        attention=12.0 * pairs * d * filters,
    )
