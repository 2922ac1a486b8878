r"""Memory that is free for this process, on the host or on a GPU."""

from __future__ import annotations

import torch

from specformer.files.host_memory import free_bytes, gib

__all__ = ["available_bytes", "gib"]


def available_bytes(device: torch.device) -> int:
    """Memory free on a device now, with what PyTorch holds there but does not use.

    On the host, at most what a scheduler or a container grants to this process.
    """
    if device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + idle
    return free_bytes()
