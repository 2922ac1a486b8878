r"""A loop's whole state on disk, so that a stopped run goes on; and the signals that stop it."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from specformer.errors import RunError
from specformer.files.checked_tensors import read_tensors, write_tensors

logger = logging.getLogger(__name__)

_FORMAT = "specformer.checkpoint/2"
_RANDOM = "random."


def numbered(stem: Path, run: int | str) -> Path:
    """The checkpoint file of one of several runs, by its number or its name."""
    part = f"{run:03d}" if isinstance(run, int) else run
    return stem.with_name(f"{stem.name}-{part}.safetensors")


class Checkpoint:
    """Saves and restores named tensors in place, with the state of the random generators.

    ``purpose`` says what the state belongs to; a file made for anything else is refused.
    """

    def __init__(self, path: str | Path, purpose: str) -> None:
        self.path = Path(path)
        self.purpose = purpose

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        """Write everything, atomically and with a checksum."""
        on_gpu = any(tensor.is_cuda for tensor in tensors.values())
        state = {**tensors, **random_state(on_gpu)}
        write_tensors(self.path, state, _FORMAT, {"purpose": self.purpose})

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], **most: int) -> bool:
        """Copy a saved state into ``tensors``; False if there is no file yet.

        A damaged state, or one of other names, shapes or types, is refused before anything is
        copied. ``most`` names counts and the largest value that each can have.
        """
        if not self.path.is_file():
            return False
        try:
            saved, words = read_tensors(
                self.path, "checkpoint", _FORMAT, refused=RunError, mapped=False
            )
        except RunError as error:
            raise self._refused(str(error).removesuffix(".")) from error
        if words.get("purpose") != self.purpose:
            raise self._refused(
                f"{self.path}: belongs to another run, other data or other settings"
            )
        random = {name: saved.pop(name) for name in list(saved) if name.startswith(_RANDOM)}
        expected = random_state(f"{_RANDOM}cuda" in random and torch.cuda.is_available())
        if _described(saved) != _described(tensors) or _described(random) != _described(expected):
            raise self._refused(f"{self.path}: holds another model's state")
        for name, limit in most.items():
            if not 0 <= int(saved[name]) <= limit:
                raise self._refused(f"{self.path}: {name} {int(saved[name])} is not in 0..{limit}")
        try:
            torch.Generator().set_state(random[f"{_RANDOM}cpu"])
        except RuntimeError as error:
            raise self._refused(f"{self.path}: the random generator's state is damaged") from error
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
        for name, limit in most.items():
            logger.info("%s: goes on after epoch %d of %d", self.path, int(saved[name]), limit)
        set_random_state(random)
        return True

    def _refused(self, why: str) -> RunError:
        return RunError(f"{why}; remove it to start over, or resume with --from-scratch.")


def random_state(on_gpu: bool) -> dict[str, Tensor]:
    """The states of the random generators, by name."""
    state = {f"{_RANDOM}cpu": torch.get_rng_state()}
    return state | ({f"{_RANDOM}cuda": torch.cuda.get_rng_state()} if on_gpu else {})


def set_random_state(state: Mapping[str, Tensor]) -> None:
    """Let the generators go on from what :func:`random_state` gave."""
    torch.set_rng_state(state[f"{_RANDOM}cpu"])
    if f"{_RANDOM}cuda" in state:
        torch.cuda.set_rng_state(state[f"{_RANDOM}cuda"])


def _described(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}


#: After Ctrl-C an epoch may take about this many seconds to end.
_PATIENCE = 5.0


class Interruption:
    """Lets a signal that would end the process wait until the present epoch is done.

    :attr:`asked` is then true, the epoch can be saved, and :meth:`let_through` hands the signal on.
    A second signal, or one in epochs of more than a few seconds, ends the process at once. Signals
    that are ignored, or have no handler, stay as they are.
    """

    def __init__(self, active: bool = True) -> None:
        self._active = active and current_thread() is main_thread()
        self._usual: dict[int, Any] = {}
        self._heard: int | None = None
        self._began: float | None = None
        self._took: float | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal waits."""
        return self._heard is not None

    def begin_epoch(self) -> None:
        """Note the start of an epoch, to know how long epochs take."""
        now = time.monotonic()
        if self._began is not None:
            self._took = now - self._began
        self._began = now

    def let_through(self) -> None:
        """Hand a signal that waits on to its usual handler, which as a rule ends the process."""
        if (number := self._heard) is not None:
            self._heard = None
            self._usual[number](number, None)

    def __enter__(self) -> Self:
        names = ("SIGINT", "SIGTERM", "SIGHUP") if self._active else ()
        for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
            if callable(usual := signal.getsignal(number)):
                self._usual[number] = usual
                signal.signal(number, self._hear)
        return self

    def _hear(self, number: int, frame: FrameType | None) -> None:
        short = self._took is not None and self._took <= _PATIENCE
        if short and self._heard is None:
            self._heard = number
        else:
            self._heard = None
            self._usual[number](number, frame)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, usual in self._usual.items():
            if signal.getsignal(number) == self._hear:  # and not what the usual one has set
                signal.signal(number, usual)
        if kind is None:
            self.let_through()
