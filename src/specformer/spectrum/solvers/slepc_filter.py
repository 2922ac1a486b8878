r"""Part of the MPI program: a Chebyshev filter that amplifies one end of the spectrum.

With t = λ at the low end and 2 − λ at the high one, :math:`p(t) = T_d((2 + c - 2t) / (2 - c))`
stays within ±1 for t in [c, 2] and grows fast towards t = 0. A Krylov space of p needs far fewer
vectors to find the eigenvectors below the edge c. That saves time because most of a step is making
its vector orthogonal to all others, not the product with a sparse matrix.

Like :mod:`.slepc_program` it needs numpy and petsc4py only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: p(0). Rounding errors of this size hide pairs near the edge, where p is near 1.
_LIFT = 1e3
#: Pairs with p below this may be beyond the edge.
_LEAST = 1.5
#: Random vectors that the edge is estimated from, and Lanczos steps of each.
_PROBES, _STEPS = 4, 100
#: By estimate, this many times the wanted pairs are below the edge.
_ROOM = 1.5
#: The lowest degree of a filter, and a norm that is only rounding.
_DEGREE, _NOTHING = 3, 1e-10


class Filter:
    """The operator p without the known directions: PETSc calls ``mult``."""

    def __init__(
        self, laplacian: Any, project: Callable[[Any], None], sign: int, edge: float, degree: int
    ) -> None:
        from petsc4py import PETSc

        self._laplacian, self._project = laplacian, project
        self.edge, self.degree = edge, degree
        # The argument of T is slope λ + shift.
        slope, self._shift = -2.0 / (2.0 - edge), (2.0 + edge) / (2.0 - edge)
        self._slope = sign * slope
        if sign < 0:
            self._shift += 2.0 * slope
        self._vectors = laplacian.createVecRight(), laplacian.createVecRight()
        self.operator = PETSc.Mat().createPython(laplacian.getSizes(), self, comm=laplacian.comm)
        self.operator.setUp()

    def mult(self, _: Any, x: Any, y: Any) -> None:
        """Compute y = p x."""
        before, now = self._vectors
        x.copy(before)
        self._laplacian.mult(x, now)
        now.axpby(self._shift, self._slope, x)
        for _step in range(self.degree - 1):
            self._laplacian.mult(now, y)
            y.axpby(2.0 * self._shift, 2.0 * self._slope, now)
            y.axpy(-1.0, before)
            y.copy(before)
            before, now = now, before
        now.copy(y)
        self._project(y)

    def place(self, value: float) -> float:
        """The t at which p has this value; inf if that may be beyond the edge."""
        if value < _LEAST:
            return np.inf
        argument = np.cosh(np.arccosh(value) / self.degree)
        return float(1.0 + self.edge / 2.0 - argument * (1.0 - self.edge / 2.0))


def filter_for(
    laplacian: Any,
    count: int,
    sign: int,
    project: Callable[[Any], None],
    generator: np.random.Generator,
) -> Filter | None:
    """A filter for ``count`` pairs at an end, or None if it would gain nothing."""
    from petsc4py import PETSc

    edge = max(_edge(laplacian, _ROOM * count, sign, project, generator), 1e-6)
    degree = int(np.arccosh(_LIFT) / np.arccosh((2.0 + edge) / (2.0 - edge))) if edge < 1 else 0
    # All ranks use the first rank's values, because they must agree on any machine.
    own = np.array([edge, degree]) if laplacian.comm.rank == 0 else np.empty(0)
    vector = PETSc.Vec().createWithArray(own, comm=laplacian.comm)
    scatter, every = PETSc.Scatter.toAll(vector)
    scatter.scatter(vector, every, addv=False, mode=PETSc.ScatterMode.FORWARD)
    edge, degree = every.getArray(readonly=True)
    return Filter(laplacian, project, sign, edge, int(degree)) if degree >= _DEGREE else None


def _edge(
    laplacian: Any,
    count: float,
    sign: int,
    project: Callable[[Any], None],
    generator: np.random.Generator,
) -> float:
    """A rough estimate of the t below which ``count`` eigenvalues lie.

    Lanczos from a random vector gives Ritz values with weights that sum to 1; times n they count
    eigenvalues.
    """
    nodes, places, counts = laplacian.getSize()[0], [], []
    first, last = laplacian.getOwnershipRange()
    vector, before, product = (laplacian.createVecRight() for _ in range(3))
    for _ in range(_PROBES):
        vector.setArray(generator.standard_normal(last - first))
        project(vector)
        vector.normalize()
        diagonal, beside = [], [0.0]
        for _step in range(_STEPS):
            laplacian.mult(vector, product)
            diagonal.append(product.dot(vector))
            product.axpy(-diagonal[-1], vector)
            product.axpy(-beside[-1], before)
            beside.append(product.norm())
            if beside[-1] < _NOTHING:
                break
            vector.copy(before)
            product.copy(vector)
            vector.scale(1.0 / beside[-1])
        matrix = np.diag(diagonal) + np.diag(beside[1:-1], 1) + np.diag(beside[1:-1], -1)
        values, states = np.linalg.eigh(matrix)
        places.append(values if sign > 0 else 2.0 - values)
        counts.append(states[0] ** 2 * nodes / _PROBES)
    order = np.argsort(np.concatenate(places))
    reached = np.cumsum(np.concatenate(counts)[order]) >= count
    return float(np.concatenate(places)[order][reached.argmax()]) if reached.any() else 2.0
