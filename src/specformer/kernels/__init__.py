r"""Every Triton kernel of the package, its plain twin, and whether kernels run here.

The modules of this folder are what the rest of the package calls. Each function picks a kernel of
:mod:`specformer.kernels.triton` where :func:`usable` allows it, and does the same work in plain
PyTorch elsewhere: on CPUs, in other precisions, and on machines where Triton cannot compile (it
comes with PyTorch's CUDA builds, but needs the machine's C compiler, which small containers lack).
Triton is imported where a kernel is launched: that takes a while and only helps on a GPU.

Sums are taken in the same order each time and shapes never depend on values, so that a training
step made of these functions can be captured and replayed.
"""

from __future__ import annotations

import functools
import logging
import os
from importlib.util import find_spec

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

#: Types of device the kernels are used on. Triton's interpreter runs them on a CPU, for tests.
DEVICES = {"cuda"}
#: Kernels that are switched off: ``SPECFORMER_KERNELS=-layer_norm,-pair_sum`` names two of them.
OFF = {name.strip(" -") for name in os.environ.get("SPECFORMER_KERNELS", "").split(",")}


def runs_on(device: torch.device, kernel: str) -> bool:
    """Whether this kernel may be launched there: on the current GPU, if kernels compile.

    ``SPECFORMER_KERNELS=0`` in the environment switches all kernels off.
    """
    if device.type not in DEVICES or kernel in OFF:
        return False
    here = device.type != "cuda" or device.index in (None, torch.cuda.current_device())
    return here and _compiles()


def usable(kernel: str, *tensors: Tensor) -> bool:
    """Whether all tensors are, and stay, float32 on a device that this kernel runs on.

    Not while ``torch.compile`` traces: a compiler fuses the plain operations itself.
    """
    return not torch.compiler.is_compiling() and all(
        tensor.dtype == torch.float32
        and runs_on(tensor.device, kernel)
        and not torch.is_autocast_enabled(tensor.device.type)
        for tensor in tensors
    )


@functools.cache
def _compiles() -> bool:
    """Tried once, with the smallest kernel."""
    if os.environ.get("SPECFORMER_KERNELS") == "0" or find_spec("triton") is None:
        return False
    if os.environ.get("TRITON_INTERPRET") == "1":
        return True
    from specformer.kernels.triton.language import probe

    try:
        probe()
    except Exception as error:  # whatever Triton, its compiler or the driver say
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        logger.warning("fused GPU kernels are off, plain PyTorch is used instead: %s", reason)
        return False
    return True
