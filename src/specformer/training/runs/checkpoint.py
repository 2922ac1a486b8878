r"""A loop's whole state on disk, so that a killed run goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specformer.errors import RunError
from specformer.files import replacing

_FORMAT = "specformer.checkpoint/1"
_RANDOM = "random"


def numbered(stem: Path, run: int | str) -> Path:
    """The checkpoint file of one of several runs, by its number or its name.

    Example:
        >>> numbered(Path("folder/checkpoint"), 7).name
        'checkpoint-007.safetensors'
    """
    part = f"{run:03d}" if isinstance(run, int) else run
    return stem.with_name(f"{stem.name}-{part}.safetensors")


class Checkpoint:
    """Saves and restores named tensors in place, with the state of the random generators.

    Args:
        path: the file.
        purpose: what the state belongs to; a file made for anything else is refused.
    """

    def __init__(self, path: str | Path, purpose: str) -> None:
        self.path = Path(path)
        self.purpose = purpose

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        """Write everything, atomically."""
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        state[f"{_RANDOM}.cpu"] = torch.get_rng_state()
        if any(tensor.is_cuda for tensor in tensors.values()):
            state[f"{_RANDOM}.cuda"] = torch.cuda.get_rng_state()
        with replacing(self.path) as part:
            save_file(state, part, metadata={"format": _FORMAT, "purpose": self.purpose})

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> bool:
        """Copy a saved state into ``tensors``; False if there is none yet."""
        if not self.path.is_file():
            return False
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise RunError(f"{self.path}: damaged checkpoint ({error}); remove it.") from error
        if header.get("format") != _FORMAT or header.get("purpose") != self.purpose:
            raise RunError(f"{self.path}: belongs to another run, other data or other settings.")
        if {name for name in saved if not name.startswith(f"{_RANDOM}.")} != set(tensors):
            raise RunError(f"{self.path}: holds another model's state.")
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
        torch.set_rng_state(saved[f"{_RANDOM}.cpu"])
        if f"{_RANDOM}.cuda" in saved:
            torch.cuda.set_rng_state(saved[f"{_RANDOM}.cuda"])
        return True
