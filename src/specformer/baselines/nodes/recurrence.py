r"""Polynomials of a graph matrix, by the three-term recurrences that generate them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]
"""A graph matrix, as what it does to node values of shape [..., n, channels]."""


@dataclass(frozen=True)
class Recurrence:
    r"""A family of polynomials :math:`P_0, \dots, P_K` in which each follows from the two before.

    .. math::
        P_0(t) = 1, \qquad P_{k+1}(t) = (a_k t + b_k) \, P_k(t) - c_k \, P_{k-1}(t)

    Here :math:`P_{-1} = 0`, and :math:`a, b, c` have :math:`K` entries each.

    Example:
        >>> chebyshev(3)(torch.tensor([0.5])).tolist()
        [[1.0, 0.5, -0.5, -1.0]]
    """

    a: tuple[float, ...]
    b: tuple[float, ...]
    c: tuple[float, ...]

    def __call__(self, t: Tensor) -> Tensor:
        r"""Every :math:`P_k(t)`: [...] → [..., K + 1]."""
        return torch.stack(list(self.basis(lambda p: t * p, torch.ones_like(t))), dim=-1)

    def basis(self, matrix: Operator, x: Tensor) -> Iterator[Tensor]:
        r"""Yield :math:`P_0(M) x, \dots, P_K(M) x`, with one product by :math:`M` for each step."""
        before, current = torch.zeros_like(x), x
        yield current
        for a, b, c in zip(self.a, self.b, self.c, strict=True):
            before, current = current, a * matrix(current) + b * current - c * before
            yield current

    def combine(self, matrix: Operator, terms: Sequence[Tensor]) -> Tensor:
        r""":math:`\sum_k P_k(M) \, u_k` for the K + 1 terms :math:`u_k`, by Clenshaw's rule.

        It takes :math:`K` products by :math:`M`, as many as :meth:`basis`, but of the terms' width;
        and autograd has no :math:`P_k(M) x` to keep.
        """
        *others, current = terms
        after = None
        for k, term in reversed(list(enumerate(others))):
            combined = torch.add(term, matrix(current), alpha=self.a[k])
            if self.b[k]:
                combined = torch.add(combined, current, alpha=self.b[k])
            if after is not None and self.c[k + 1]:
                combined = torch.sub(combined, after, alpha=self.c[k + 1])
            after, current = current, combined
        return current


def monomial(order: int) -> Recurrence:
    r""":math:`P_k(t) = t^k` (Clenshaw's rule is then Horner's)."""
    return Recurrence((1.0,) * order, (0.0,) * order, (0.0,) * order)


def chebyshev(order: int) -> Recurrence:
    r"""Chebyshev polynomials of the first kind, :math:`T_k(\cos\varphi) = \cos k\varphi`."""
    return Recurrence((1.0, *(2.0,) * (order - 1)), (0.0,) * order, (1.0,) * order)


def jacobi(order: int, a: float, b: float) -> Recurrence:
    r"""Jacobi polynomials :math:`P_k^{(a, b)}`, orthogonal under :math:`(1 - t)^a (1 + t)^b`."""
    steps = [((a + b + 2) / 2, (a - b) / 2, 0.0)]
    for k in range(2, order + 1):
        s = 2 * k + a + b
        scale = 2 * k * (k + a + b)
        steps.append(
            (
                s * (s - 1) / scale,
                (s - 1) * (a * a - b * b) / (scale * (s - 2)),
                2 * (k + a - 1) * (k + b - 1) * s / (scale * (s - 2)),
            )
        )
    return Recurrence(*zip(*steps, strict=True))
