r"""The MPI program behind :mod:`.slepc`: ``mpirun -n RANKS python slepc_program.py FOLDER…``.

It needs numpy, petsc4py and slepc4py only, so that any Python that has them can run it. Each folder
holds a problem and receives its answer. Every rank reads and writes its own rows.

A Krylov method started from one vector can miss copies of a repeated eigenvalue. So what was found
is deflated and the rest searched again, until nothing at or before the cut is left. For a large
graph the method uses a polynomial of the Laplacian (:mod:`.slepc_filter`).
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np

#: Prefix of lines for :mod:`.slepc`; other lines come from MPI.
MARK = "specformer:"
#: Residual norm of every pair returned; copies of one eigenvalue agree to twice as many digits.
ACCURACY = 1e-11
#: Residual norm that suffices to tell whether the best remaining pair is beyond the cut. If it is
#: within ten times as much of the cut, it is computed in full.
_GLANCE = 1e-6
#: How many eigenvalues are asked for beyond those wanted, to see where a group ends.
_GUARD = 8
#: Smallest Krylov basis, and the largest that grows between restarts.
_BASIS, _GROWTH = 40, 500
#: A graph with fewer nodes is not filtered.
_FILTERED = 2_000
#: After this many restarts without a new pair, a filter is given up if its pairs are all found.
_STALLED = 3


class RefusedError(Exception):
    """All ranks agree that this problem has no answer; other problems may still be solved."""


def main(folders: list[str]) -> None:
    """Solve the problems in these folders, one after the other."""
    import slepc4py

    slepc4py.init([])  # options for PETSc come through PETSC_OPTIONS
    from petsc4py import PETSc
    from slepc4py import SLEPc

    if np.dtype(PETSc.ScalarType) != np.float64:
        raise RuntimeError(
            f"this PETSc computes with {np.dtype(PETSc.ScalarType)}; "
            "point PETSC_DIR and SLEPC_DIR to a build with real numbers in double precision"
        )
    versions = [".".join(map(str, part.Sys.getVersion())) for part in (SLEPc, PETSc)]
    if PETSc.COMM_WORLD.rank == 0:
        say("note", "SLEPc {} over PETSc {} on {} ranks".format(*versions, PETSc.COMM_WORLD.size))
    for folder in folders:
        answer(Path(folder))


def say(kind: str, text: object) -> None:
    """Write one line for :mod:`.slepc`, in one call so that lines of ranks do not mix."""
    sys.stderr.flush()
    os.write(2, f"{MARK} {kind} {text}\n".encode())


def answer(folder: Path) -> None:
    """Read a problem, solve both ends, write values and each rank's rows of the vectors."""
    try:
        problem = json.loads((folder / "problem.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RuntimeError(
            f"{folder}: no problem here; set TMPDIR to a folder that all machines share"
        ) from error
    laplacian = read_laplacian(folder, problem)
    first, last = laplacian.getOwnershipRange()
    rank = laplacian.comm.rank
    low = high = (np.empty(0), np.empty((last - first, 0)))
    refused = None
    try:
        if problem["lowest"]:
            low = End(folder, "lowest", problem, laplacian).solve()
        if problem["highest"]:
            high = End(folder, "highest", problem, laplacian).solve()
    except RefusedError as error:
        refused = str(error)
    values, num_low = np.concatenate([low[0], high[0]]), len(low[0])
    rows = np.concatenate([low[1], high[1]], axis=1) if high[1].size else low[1]
    del low, high  # the largest arrays
    told: dict[str, Any] = {"refused": refused, "lowest": num_low}
    if problem["out"] is None or refused:
        np.save(folder / f"vectors-{rank:05d}.npy", rows)
    else:
        # Beside this file, which is run and not imported; so is slepc_filter.
        from slepc_rows import checked, write_shards  # type: ignore[import-not-found]

        told |= checked(problem["out"], laplacian, values, rows, num_low)
        kept = write_shards(problem["out"], rows, first, rank)
        (folder / f"shards-{rank:05d}.json").write_text(json.dumps(kept), encoding="utf-8")
    if rank == 0:
        np.save(folder / "values.npy", values)
        (folder / "answer.json").write_text(json.dumps(told), encoding="utf-8")


def read_laplacian(folder: Path, problem: dict[str, Any]) -> Any:
    """The matrix in blocks of rows; a rank reads only the pages that hold its rows."""
    from petsc4py import PETSc

    n, comm = problem["num_nodes"], PETSc.COMM_WORLD
    if comm.size != problem["ranks"]:
        raise RuntimeError(
            f"{problem['ranks']} ranks were started, but each finds itself among {comm.size}: "
            "mpirun and PETSc belong to different MPIs; name the right one in SPECFORMER_MPIRUN"
        )
    first, last = (n * place // comm.size for place in (comm.rank, comm.rank + 1))
    starts = np.load(folder / "indptr.npy", mmap_mode="r")[first : last + 1]
    inside = slice(int(starts[0]), int(starts[-1]))
    rows = (
        (starts - starts[0]).astype(PETSc.IntType),
        np.load(folder / "indices.npy", mmap_mode="r")[inside].astype(PETSc.IntType),
        np.array(np.load(folder / "data.npy", mmap_mode="r")[inside]),
    )
    matrix = PETSc.Mat().createAIJ(((last - first, n), (last - first, n)), csr=rows, comm=comm)
    matrix.assemble()
    return matrix


class Moved:
    r"""The operator :math:`L + \sigma S S^\top`: eigenvectors S known beforehand are moved away.

    S has at most one entry per row, so this is cheap for any number of vectors.
    """

    def __init__(self, laplacian: Any, known: Any, shift: float) -> None:
        self._laplacian, self._known, self._shift = laplacian, known, shift
        self._coefficients = known.createVecRight()

    def mult(self, _: Any, x: Any, y: Any) -> None:
        """Compute y = (L + σ S Sᵀ) x; PETSc calls it."""
        self._laplacian.mult(x, y)
        self._add(x, y, self._shift)

    def project(self, x: Any) -> None:
        """Remove the known directions from x."""
        self._add(x, x, -1.0)

    def _add(self, x: Any, y: Any, factor: float) -> None:
        self._known.multTranspose(x, self._coefficients)
        self._coefficients.scale(factor)
        self._known.multAdd(self._coefficients, y, y)


class End:
    """One end of the spectrum. ``sign`` is 1 for the smallest pairs, −1 for the largest."""

    def __init__(self, folder: Path, end: str, problem: dict[str, Any], laplacian: Any) -> None:
        self.sign = 1 if end == "lowest" else -1
        self.count, self.equal = problem[end], problem["equal"]
        self.before = 0 if end == "lowest" else problem["lowest"]
        self.wanted = problem["lowest"] + problem["highest"]
        self.num_nodes, self.laplacian = problem["num_nodes"], laplacian
        self.num_known, self.complete = problem[f"known_{end}"], problem[f"complete_{end}"]
        first, last = laplacian.getOwnershipRange()
        self.column = np.array(np.load(folder / f"column-{end}.npy", mmap_mode="r")[first:last])
        self.entry = np.array(np.load(folder / f"entry-{end}.npy", mmap_mode="r")[first:last])
        self.generator = np.random.default_rng([0, laplacian.comm.rank])
        self.moved: Moved | None = None
        self.operator = self._operator() if self.num_known else laplacian
        self.filter: Any = None  #: amplifies this end, as long as that is useful
        #: Found so far: values measured from this end, λ or 2 − λ, and vectors.
        self.values: list[float] = []
        self.vectors: list[Any] = []

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        """At least ``count`` values, ascending, and this rank's rows of their vectors."""
        if self.count > self.num_known or not self.complete:
            self._search(max(1, self.count - self.num_known))
        values = np.concatenate([np.zeros(self.num_known), self.values])
        order = np.argsort(values, kind="stable")
        gaps = np.flatnonzero(np.diff(values[order][self.count - 1 :]) > self.equal)
        order = order[: self.count + int(gaps[0]) if len(gaps) else len(order)][:: self.sign]
        found = values[order]
        return (found if self.sign > 0 else 2.0 - found), self._rows(order)

    def _rows(self, order: np.ndarray) -> np.ndarray:
        """Local rows of known vectors (positions below ``num_known``) and found ones."""
        rows = np.zeros((len(self.column), len(order)))
        place = np.full(self.num_known + 1, -1)  # the last entry serves nodes in no known vector
        places = np.flatnonzero(order < self.num_known)
        place[order[places]] = places
        inside = np.flatnonzero(place[self.column] >= 0)
        rows[inside, place[self.column[inside]]] = self.entry[inside]
        for target, position in enumerate(order):
            if position >= self.num_known:
                vector = self.vectors[position - self.num_known]
                rows[:, target] = vector.getArray(readonly=True)
                vector.destroy()
        return rows

    def _search(self, wanted: int) -> None:
        """Find pairs until ``wanted`` and every copy of the last of them are certain."""
        if self.num_nodes >= _FILTERED:
            self.filter = self._filtered(wanted + _GUARD)
        self._ask(wanted + _GUARD)
        extra = _GUARD
        while True:
            edge = self.values[wanted - 1] + self.equal
            self._keep(edge)
            if self._best_left() > edge + 10 * _GLANCE:
                return
            found = len(self.values)
            self._ask(extra, edge)
            if np.searchsorted(self.values, edge, side="right") == found:
                return  # close to the cut but beyond it
            # One vector finds one copy; a larger basis restarts from others.
            extra = min(2 * extra, _GROWTH)

    def _keep(self, edge: float) -> None:
        """Drop pairs beyond the edge, so that deflation costs less."""
        count = int(np.searchsorted(self.values, edge, side="right"))
        if 2 * (self.num_known + count) > self.num_nodes:
            raise RefusedError(
                "the eigenvalue at the cut is repeated too often: it comes with more than half of "
                f"the {self.num_nodes:,} eigenpairs"
            )
        for vector in self.vectors[count:]:
            vector.destroy()
        del self.values[count:], self.vectors[count:]

    def _filtered(self, wanted: int) -> Any:
        """A filter for this many pairs, or None if it would not help."""
        from slepc_filter import filter_for  # type: ignore[import-not-found]

        project = self.moved.project if self.moved else lambda _: None
        found = filter_for(self.laplacian, wanted, self.sign, project, self.generator)
        if found and self.laplacian.comm.rank == 0:
            say("note", f"{found.degree} products a step filter pairs within {found.edge:.4f}")
        return found

    def _ask(self, extra: int, edge: float = np.inf) -> None:
        """Find further pairs, orthogonal to those found; pairs beyond the edge are not needed."""
        extra = min(extra, self.num_nodes - self.num_known - len(self.values))
        solver, beyond = self._krylov(extra, ACCURACY, edge)
        for place in range(solver.getConverged()):
            x, y = self.laplacian.createVecs()
            if np.isfinite(self._place(solver.getEigenpair(place, x))):
                self.operator.mult(x, y)
                value = y.dot(x)
                self.values.append(value if self.sign > 0 else 2.0 - value)
                self.vectors.append(x)
                extra -= 1
            y.destroy()
        solver.destroy()
        order = np.argsort(self.values, kind="stable")
        self.values, self.vectors = (
            [part[place] for place in order] for part in (self.values, self.vectors)
        )
        if self.filter and extra > 0 and not beyond:
            self.filter = None  # too few pairs are within its edge: find the others without it
            self._ask(extra, edge)

    def _best_left(self) -> float:
        """The outermost eigenvalue outside what was found, roughly."""
        solver, _ = self._krylov(1, _GLANCE)
        value = self._place(solver.getEigenvalue(0)) if solver.getConverged() else np.inf
        solver.destroy()
        if self.filter and np.isinf(value):
            self.filter = None
            return self._best_left()
        return value

    def _place(self, value: complex) -> float:
        """Where an eigenvalue of the operator is, from this end; inf if a filter cannot tell."""
        if self.filter:
            return float(self.filter.place(value.real))
        return float(value.real if self.sign > 0 else 2.0 - value.real)

    def _krylov(self, count: int, accuracy: float, edge: float = np.inf) -> tuple[Any, list[float]]:
        """Krylov–Schur for ``count`` pairs at this end, orthogonal to those found; it is run.

        It stops early when a pair beyond the edge has converged, because pairs converge from the
        end inwards; the returned list then holds its value. A filter may find fewer pairs.
        """
        from slepc4py import SLEPc

        room = self.num_nodes - len(self.values)
        solver = SLEPc.EPS().create(self.laplacian.comm)
        solver.setOperators(self.filter.operator if self.filter else self.operator)
        solver.setProblemType(SLEPc.EPS.ProblemType.HEP)
        solver.setType(SLEPc.EPS.Type.KRYLOVSCHUR)
        which, test = SLEPc.EPS.Which, SLEPc.EPS.Conv
        lowest = self.sign > 0 and not self.filter
        solver.setWhichEigenpairs(which.SMALLEST_REAL if lowest else which.LARGEST_REAL)
        # Relative to p, a residual of the filter is at most a quarter of the Laplacian's.
        solver.setConvergenceTest(test.REL if self.filter else test.ABS)
        # If every step deflates many vectors, a larger basis with fewer steps is faster.
        basis = min(max(2 * count + 1, _BASIS, len(self.values) // 4), count + _GROWTH, room)
        solver.setDimensions(count, basis, min(basis, _GROWTH))
        tolerance = accuracy / 4 if self.filter else accuracy
        solver.setTolerances(tolerance, max(1000, 20 * self.num_nodes // basis))
        # One rank solves the small problems and sends the result, so that all ranks decide alike
        # on any machine.
        solver.getDS().setParallel(SLEPc.DS.ParallelType.SYNCHRONIZED)
        start = self.laplacian.createVecRight()
        start.setArray(self.generator.standard_normal(len(self.column)))
        if self.moved is not None:
            self.moved.project(start)
        solver.setInitialSpace(start)
        if self.vectors:
            solver.setDeflationSpace(self.vectors)
        beyond = self._watch(solver, edge)
        solver.setFromOptions()
        solver.solve()
        if solver.getConverged() < count and not beyond and not self.filter:
            raise RefusedError(
                f"SLEPc did not converge: {solver.getConverged():,} of {count:,} eigenpairs "
                f"after {solver.getIterationNumber():,} restarts"
            )
        return solver, beyond

    def _watch(self, solver: Any, edge: float) -> list[float]:
        """Report progress; the list returned will get a value beyond the edge, if one converges."""
        from slepc4py import SLEPc

        found, beyond, reasons = self.num_known + len(self.values), [], SLEPc.EPS.ConvergedReason
        stalled = [0, 0]  # pairs, and restarts without another pair or a Ritz value within

        def monitor(_: Any, __: int, done: int, values: Any, *___: Any) -> None:
            if self.laplacian.comm.rank == 0:
                converged = self.before + min(found + done, self.count)
                say("progress", f"{converged} {self.wanted}")
            if done and (last := self._place(values[done - 1])) > edge:
                beyond.append(last)
            ended = done < len(values) and np.isinf(self._place(values[done]))
            stalled[:] = done, stalled[1] + 1 if ended and done == stalled[0] else 0

        def stopping(_: Any, steps: int, limit: int, done: int, wanted: int) -> int:
            if done >= wanted:
                return int(reasons.CONVERGED_TOL)
            if beyond or stalled[1] >= _STALLED:
                return int(reasons.CONVERGED_USER)
            return int(reasons.DIVERGED_ITS if steps >= limit else reasons.CONVERGED_ITERATING)

        solver.setMonitor(monitor)
        solver.setStoppingTest(stopping)
        return beyond

    def _operator(self) -> Any:
        """The Laplacian with this end's known vectors moved past the other end."""
        from petsc4py import PETSc

        inside = self.column >= 0
        rows = (
            np.concatenate([[0], np.cumsum(inside)]).astype(PETSc.IntType),
            self.column[inside].astype(PETSc.IntType),
            self.entry[inside],
        )
        comm, sizes = self.laplacian.comm, self.laplacian.getSizes()
        shape = (sizes[0], (PETSc.DECIDE, self.num_known))
        known = PETSc.Mat().createAIJ(shape, csr=rows, comm=comm)
        known.assemble()
        self.moved = Moved(self.laplacian, known, 3.0 * self.sign)
        operator = PETSc.Mat().createPython(sizes, self.moved, comm=comm)
        operator.setUp()
        return operator


def run() -> None:
    """Let an error of one rank end all ranks, with one line instead of a traceback."""
    try:
        main(sys.argv[1:])
    except BaseException as error:
        reason = (str(error).splitlines() or [""])[0].strip().rstrip(".")
        kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
        say("error", f"{kind}{reason} (on {socket.gethostname()})")
        # Skip MPI_Finalize: mpirun then stops the ranks that wait for this one.
        os._exit(1)


if __name__ == "__main__":
    run()
