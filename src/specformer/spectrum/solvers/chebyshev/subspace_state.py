r"""An unfinished solve on disk, so that a killed one continues where it stopped."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.files.checked_tensors import read_tensors, write_tensors

logger = logging.getLogger(__name__)

FORMAT = "specformer.subspace/1"


@dataclass(frozen=True)
class SubspaceState:
    """Ritz vectors ``[n, m]`` and values ``[m]``, the first ``locked`` of them converged."""

    basis: Tensor
    values: np.ndarray
    residuals: np.ndarray
    locked: int
    reach: float
    estimates: tuple[float, float]


class StateFile:
    """Where one end of a spectrum keeps its state; without a path nothing is ever written."""

    def __init__(self, path: Path | None, every: float) -> None:
        self.path = path
        self._every = every
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return self.path is not None and time.monotonic() - self._last >= self._every

    def save(self, state: SubspaceState) -> None:
        """Write a state, atomically and with a checksum; if that fails the solve goes on."""
        assert self.path is not None
        tensors = {
            "basis": state.basis,
            "values": torch.as_tensor(state.values.copy()),
            "residuals": torch.as_tensor(state.residuals.copy()),
        }
        text = json.dumps([state.locked, state.reach, state.estimates])
        try:
            write_tensors(self.path, tensors, FORMAT, {"state": text})
        except OSError as error:
            logger.warning("%s: no state is saved (%s).", self.path, error.strerror or error)
        self._last = time.monotonic()

    def finish(self, state: Callable[[], SubspaceState]) -> None:
        """Save the finished end if this solve has saved before: the other end follows."""
        if self.path is not None and self.path.exists():
            self.save(state())

    def load(self, num_nodes: int, dtype: torch.dtype) -> SubspaceState | None:
        """The state saved last, or None; a file that is damaged or of another solve is ignored."""
        if self.path is None or not self.path.is_file():
            return None
        try:
            tensors, words = read_tensors(self.path, "state", FORMAT, refused=SpectrumError)
            basis, (locked, reach, estimates) = tensors["basis"], json.loads(words["state"])
        except (SpectrumError, KeyError, ValueError) as error:
            logger.warning("%s The solve starts anew.", error)
            return None
        if basis.shape[0] != num_nodes or basis.dtype != dtype:
            logger.warning("%s: not a state of this solve; it starts anew.", self.path)
            return None
        values, residuals = tensors["values"].numpy(), tensors["residuals"].numpy()
        return SubspaceState(basis, values, residuals, locked, reach, tuple(estimates))

    def remove(self) -> None:
        """Delete the file, if any."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
