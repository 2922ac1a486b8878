r"""Triton kernels with an equivalent in plain PyTorch, and a check whether kernels can run.

The rest of the package calls the functions of this folder. Each function uses a kernel of
:mod:`specformer.kernels.triton` where :func:`usable` allows it, and plain PyTorch elsewhere: on
CPUs, in other precisions, and where Triton cannot compile (it comes with PyTorch's CUDA builds but
needs a C compiler, which small containers lack). Triton is imported when a kernel is launched,
because the import is slow and only helps on a GPU.

Sums are always taken in the same order, and shapes never depend on values. A training step made of
these functions can therefore be captured and replayed.
"""

from __future__ import annotations

import functools
import logging
import os
from importlib.util import find_spec

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

#: Device types that kernels run on. Tests add the CPU, where Triton's interpreter runs them.
DEVICES = {"cuda"}
#: Kernels that are switched off, for instance by ``SPECFORMER_KERNELS=-layer_norm,-pair_sum``.
OFF = {name.strip(" -") for name in os.environ.get("SPECFORMER_KERNELS", "").split(",")}


def runs_on(device: torch.device, kernel: str) -> bool:
    """Whether this kernel may be launched on ``device``: it must be the current GPU.

    ``SPECFORMER_KERNELS=0`` in the environment switches all kernels off.
    """
    if device.type not in DEVICES or kernel in OFF:
        return False
    here = device.type != "cuda" or device.index in (None, torch.cuda.current_device())
    return here and _compiles()


def usable(kernel: str, *tensors: Tensor) -> bool:
    """Whether this kernel can take these tensors: float32, no autocast, on a device it runs on.

    False while ``torch.compile`` traces: the compiler fuses the plain operations itself.
    """
    return not torch.compiler.is_compiling() and all(
        tensor.dtype == torch.float32
        and runs_on(tensor.device, kernel)
        and not torch.is_autocast_enabled(tensor.device.type)
        for tensor in tensors
    )


@functools.cache
def _compiles() -> bool:
    """Whether Triton can compile here; tried once, with the smallest kernel."""
    if os.environ.get("SPECFORMER_KERNELS") == "0" or find_spec("triton") is None:
        return False
    if os.environ.get("TRITON_INTERPRET") == "1":
        return True
    from specformer.kernels.triton.language import probe

    try:
        probe()
    except Exception as error:  # Triton, its compiler and the driver raise many types
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        logger.warning("fused GPU kernels are off, plain PyTorch is used instead: %s", reason)
        return False
    return True
