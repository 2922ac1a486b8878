r"""Polynomials of a graph matrix, and models that learn one: GPR-GNN, BernNet, ChebNetII."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import cos, pi
from typing import Any

import torch
from numpy.polynomial import Chebyshev
from torch import Tensor, nn

from specformer.baselines.nodes.mlp import FeatureMLP
from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import SingleGraphModel
from specformer.errors import ConfigError
from specformer.nn.layers.derived import DerivedBuffers

Operator = Callable[[Tensor], Tensor]
"""Multiplies node values [..., n, channels] by a graph matrix."""


@dataclass(frozen=True)
class Recurrence:
    r"""A family of polynomials :math:`P_0, \dots, P_K` with a three-term recurrence.

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
        r"""Yield :math:`P_0(M) x, \dots, P_K(M) x`, with one product by :math:`M` for each."""
        before, current = torch.zeros_like(x), x
        yield current
        for a, b, c in zip(self.a, self.b, self.c, strict=True):
            before, current = current, a * matrix(current) + b * current - c * before
            yield current

    def combine(self, matrix: Operator, terms: Sequence[Tensor]) -> Tensor:
        r""":math:`\sum_k P_k(M) \, u_k` for the K + 1 terms :math:`u_k`, by Clenshaw's algorithm.

        It takes :math:`K` products by :math:`M`, as many as :meth:`basis`, but they are as wide as
        the terms, and autograd need not store any :math:`P_k(M) x`.
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
    r""":math:`P_k(t) = t^k` (Clenshaw's algorithm is then Horner's)."""
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


class PolynomialModel(SingleGraphModel):
    r"""A feature network, then one learned polynomial of the graph's matrix M.

    .. math::
        Z = \sum_{k=0}^K w_k P_k(M) \, \mathrm{MLP}(X)

    The sum takes K sparse products.
    """

    repr_arguments = ("order",)
    polynomials: Recurrence

    def build(
        self, *, num_layers: int = 2, order: int = 10, propagation_dropout: float = 0.0
    ) -> None:
        self.order = order
        self.mlp = FeatureMLP(*self.channels, num_layers, self.dropout.p)
        self.propagation_dropout = nn.Dropout(propagation_dropout)
        self.coefficients = nn.Parameter(torch.empty(order + 1))

    @abstractmethod
    def weights(self) -> Tensor:
        """The :math:`w_k`, [..., K + 1]."""

    @abstractmethod
    def matrix(self, propagation: Propagation) -> Operator:
        """M, a function of the normalised adjacency."""

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        h = self.propagation_dropout(self.mlp(x))
        weights = self.weights()[..., None, None].unbind(-3)
        return self.polynomials.combine(
            self.matrix(propagation), [weight * h for weight in weights]
        )

    def filter_parameters(self) -> list[nn.Parameter]:
        """The parameters of the polynomial, which may have their own learning rate."""
        return [self.coefficients]


class GPRGNN(PolynomialModel):
    r"""Generalised PageRank network.

    From `"Adaptive Universal Generalized PageRank Graph Neural
    Network" <https://arxiv.org/abs/2006.07988>`_.

    .. math::
        Z = \sum_{k=0}^K \gamma_k \hat A^k \, \mathrm{MLP}(X)

    :math:`\hat A` is the normalised adjacency, with self-loops unless ``self_loops`` is False. The
    :math:`\gamma` start as personalised PageRank with teleport probability ``alpha``:
    :math:`\gamma_k = \alpha (1 - \alpha)^k`, and :math:`\gamma_K = (1 - \alpha)^K`.
    """

    def build(self, *, alpha: float = 0.1, self_loops: bool = True, **shared: Any) -> None:
        super().build(**shared)
        self.alpha, self.self_loops = alpha, self_loops
        self.polynomials = monomial(self.order)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        stay = 1 - self.alpha
        gamma = [self.alpha * stay**k for k in range(self.order)] + [stay**self.order]
        with torch.no_grad():
            self.coefficients.copy_(torch.tensor(gamma, dtype=self.coefficients.dtype))

    def weights(self) -> Tensor:
        return self.coefficients

    def matrix(self, propagation: Propagation) -> Operator:
        return propagation.adjacency_with_loops if self.self_loops else propagation.adjacency

    def response(self, eigenvalues: Tensor) -> Tensor:
        r"""The filter :math:`\sum_k \gamma_k (1 - \lambda)^k` at Laplacian eigenvalues.

        [q] → [..., q, 1]. With self-loops this raises :class:`ConfigError`, because the eigenvalues
        of :math:`\hat A` are then not a function of those of the Laplacian.
        """
        if self.self_loops:
            raise ConfigError(
                "GPRGNN with self-loops is not a function of the Laplacian's eigenvalues; "
                "use self_loops=False to see its response."
            )
        return self.polynomials(1 - eigenvalues) @ self.coefficients.unsqueeze(-1)


class NonNegativePolynomial(DerivedBuffers, PolynomialModel):
    r"""A polynomial in the Chebyshev basis of :math:`L - I`, with weights from K + 1 numbers c.

    .. math::
        w = \mathrm{ReLU}(c) \, C

    The :math:`c_j` start at 1. The matrix C depends on the model.
    """

    conversion: Tensor

    def build(self, **shared: Any) -> None:
        super().build(**shared)
        self.polynomials = chebyshev(self.order)
        self.register_derived()
        self.reset_parameters()

    def derived(self) -> dict[str, Tensor]:
        """The matrix C."""
        return {"conversion": self.conversion_of(self.order)}

    @staticmethod
    @abstractmethod
    def conversion_of(order: int) -> Tensor:
        """C, ``[K + 1, K + 1]``: row j holds the Chebyshev coefficients that belong to c_j."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.mlp.reset_parameters()
        nn.init.ones_(self.coefficients)

    def weights(self) -> Tensor:
        return self.coefficients.relu() @ self.conversion.to(self.coefficients.dtype)

    def matrix(self, propagation: Propagation) -> Operator:
        return lambda h: -propagation.adjacency(h)

    def response(self, eigenvalues: Tensor) -> Tensor:
        r"""The filter at Laplacian eigenvalues: [q] → [..., q, 1]."""
        return self.polynomials(eigenvalues - 1) @ self.weights().unsqueeze(-1)


class BernNet(NonNegativePolynomial):
    r"""Bernstein polynomial network.

    From `"BernNet: Learning Arbitrary Graph Spectral Filters via
    Bernstein Approximation" <https://arxiv.org/abs/2106.10994>`_.

    .. math::
        Z = \sum_{k=0}^K \theta_k \frac{1}{2^K} \binom{K}{k} (2I - L)^{K-k} L^k \,
        \mathrm{MLP}(X), \qquad \theta_k = \mathrm{ReLU}(c_k)

    :math:`\theta_k` is about the filter's value at :math:`\lambda = 2k/K`; the :math:`c_k` start
    at 1, where the filter is the identity. The sum is evaluated in the Chebyshev basis of
    :math:`L - I`: K sparse products instead of the formula's :math:`K(K + 3)/2`.
    """

    @staticmethod
    def conversion_of(order: int) -> Tensor:
        r"""Chebyshev coefficients of :math:`\binom{K}{k} s^k (1-s)^{K-k}`, :math:`s = (1 + t)/2`.

        They are multiples of :math:`2^{1-2K}` and at most 1, so float32 is exact up to order 12.
        """
        up, down = Chebyshev([0.5, 0.5]), Chebyshev([0.5, -0.5])
        rows = [Chebyshev([1.0])]
        for _ in range(order):  # no term is larger than 1, so that sums lose no precision
            inner = [up * low + down * high for low, high in pairwise(rows)]
            rows = [down * rows[0], *inner, up * rows[-1]]
        return torch.tensor([row.coef.tolist() for row in rows], dtype=torch.float64)


class ChebNetII(NonNegativePolynomial):
    r"""Chebyshev interpolation network.

    From `"Convolutional Neural Networks on Graphs with Chebyshev
    Approximation, Revisited" <https://arxiv.org/abs/2202.03580>`_.

    .. math::
        Z = \sum_{k=0}^K w_k T_k(L - I) \, \mathrm{MLP}(X), \qquad
        w_k = \frac{2}{K + 1} \sum_{j=0}^K \mathrm{ReLU}(\gamma_j) \, T_k(x_j), \qquad
        x_j = \cos\frac{(j + 1/2) \pi}{K + 1}

    with :math:`w_0` halved, so that the filter's value at :math:`\lambda = 1 + x_j` is exactly
    :math:`\mathrm{ReLU}(\gamma_j)`. The :math:`\gamma_j` start at 1, where the filter is the
    identity. :math:`L - I` is the paper's scaled Laplacian with the bound 2 for
    :math:`\lambda_{\max}`.
    """

    @staticmethod
    def conversion_of(order: int) -> Tensor:
        """From values at the Chebyshev nodes to coefficients, in float64."""
        nodes = torch.tensor(
            [cos((j + 0.5) * pi / (order + 1)) for j in range(order + 1)], dtype=torch.float64
        )
        matrix = chebyshev(order)(nodes) * (2 / (order + 1))
        matrix[:, 0] /= 2
        return matrix
