r"""The device to work on, and the memory that is free there."""

from __future__ import annotations

import torch

from specformer.errors import SpectrumError
from specformer.files.host_memory import free_bytes, gib

__all__ = ["available_bytes", "gib", "usable_device"]


def usable_device(device: torch.device | str | None) -> torch.device:
    """The device asked for, by default the CPU; refused if PyTorch does not see it.

    Example:
        >>> usable_device(None)
        device(type='cpu')
        >>> usable_device("gpu")
        Traceback (most recent call last):
        specformer.errors.SpectrumError: device='gpu': choose 'cpu' or 'cuda'.
    """
    try:
        target = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):
        target = torch.device("meta")
    if target.type not in ("cpu", "cuda"):  # solves need float64, which others may not have
        raise SpectrumError(f"device={device!r}: choose 'cpu' or 'cuda'.")
    count = torch.cuda.device_count() if target.type == "cuda" else 0
    if target.type == "cuda" and (target.index or 0) >= count:
        seen = f"{count} CUDA devices" if count else "no CUDA device"
        raise SpectrumError(f"device={str(target)!r}: PyTorch sees {seen} here.")
    return target


def available_bytes(device: torch.device) -> int:
    """Free memory of a device now, including what PyTorch has reserved there but does not use.

    On the host, at most what a scheduler or a container grants to this process.
    """
    if device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + idle
    return free_bytes()
