r"""Filtered subspace iteration for the top of one operator: the loop of :mod:`.chebyshev`."""

from __future__ import annotations

import json
import logging
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.files.checked_tensors import read_tensors, write_tensors
from specformer.spectrum.eigenpairs import EQUAL, gram
from specformer.spectrum.solvers.chebyshev.blocks import (
    WIDE,
    block_width,
    empty_block,
    fill_randomly,
    orthonormalise,
    permute_columns,
    project_out,
    rotate,
)
from specformer.spectrum.solvers.chebyshev.filtering import (
    Operator,
    Watch,
    allowed,
    estimate_values,
    group_end,
    growth,
    lock_limits,
    needed,
)
from specformer.spectrum.solvers.exact import KnownVectors
from specformer.spectrum.solvers.problem import Progress

logger = logging.getLogger(__name__)

FORMAT = "specformer.subspace/2"
#: Seconds between saved states.
SAVE_EVERY = 60.0
#: By precision of the block: the residual ‖Lu − λu‖ at which a pair has converged.
RESIDUAL = {torch.float32: 1e-5, torch.float64: 1e-10}
#: How much a filter may amplify the top of random columns: their edge must survive rounding.
_FIRST_LIFT = 1e6
_MIN_DEGREE, _MAX_DEGREE = 6, 400
_MAX_STEPS = 100
#: Seed of the random columns: the same solve gives the same numbers.
_SEED = 0
#: How often a stalled solve is changed before it gives up.
_MAX_STALLS = 4
#: A start that is not refined after so many steps, and may lack pairs, is dropped.
_FEW_STEPS = 5
#: In this many first steps random probes set the edge, not the Ritz values.
_TRUSTING = 2


class SubspaceSearch:
    """The largest ``count`` eigenpairs of an operator, and all others equal to the last of them.

    The basis holds known and converged vectors first, then the active block, in one allocation.
    """

    def __init__(
        self,
        operator: Operator,
        known: KnownVectors,
        count: int,
        *,
        most: int,
        state: Path | None,
        progress: Progress,
    ) -> None:
        self.operator, self.known, self.count = operator, known, count
        #: A block wider than this is not widened again.
        self._most = most
        self.steps = 0
        self._progress = progress
        #: The file of the unfinished search, and when it was last written.
        self._state, self._saved = state, time.monotonic()
        self._generator = torch.Generator(operator.device).manual_seed(_SEED)
        self._tolerance, self._equal = RESIDUAL[operator.dtype], EQUAL[operator.dtype]
        self._basis = torch.empty(0)
        self._locked = 0
        self._values = self._residuals = np.empty(0)
        #: Log of how much all filters so far amplified the cut against the damped rest.
        self._reach = 0.0
        #: Estimates of the cut and of the end of the block from random probes.
        self._cut = self._estimate = 0.0
        #: Edge of the last filter, below which it damps.
        self._damped = 0.0
        #: Columns ``[n, h]`` that the block began with; the others were random. None: all were.
        self._given: Tensor | None = None
        self._watch = Watch()

    def run(self, start: Tensor | None = None) -> tuple[np.ndarray, Tensor]:
        """Eigenvalues ``[q]`` descending and eigenvectors ``[n, q]``."""
        if self.known.complete and self.count <= self.known.count:
            self._allocate(self.known.count)
            return np.ones(self.known.count), self._basis
        if not self._resume():
            self._begin(start)
        for self.steps in range(_MAX_STEPS):
            self._lock()
            end, guard = group_end(self._values, self.count, self._equal)
            self._progress(min(self._locked, end), end)
            settled = end < len(self._values) and self._settled(end, guard)
            if (settled or self.steps > _FEW_STEPS) and self._may_lack(end):
                logger.info("chebyshev: step %d, the start may lack pairs: again", self.steps)
                self._sort(end)
                self._begin(self._basis if settled else None)
                continue
            if settled:
                return self._take(end)
            if self._complete:
                return self._take(len(self._values))
            if time.monotonic() - self._saved >= SAVE_EVERY:
                self._save()
            if self._locked == len(self._values) or self._crowded(end) or self._too_narrow(end):
                if len(self._values) > self._most:
                    break
                self._widen()
            elif self._watch.stalled(self._locked, self._pending(end)):
                self._unstick(end)
            else:
                self._improve(end)
        raise self._failure(end)

    # --- the block ------------------------------------------------------------------------------

    @property
    def _active(self) -> Tensor:
        return self._basis[:, self._locked :]

    @property
    def _complete(self) -> bool:
        """Whether the basis spans the whole space: then its Ritz vectors are eigenvectors."""
        return self._basis.shape[1] == self.operator.shape[0]

    def _value_at(self, rank: int) -> float:
        """The Ritz value of this rank, counted from the top; the last one if there are fewer."""
        return float(-np.sort(-self._values)[min(rank, len(self._values)) - 1])

    def _allocate(self, width: int) -> None:
        """Allocate a basis of known vectors and random columns."""
        self._basis = torch.empty(0)  # frees an older one
        self._basis = empty_block(self.operator, width)
        self._locked = self.known.count
        self.known.write(self._basis)
        fill_randomly(self._active, self._generator)
        self._values, self._residuals = np.ones(width), np.zeros(width)

    def _begin(self, start: Tensor | None) -> None:
        """Begin with the first columns of ``start``; those beyond the cut are always random."""
        n, found = self.operator.shape[0], self.known.count
        self._allocate(min(n, found + block_width(max(self.count - found, 1))))
        self._probe()
        self._reach, self._given, kept = 0.0, None, 0
        if start is not None:
            given = start[:, : self.count].to(self._basis, copy=True)
            project_out(given, self._basis[:, :found])
            self._given = given[:, given.norm(dim=0) > 0.5][:, : max(self.count - found, 0)]
            kept = self._given.shape[1]
            self._basis[:, found : found + kept] = self._given
        self._filter_first(kept)

    def _probe(self) -> None:
        """Estimate from random vectors where the cut and the end of the block lie."""
        ranks = (self.count, self._basis.shape[1])
        self._cut, self._estimate = estimate_values(self.operator, ranks, self._generator)

    def _filter_first(self, kept: int = 0) -> None:
        """Filter random columns as far as rounding allows, without the first ``kept`` columns."""
        if self._complete:
            self._ritz()
            return
        edge = _inside(self._estimate)
        degree = min(_MAX_DEGREE, math.ceil(math.log(_FIRST_LIFT) / growth(1.0, edge)))
        degrees = np.full(self._active.shape[1], degree)
        degrees[:kept] = 0
        self._filter(edge, degrees)

    def _widen(self) -> None:
        """Double the number of columns beyond the cut, with random columns."""
        n, width = self._basis.shape
        extra = min(n - width, max(width - self.count, 16))
        logger.debug("chebyshev: %d columns are too few, %d more", width, extra)
        wider = empty_block(self.operator, width + extra)
        wider[:, :width] = self._basis
        self._basis = wider
        fill_randomly(self._basis[:, width:], self._generator)
        self._values = np.append(self._values, np.zeros(extra))
        self._residuals = np.append(self._residuals, np.ones(extra))
        self._probe()
        self._reach = 0.0
        self._filter_first()

    def _pending(self, end: int) -> np.ndarray:
        """Residuals of the wanted pairs that are not locked; of the next pair if all are."""
        wanted = int((self._values[self._locked :] >= self._value_at(end)).sum())
        return self._residuals[self._locked :][: max(wanted, 1)]

    def _unstick(self, end: int) -> None:
        """Rotate or widen the block when steps make no progress."""
        stalls, pending = self._watch.stalls, len(self._pending(end))
        if stalls > _MAX_STALLS:
            raise self._failure(end)
        change = "rotating all pairs again" if stalls % 2 else "widening the block"
        logger.info("chebyshev: step %d, %d pairs do not converge: %s", self.steps, pending, change)
        if stalls % 2:
            self._locked = self.known.count
            self._ritz()
        else:
            self._widen()

    def _failure(self, end: int) -> SpectrumError:
        """An error that says why the search failed."""
        missing, after = end - self._locked, f"after {self.steps + 1} steps"
        why = f"{missing:,} of {end:,} eigenpairs stay above a residual of {self._tolerance:.0e}"
        if missing <= 0 or self._crowded(end):
            copies = int((abs(self._values - self._value_at(end)) <= self._equal).sum())
            why = f"the eigenvalue at the cut has at least {copies:,} copies, and no end was found"
            after += "; ask for fewer eigenpairs, so that it is not among them"
        return SpectrumError(f"{why}, {after}.")

    # --- one step -------------------------------------------------------------------------------

    def _improve(self, end: int) -> None:
        """Filter the active block, each range of columns as far as its residuals require."""
        values, residuals = self._values[self._locked :], self._residuals[self._locked :]
        cut = self._value_at(end)
        wanted = int((values >= cut).sum())
        edge = self._edge(wanted)
        # A Ritz value is a lower bound; at first the probes estimate convergence better.
        likely = np.maximum(values, self._cut) if self.steps < _TRUSTING else values
        rate = growth(likely, edge)
        target = 0.3 * self._lock_limits(cut, edge)
        if wanted <= 0:  # only the pair after the group has not converged
            wanted = 1
            target[0] = max(0.05 * (cut - values[0]), target[0])
        need = needed(residuals, target, rate, wanted)
        missing = self._reach_needed - self._reach
        lift = float(growth(cut, edge))
        if missing > 0.0 and lift > 0.0:
            need[wanted:] = np.maximum(need[wanted:], missing / lift)
        found = (self._values[: self._locked], self._residuals[: self._locked])
        most = allowed(values, edge, found, self._tolerance, self.operator.dtype)
        degrees = np.clip(np.minimum(need, most), _MIN_DEGREE, _MAX_DEGREE)
        span = f"edge {edge:.6f}, degrees {degrees.min():.0f} to {degrees.max():.0f}"
        logger.debug("chebyshev: step %d, %d of %d, %s", self.steps, self._locked, end, span)
        self._filter(edge, np.ceil(degrees))

    def _edge(self, wanted: int) -> float:
        """The edge below which to damp: at the end of the block, and below every wanted pair.

        Ritz values are lower bounds and at first far too low, so random probes estimate the edge.
        They are used for a few steps only, because their estimate may be above a wanted pair.
        """
        values, edge = self._values[self._locked :], self._estimate
        if self.steps >= _TRUSTING:
            edge = min(edge, float(values[min((wanted + len(values)) // 2, len(values) - 1)]))
        return _inside(max(float(values[-1]), edge))

    def _filter(self, edge: float, degrees: np.ndarray) -> None:
        """Filter the active block in place and take its Ritz vectors."""
        block, self._damped = self._active, edge
        for columns in self.operator.ranges(degrees):
            degree = int(degrees[columns].max())
            if degree:
                part = self.operator.filter(block[:, columns], edge, degree)
                block[:, columns] = part / part.norm(dim=0).clamp(min=1e-30)
        self._ritz()
        self._reach += float(degrees[-1] * growth(self._value_at(self.count), edge))

    def _ritz(self) -> None:
        """Orthonormalise, rotate the active block to Ritz vectors, and measure their residuals."""
        block = self._active
        products = orthonormalise(block, self._basis[:, : self._locked], self._generator)
        parts = block.split(WIDE, dim=1)
        projected = torch.cat([gram(block, self.operator @ part) for part in parts], dim=1)
        projected = (projected + projected.mT) / 2.0
        # A block stored in float32 is orthonormal up to rounding E; (I − E/2) corrects this to
        # first order.
        products.diagonal().sub_(1.0)
        slip = products @ projected / 2.0
        theta, frames = torch.linalg.eigh(projected - slip - slip.mT)
        theta, frames = theta.flip(0), frames.flip(1)
        rotate(block, frames - products @ frames / 2.0)
        errors = (
            self.operator @ part - part * own.to(part.dtype)
            for part, own in zip(parts, theta.split(WIDE), strict=True)
        )
        residuals = torch.cat([error.norm(dim=0, dtype=torch.float64) for error in errors])
        self._values[self._locked :] = theta.cpu().numpy()
        self._residuals[self._locked :] = residuals.cpu().numpy()

    def _lock_limits(self, cut: float, edge: float) -> np.ndarray:
        values = self._values[self._locked :]
        return lock_limits(values, cut, edge, self._tolerance, self.operator.dtype)

    def _lock(self) -> None:
        """Move converged pairs to the front of the active block and count them as locked."""
        values, residuals = self._values[self._locked :], self._residuals[self._locked :]
        cut = self._value_at(self.count)
        done = residuals <= self._tolerance
        if not done[values >= cut].all():  # locking these must not disturb the others
            done &= residuals <= self._lock_limits(cut, self._damped)
        if not done.any():
            return
        order = np.argsort(~done, kind="stable")
        permute_columns(self._active, order)
        for kept in (self._values, self._residuals):
            kept[self._locked :] = kept[self._locked :][order]
        self._locked += int(done.sum())

    # --- when it is done ------------------------------------------------------------------------

    @property
    def _reach_needed(self) -> float:
        """A random column holds about 1/√n of an eigenvector: amplify that far above the rest."""
        return math.log(math.sqrt(self.operator.shape[0])) + 4.0

    def _settled(self, end: int, guard: float) -> bool:
        """Whether all pairs up to the cut are locked and the next one is certainly beyond it."""
        order = np.argsort(-self._values, kind="stable")
        if order[:end].max(initial=-1) >= self._locked:
            return False
        beyond = float(self._residuals[order[end]])
        sure = beyond <= max(0.1 * guard, self._tolerance)
        return sure and self._reach >= self._reach_needed

    def _may_lack(self, end: int) -> bool:
        r"""Whether pairs up to the cut may be missing because the given columns lack them.

        Random columns find the largest of these pairs, one each. If some are left beyond the cut,
        nothing is missing. Of the wanted eigenvectors U, about
        :math:`\lVert U \rVert_F^2 - \lVert P U \rVert_F^2` come from random columns, where P
        projects onto the given ones.
        """
        if self._given is None:
            return False
        given, found = self._given, self.known.count
        wanted = self._values[found:] >= self._value_at(end)
        along = gram(given, self._basis[:, found:]) * given.new_tensor(wanted)
        inverse = torch.linalg.pinv(gram(given), hermitian=True)
        inside = float((inverse * (along @ along.mT)).sum())
        random = len(self._values) - found - given.shape[1]
        return bool(wanted.sum() - inside > random - 1)

    def _crowded(self, end: int) -> bool:
        """Whether copies of the cut fill the block, or half of its columns beyond the cut.

        The last columns converge so slowly that a wider block finds further copies sooner.
        """
        width = len(self._values)
        return end == width or 2 * end > self.count + width

    def _too_narrow(self, end: int) -> bool:
        """Whether the block ends so close to the cut that no filter can separate them."""
        edge = _inside(float(self._values.min()))
        return float(growth(self._value_at(end), edge)) * _MAX_DEGREE < 2.0

    def _sort(self, end: int) -> None:
        """Move the pairs up to the cut to the front; only they stay locked."""
        order = np.argsort(-self._values, kind="stable")
        permute_columns(self._basis, order)
        self._values, self._residuals = self._values[order], self._residuals[order]
        self._locked = end

    def _take(self, end: int) -> tuple[np.ndarray, Tensor]:
        self._sort(end)
        if self._state is not None and self._state.exists():
            self._save()  # this end is done, the other follows
        return self._values[:end], self._basis[:, :end]

    # --- saved state ----------------------------------------------------------------------------

    def _save(self) -> None:
        """Write the state, if it has a file; if that fails the search goes on."""
        if self._state is None:
            return
        tensors = {
            "basis": self._basis,
            "values": torch.as_tensor(self._values.copy()),
            "residuals": torch.as_tensor(self._residuals.copy()),
        }
        whole = self._given is None
        numbers = [self._locked, self._reach, (self._cut, self._estimate), whole]
        try:
            write_tensors(self._state, tensors, FORMAT, {"state": json.dumps(numbers)})
        except OSError as error:
            logger.warning("%s: the state is not saved (%s).", self._state, error.strerror or error)
        self._saved = time.monotonic()

    def _resume(self) -> bool:
        saved = saved_state(self._state, self.operator.shape[0], self.operator.dtype)
        if saved is None:
            return False
        tensors, (self._locked, self._reach, (self._cut, self._estimate), whole) = saved
        if not whole:
            self._begin(tensors["basis"])
            return True
        self._basis = tensors["basis"].to(self.operator.device)
        self._values, self._residuals = tensors["values"].numpy(), tensors["residuals"].numpy()
        self._damped = _inside(self._estimate)
        logger.info("chebyshev: continues with %d pairs converged", self._locked)
        return True


def saved_state(
    path: Path | None, num_nodes: int, dtype: torch.dtype
) -> tuple[dict[str, Tensor], list[Any]] | None:
    """The last saved state, or None; a file that is damaged or of another solve is ignored."""
    if path is None or not path.is_file():
        return None
    try:
        names = ("basis", "values", "residuals")
        tensors, words = read_tensors(path, "state", FORMAT, refused=SpectrumError, names=names)
        numbers = json.loads(words["state"])
    except (SpectrumError, KeyError, ValueError) as error:
        logger.warning("%s The solve starts again.", error)
        return None
    if tensors["basis"].shape[0] != num_nodes or tensors["basis"].dtype != dtype:
        logger.warning("%s: not a state of this solve, which starts again.", path)
        return None
    return tensors, numbers


def _inside(edge: float) -> float:
    return min(max(edge, -0.9), 1.0 - 1e-9)
