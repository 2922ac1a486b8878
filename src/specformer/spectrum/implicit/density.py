r"""A spectrum's density without its eigenvectors: stochastic Lanczos quadrature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import Tokens, group_starts, whole_numbers
from specformer.spectrum.landmarks import gauss_quadrature
from specformer.spectrum.products import check_count
from specformer.spectrum.solvers.exact import KnownVectors
from specformer.spectrum.sparse import Operator, RowShard, summed_over

#: How many numbers of Lanczos vectors are held at once: 2 GiB. It limits the probes at a time.
_HELD = 2**28
#: A remainder shorter than this ends a probe's recurrence; what follows has no weight.
_EXHAUSTED = 1e-10
#: Points closer than this to their neighbour are merged. Probes that hold little of an
#: eigenvector find its eigenvalue with an error of this size.
_EQUAL = 1e-6
#: Points with a smaller share of all weight are rounding errors.
_WEIGHTLESS = 1e-14
#: How many random signs suffice, over all probes.
_SIGNS = 2**22


def default_probes(num_nodes: int) -> int:
    """Number of random vectors for a graph of n nodes; n · probes decides the error."""
    return max(1, min(16, -(-_SIGNS // num_nodes)))


def spectral_density(
    operator: Operator,
    known: Sequence[KnownVectors],
    lonely: np.ndarray,
    *,
    probes: int,
    steps: int,
    seed: int,
    dtype: torch.dtype,
) -> Tokens:
    r"""Weighted points :math:`(\theta_i, \omega_i)` that integrate like all eigenvalues.

    .. math::
        \sum_i \omega_i\, p(\theta_i) \approx \mathrm{tr}\; p(L) = \sum_j p(\lambda_j), \qquad
        \sum_i \omega_i = n

    Every probe z, a vector of random signs, gives by ``steps`` Lanczos steps the Gauss rule of
    :math:`p \mapsto z^\top p(L)\, z`, exact below degree ``2 * steps``. The mean over the probes
    estimates the trace, with an error that falls like :math:`1/\sqrt{n \cdot \mathrm{probes}}`. The
    result is the Gauss rule of ``steps`` points of this mean (Golub and Welsch, 1969; Ubaru, Chen
    and Saad, 2017).

    Known eigenpairs are removed from the probes and added exactly: the eigenvalue 0 with one copy
    per component that has an edge, 2 with one per bipartite component, and nodes without edges.
    With ``probes`` at least n the nodes themselves are the probes. Then the result is not random,
    and it is exact with as many steps as there are distinct eigenvalues.

    ``operator`` is L − I in float64, or the rows of this process; ``known`` are the eigenvectors at
    0 and at 2, and ``lonely`` marks the nodes without edges. Returns tokens in ascending order, at
    most ``steps`` and the three known values.
    """
    check_count("probes", probes)
    check_count("steps", steps)
    check_count("seed", seed, least=0)
    rest = _Rest(known, lonely, operator)
    values, weights = np.empty(0), np.empty(0)
    if rest.size > 0:
        steps = min(steps, rest.size)
        averaged = _averaged(operator, rest, probes, steps, seed)
        values, weights = gauss_quadrature(*averaged, steps)
    exact = [float(count) for count in (*(each.count for each in known), rest.lonely_nodes)]
    values, weights = _merged(np.append(values, [0.0, 2.0, 1.0]), np.append(weights, exact))
    return Tokens(*(torch.as_tensor(part).to(operator.device, dtype) for part in (values, weights)))


class _Rest:
    """The orthogonal complement of all known eigenvectors."""

    def __init__(
        self, known: Iterable[KnownVectors], lonely: np.ndarray, operator: Operator
    ) -> None:
        device, self.total = operator.device, partial(summed_over, operator)
        #: The nodes of this process.
        self.rows = operator.parts.rows if isinstance(operator, RowShard) else slice(None)
        self.known = [
            (
                torch.as_tensor(np.maximum(vectors.column, 0)).to(device),
                torch.as_tensor(vectors.entry).to(device),
                vectors.count,
            )
            for vectors in known
            if vectors.count
        ]
        self.lonely = torch.as_tensor(lonely).to(device)
        self.lonely_nodes = int(self.total(self.lonely.sum()))
        self.size = operator.shape[1] - self.lonely_nodes - sum(count for *_, count in self.known)

    def project(self, vectors: Tensor) -> Tensor:
        """Project ``[rows, n]`` onto it."""
        for column, entry, count in self.known:
            shares = vectors.new_zeros(len(vectors), count).index_add_(1, column, vectors * entry)
            vectors = vectors - entry * self.total(shares)[:, column]
        return vectors.masked_fill(self.lonely, 0.0)

    def lengths(self, vectors: Tensor) -> Tensor:
        """Norms of ``[rows, n]``, as ``[rows, 1]``."""
        norms = vectors.norm(dim=1, keepdim=True)
        return norms if self.rows == slice(None) else self.total(norms.square()).sqrt()


def _averaged(
    operator: Operator, rest: _Rest, probes: int, steps: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The points of all probes' Gauss rules; weights sum to the dimension of the rest."""
    n = operator.shape[1]
    generator = np.random.default_rng(seed)
    values, weights = [], []
    count = min(probes, n)
    rows = min(count, max(1, _HELD // (n * steps)))
    _check_memory(rows * operator.shape[0] * steps, n, steps, operator.device)
    for first in range(0, count, rows):
        last = min(first + rows, count)
        start = np.zeros((last - first, n), dtype=np.int8)
        if count == n:
            start[np.arange(last - first), np.arange(first, last)] = 1
        else:
            start = 2 * generator.integers(0, 2, start.shape, dtype=np.int8) - 1
        vectors = torch.as_tensor(start[:, rest.rows]).to(operator.device, operator.dtype)
        theta, omega = _gauss_rules(operator, rest, vectors, steps)
        values.append(theta.ravel())
        weights.append(omega.ravel())
    joined = np.concatenate(weights)
    return _merged(np.concatenate(values), joined * (rest.size / joined.sum()))


def _check_memory(numbers: int, num_nodes: int, steps: int, device: torch.device) -> None:
    """Refuse Lanczos vectors of more numbers than there is memory for."""
    need, free = 8 * numbers, devices.available_bytes(device)
    if need > free:
        raise SpectrumError(
            f"the density of {num_nodes:,} nodes needs about {devices.gib(need)} on {device} with "
            f"steps={steps}, {devices.gib(free)} are free; pass fewer steps to sf.approximate."
        )


def _gauss_rules(
    operator: Operator, rest: _Rest, start: Tensor, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The Gauss rule of each start vector: values and weights ``[rows, steps]``.

    An exhausted recurrence continues with zero vectors, which have no weight.
    """
    start = rest.project(start)
    norms = rest.lengths(start)
    basis = start.new_zeros(len(start), steps, start.shape[1])
    diagonal, beside = start.new_zeros(len(start), steps), start.new_zeros(len(start), steps)
    basis[:, 0] = _direction(start, norms)
    for step in range(steps):
        vector = (operator @ basis[:, step].mT.contiguous()).mT.contiguous()
        diagonal[:, step] = rest.total((vector * basis[:, step]).sum(dim=1))
        if step + 1 == steps:
            break
        # Without this, rounding lets known eigenvalues grow back and take up points.
        vector = rest.project(vector)
        before = basis[:, : step + 1]
        for _ in range(2):  # two passes are orthogonal to rounding
            vector -= torch.bmm(rest.total(torch.bmm(vector[:, None], before.mT)), before)[:, 0]
        length = rest.lengths(vector)
        basis[:, step + 1] = _direction(vector, length)
        beside[:, step] = torch.where(length > _EXHAUSTED, length, 0.0)[:, 0]
    jacobi = torch.diag_embed(diagonal)
    for offset in (-1, 1):
        jacobi += torch.diag_embed(beside[:, :-1], offset=offset)
    theta, vectors = np.linalg.eigh(jacobi.cpu().numpy())
    return theta + 1.0, (norms.cpu().numpy() * vectors[:, 0]) ** 2


def _direction(vectors: Tensor, lengths: Tensor) -> Tensor:
    """Unit vectors, or zero where only rounding is left."""
    return torch.where(lengths > _EXHAUSTED, vectors / lengths.clamp_min(_EXHAUSTED), 0.0)


def _merged(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort points, clip them to [0, 2], merge equal ones, and drop those without weight."""
    keep = weights > _WEIGHTLESS * weights.sum()
    order = np.argsort(values[keep])
    values, weights = values[keep][order].clip(0.0, 2.0), weights[keep][order]
    starts = group_starts(values, _EQUAL)
    sums = np.add.reduceat(weights, starts)
    means = np.add.reduceat(weights * values, starts) / sums
    return whole_numbers(means, _EQUAL), sums
