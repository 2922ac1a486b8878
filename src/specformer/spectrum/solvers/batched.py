r"""Every eigenpair of a batch of small matrices of one size, on any device."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from specformer.spectrum.distinct import EQUAL_TOLERANCE

Matrix = Literal["laplacian", "adjacency-with-loops"]
Isolated = Literal["one", "zero"]
#: By the solver's precision: eigenvalues nearer than this are one repeated eigenvalue. Those of a
#: float32 solve have passed through :func:`_refined`, and equal ones lie within about 1e-9.
EQUAL = {torch.float64: EQUAL_TOLERANCE, torch.float32: 1e-7}
#: Entries this close to an eigenvector's largest count as equally large.
_TIE = 1e-4


def adjacency(ends: Tensor, owner: Tensor, count: int, n: int) -> Tensor:
    """0/1 matrices ``[count, n, n]`` in float64 from bonds held once."""
    dense = torch.zeros(count * n * n, device=ends.device, dtype=torch.float64)
    one, other = ends
    base = owner * (n * n)
    dense[torch.cat([base + one * n + other, base + other * n + one])] = 1.0
    return dense.view(count, n, n)


def normalised(adjacency: Tensor, matrix: Matrix, isolated: Isolated) -> Tensor:
    r"""Normalised Laplacians, or :math:`\tilde D^{-1/2}(A + I)\tilde D^{-1/2}`, ``[count, n, n]``.

    Example:
        >>> pair = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
        >>> normalised(pair, "laplacian", "one").tolist()
        [[[1.0, -1.0], [-1.0, 1.0]]]
    """
    n = adjacency.shape[-1]
    identity = torch.eye(n, device=adjacency.device, dtype=adjacency.dtype)
    if matrix == "adjacency-with-loops":
        adjacency = adjacency + identity
    degree = adjacency.sum(dim=-1)
    root = torch.where(degree > 0, degree, 1.0).sqrt()
    # One product of roots, not two scalings one after the other: symmetric to the last bit.
    scaled = adjacency / (root.unsqueeze(-1) * root.unsqueeze(-2))
    if matrix == "adjacency-with-loops":
        return scaled
    if isolated == "one":
        return identity - scaled
    return torch.diag_embed((degree > 0).to(adjacency.dtype)) - scaled


def eigenpairs(operator: Tensor, precision: torch.dtype) -> tuple[Tensor, Tensor]:
    """Eigenpairs of float64 matrices, solved in ``precision``; vectors rounded to float32.

    What is stored is float32, so that is what the checks afterwards should see.
    """
    values, vectors = torch.linalg.eigh(operator.to(precision))
    rounded = vectors.float().double()
    if precision == torch.float64:
        return values, rounded
    return _refined(operator, rounded)


def _refined(operator: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    r"""Rayleigh quotients :math:`u^\top M u / u^\top u` in float64, ascending.

    Their error is the square of the vectors', so eigenvalues of a float32 solve, off by some 1e-6,
    become as good as those of a float64 solve.
    """
    quotient = (vectors * (operator @ vectors)).sum(dim=-2) / vectors.square().sum(dim=-2)
    values, order = quotient.sort(dim=-1)
    return values, vectors.gather(-1, order.unsqueeze(-2).expand_as(vectors))


def snap(values: Tensor, tolerance: float, lowest: float) -> Tensor:
    """Give equal eigenvalues of a graph their mean, clipped to ``[lowest, lowest + 2]``.

    The batched form of :func:`specformer.spectrum.distinct.snap`, for rows ``[count, n]``.
    """
    new = torch.zeros_like(values, dtype=torch.long)
    new[:, 1:] = (values.diff(dim=1) > tolerance).long()
    group = new.cumsum(dim=1)
    total = torch.zeros_like(values).scatter_add_(1, group, values)
    members = torch.zeros_like(values).scatter_add_(1, group, torch.ones_like(values))
    mean = (total / members.clamp(min=1.0)).gather(1, group)
    # An eigenvalue that is a whole number in exact arithmetic should say so, not 3e-17.
    whole = mean.round()
    mean = torch.where((mean - whole).abs() <= tolerance, whole + 0.0, mean)
    return mean.clamp(lowest, lowest + 2.0)


def canonical_signs(vectors: Tensor) -> Tensor:
    """Flip each column so that its first entry of largest magnitude is positive."""
    size = vectors.abs()
    largest = size.amax(dim=-2, keepdim=True)
    first = (size >= largest * (1.0 - _TIE)).to(torch.uint8).argmax(dim=-2, keepdim=True)
    return vectors * torch.sign(vectors.gather(-2, first))


def errors(operator: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    """The worst residual ‖Mu − λu‖ and the worst entry of UᵀU − I of a batch."""
    residual = (operator @ vectors - vectors * values.unsqueeze(-2)).norm(dim=-2).max()
    gram = vectors.mT @ vectors
    gram.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    return torch.stack([residual, gram.abs().max()])
