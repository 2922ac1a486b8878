r"""A spectrum without eigenvectors: its density, and filters as Chebyshev interpolants."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.graphs import as_adjacency
from specformer.graphs.laplacian import laplacian_of
from specformer.spectrum.devices import usable_device
from specformer.spectrum.eigenpairs import Tokens
from specformer.spectrum.implicit.density import default_probes, spectral_density
from specformer.spectrum.landmarks import chebyshev_points, interpolation_matrix
from specformer.spectrum.notebook import Shown
from specformer.spectrum.products import Filtering, check_count, check_precision
from specformer.spectrum.solvers.exact import known_vectors
from specformer.spectrum.sparse import Operator, most_rows, sparse_product, to_torch
from specformer.spectrum.spectrum import Spectrum

#: A filter keeps T_k(L − I) x for its gradient up to this many numbers (1 GiB in float32). Beyond
#: that the gradient computes them again, which takes half as many products more.
_KEPT = 2**28


@dataclass(frozen=True)
class DensityReport:
    """How a density was estimated."""

    probes: int
    steps: int
    seed: int
    seconds: float


@dataclass(frozen=True, eq=False)
class ImplicitSpectrum(Filtering, Shown):
    r"""The Laplacian as an operator, the density of its eigenvalues, and a degree K.

    A response g is given by its values at K + 1 Chebyshev points and applied as their interpolant,

    .. math::
        g(L)\,x \approx \sum_{k=0}^{K} c_k\, T_k(L - I)\, x, \qquad
        T_{k+1}(M) = 2 M\, T_k(M) - T_{k-1}(M),

    with K sparse products. The interpolant is exact at the points, which include 0, 2 and, if K is
    even, 1, where real graphs have many eigenvalues. It is exact everywhere for polynomials of
    degree at most K. Models accept it in place of a :class:`Spectrum`.

    Shapes: operator L − I ``[n, n]`` as CSR, or the rows of this process; tokens, the density,
    ``[p]``.

    Example:
        >>> path = approximate(torch.tensor([[0], [1]]), degree=2)
        >>> path.filter(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0]))
        tensor([0.5000, 0.5000])
    """

    operator: Operator
    tokens: Tokens
    degree: int
    report: DensityReport | None = None
    #: The points at which a response is given, ``[K + 1]`` ascending from 0 to 2, weights of one.
    points: Tokens = field(init=False)
    _transform: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_count("degree", self.degree)
        values = torch.as_tensor(chebyshev_points(self.degree + 1)).to(self.tokens.values)
        object.__setattr__(self, "points", Tokens(values, torch.ones_like(values)))
        object.__setattr__(self, "_transform", _transform(self.degree).to(values))

    def __repr__(self) -> str:
        return (
            f"ImplicitSpectrum(num_nodes={self.num_nodes}, tokens={len(self.tokens.values)}, "
            f"degree={self.degree}, dtype={self.dtype}, device={self.device})"
        )

    @property
    def num_nodes(self) -> int:
        """Number of nodes whose signals are filtered here: all, or those of this process."""
        return self.operator.shape[0]

    @property
    def all_nodes(self) -> int:
        """Number of nodes of the graph."""
        return self.operator.shape[1]

    @property
    def device(self) -> torch.device:
        return self.operator.device

    @property
    def dtype(self) -> torch.dtype:
        return self.operator.dtype

    @property
    def _density(self) -> Tokens:
        return self.tokens

    @property
    def _takes(self) -> tuple[int, torch.dtype, int, str]:
        return self.num_nodes, self.dtype, self.degree + 1, "points"

    def to(
        self,
        device: torch.device | str | torch.dtype | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> ImplicitSpectrum:
        """The same on another device or in another precision, as :meth:`Spectrum.to`."""
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        options: dict[str, Any] = {"device": device, "dtype": dtype, "non_blocking": non_blocking}
        tokens = Tokens(*(part.to(**options) for part in self.tokens))
        return replace(self, operator=self.operator.to(**options), tokens=tokens)

    def __deepcopy__(self, memo: dict[int, Any]) -> ImplicitSpectrum:
        # PyTorch cannot deep-copy a CSR matrix, but can clone it.
        tokens = Tokens(*(part.clone() for part in self.tokens))
        return replace(self, operator=self.operator.clone(), tokens=tokens)

    def cpu(self) -> ImplicitSpectrum:
        """The same in the host's memory."""
        return self.to("cpu")

    def with_degree(self, degree: int) -> ImplicitSpectrum:
        """The same graph and density; filters are interpolated at ``degree + 1`` points."""
        return replace(self, degree=degree)

    def interpolate(self, response: Tensor, values: Tensor) -> Tensor:
        """The interpolant of ``[..., K + 1, channels]`` at eigenvalues ``[p]``.

        Example:
            >>> path = approximate(torch.tensor([[0], [1]]), degree=4)
            >>> square = path.points.values[:, None] ** 2
            >>> path.interpolate(square, torch.tensor([0.5]))
            tensor([[0.2500]])
        """
        matrix = interpolation_matrix(values.double().cpu().numpy(), self.degree + 1)
        return torch.as_tensor(matrix).to(response) @ response

    def quantiles(self, count: int) -> Tensor:
        """``count`` quantiles of the density: values of tokens, repeated by weight, ascending."""
        levels = (torch.arange(count, device=self.device, dtype=torch.float64) + 0.5) / count
        shares = self.tokens.weights.double().cumsum(dim=0) / self.tokens.weights.double().sum()
        place = torch.searchsorted(shares, levels).clamp_max(len(shares) - 1)
        return self.tokens.values[place]

    def summary(self) -> dict[str, Any]:
        """Size and how the density was estimated, ready for JSON."""
        made = asdict(self.report) if self.report else {}
        return {
            "num_nodes": self.all_nodes,
            "tokens": len(self.tokens.values),
            "degree": self.degree,
            "solver": "density",
            **made,
        }

    def _filtered(self, x: Tensor, gains: Tensor) -> Tensor:
        """Filter all runs and channels as columns of one sparse product per degree."""
        lead = torch.broadcast_shapes(x.shape[:-2], gains.shape[:-3])
        n, (copies, wide) = self.num_nodes, gains.shape[-2:]
        channels = max(x.shape[-1], wide)
        coefficients = torch.einsum("kj,...jmc->...kmc", self._transform, gains)
        terms = coefficients.expand(*lead, -1, copies, channels).reshape(
            -1, self.degree + 1, copies, channels
        )
        columns = x.expand(*lead, n, channels).reshape(-1, n, channels)
        # Autocast may have changed the precision, but sparse products need their own.
        out = cast(
            Tensor,
            _ChebyshevSeries.apply(
                self.operator,
                columns.transpose(0, 1).reshape(n, -1).contiguous().to(self.dtype),
                terms.permute(1, 2, 0, 3).reshape(self.degree + 1, copies, -1).to(self.dtype),
            ),
        )
        parts = out.reshape(n, copies, -1, channels).permute(2, 0, 1, 3)
        return parts.reshape(*lead, n, copies, channels)


#: Both kinds of spectra that models accept.
AnySpectrum: TypeAlias = Spectrum | ImplicitSpectrum


def approximate(
    source: Any,
    num_nodes: int | None = None,
    edge_weight: Any = None,
    *,
    degree: int = 128,
    probes: int | None = None,
    steps: int = 128,
    isolated: Literal["one", "zero"] = "one",
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> ImplicitSpectrum:
    r"""A graph's spectrum without a decomposition, for models and filters.

    Args:
        source: a graph, as in :func:`specformer.decompose`.
        num_nodes: number of nodes, if ``source`` does not tell it.
        edge_weight: non-negative weights, one per edge of ``source``.
        degree: K, the number of sparse products of a filter, see :class:`ImplicitSpectrum`.
        probes: number of random vectors for the density, see
            :func:`specformer.spectrum.implicit.density.spectral_density`. By default 16, and fewer
            above 262,144 nodes, where 2²² / n suffice, because every node adds to an estimate.
        steps: Lanczos steps of each probe.
        isolated: the eigenvalue, 1 or 0, that a node without edges adds.
        device: where to compute, and where the result lives.
        dtype: precision of filtered signals; the density is computed in float64.
        seed: seed of the density's random vectors.

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> approximate(ring, num_nodes=3).tokens
        Tokens(values=tensor([0.0000, 1.5000]), weights=tensor([1., 2.]))
    """
    check_precision(dtype)
    check_count("degree", degree)  # before the density is estimated
    started = time.perf_counter()
    adjacency = as_adjacency(source, num_nodes=num_nodes, edge_weight=edge_weight)
    target, n = usable_device(device), adjacency.shape[0]
    shifted = sp.csr_array(laplacian_of(adjacency, isolated) - sp.eye_array(n))
    shifted.eliminate_zeros()
    degrees: np.ndarray = np.asarray(adjacency.sum(axis=1)).ravel()
    probes = default_probes(n) if probes is None else probes
    tokens = spectral_density(
        to_torch(shifted, target, torch.float64),
        [known_vectors(-shifted, sign, degrees) for sign in (1, -1)],
        np.diff(shifted.indptr) == 0,
        probes=probes,
        steps=steps,
        seed=seed,
        dtype=dtype,
    )
    operator = to_torch(shifted, target, dtype)
    report = DensityReport(probes, steps, seed, time.perf_counter() - started)
    return ImplicitSpectrum(operator, tokens, degree, report)


def _transform(degree: int) -> Tensor:
    r"""From values at the points to coefficients, ``[K + 1, K + 1]``.

    :math:`c_k = \frac{2}{K} \sum_j'' g_j\, T_k(t_j)`, first and last of each halved.
    """
    orders = torch.arange(degree + 1, dtype=torch.float64)
    # T_k(t_j) with t_j = −cos(πj/K)
    table = torch.cos(torch.outer(orders, degree - orders) * (math.pi / degree))
    halved = torch.ones(degree + 1, dtype=torch.float64)
    halved[0] = halved[-1] = 0.5
    return table * halved[:, None] * halved * (2.0 / degree)


class _ChebyshevSeries(torch.autograd.Function):
    r"""``Σ_k c_k ⊙ T_k(M) x`` for a constant symmetric M.

    The gradient of x, :math:`\sum_k T_k(M) \sum_m c_{km} \odot \bar y_m`, is summed by Clenshaw's
    rule in as many products; that of :math:`c_{km}` is :math:`\langle T_k(M) x, \bar y_m\rangle`.

    Shapes: x ``[n, c]``, contiguous, coefficients ``[K + 1, M, c]``, output ``[n, M, c]``.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Operator, x: Tensor, coefficients: Tensor) -> Tensor:
        ctx.matrix = matrix
        ctx.save_for_backward(x, coefficients)
        held = most_rows(matrix) * x.shape[1] * len(coefficients)
        keeps = ctx.needs_input_grad[2] and held <= _KEPT
        ctx.basis = [] if keeps else None
        out = x.new_zeros(len(x), *coefficients.shape[1:])
        for weights, term in zip(
            coefficients, chebyshev_basis(matrix, x, len(coefficients)), strict=True
        ):
            out.addcmul_(weights, term.unsqueeze(1))
            if keeps:
                ctx.basis.append(term)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        x, coefficients = ctx.saved_tensors
        gradient = gradients[0]
        of_x = of_coefficients = None
        if ctx.needs_input_grad[1]:
            of_x = _clenshaw(ctx.matrix, coefficients, gradient)
        if ctx.needs_input_grad[2]:
            # With create_graph=True the terms need a gradient, which the kept ones do not have.
            kept = None if torch.is_grad_enabled() else ctx.basis
            basis = kept or chebyshev_basis(ctx.matrix, x, len(coefficients))
            of_coefficients = torch.stack(
                [torch.einsum("nc,nmc->mc", term, gradient) for term in basis]
            )
        return None, of_x, of_coefficients


def chebyshev_basis(matrix: Operator, x: Tensor, count: int) -> Iterator[Tensor]:
    """Yield ``T_0(M) x, T_1(M) x, …``, one product each."""
    before, current = x, x
    for k in range(count):
        if k == 1:
            current = sparse_product(matrix, x)
        elif k > 1:
            before, current = current, torch.sub(2.0 * sparse_product(matrix, current), before)
        yield current


def _clenshaw(matrix: Operator, coefficients: Tensor, y: Tensor) -> Tensor:
    """``Σ_k T_k(M) Σ_m c_km ⊙ y_m``."""
    after, current = y.new_zeros(()), y.new_zeros(())
    for k in range(len(coefficients) - 1, -1, -1):
        term = (coefficients[k] * y).sum(dim=1)
        if k < len(coefficients) - 1:
            product = sparse_product(matrix, current)
            term = torch.add(term, product, alpha=2.0 if k else 1.0) - after
        after, current = current, term
    return current
