r"""Whether Triton's fused kernels run here. Where they do not, plain PyTorch does the same work.

Triton comes with PyTorch's CUDA builds, but compiles with the machine's C compiler, which small
containers lack.
"""

from __future__ import annotations

import functools
import logging
import os
from importlib.util import find_spec

import torch

logger = logging.getLogger(__name__)

#: Types of device the kernels are used on. Triton's interpreter runs them on a CPU, for tests.
DEVICES = {"cuda"}


def runs_on(device: torch.device) -> bool:
    """Whether kernels may be launched there: on the current GPU, if one can be compiled.

    ``SPECFORMER_KERNELS=0`` in the environment switches them off.

    Example:
        >>> runs_on(torch.device("cpu"))
        False
    """
    if device.type not in DEVICES:
        return False
    here = device.type != "cuda" or device.index in (None, torch.cuda.current_device())
    return here and _compiles()


@functools.cache
def _compiles() -> bool:
    """Tried once, with a kernel that does next to nothing."""
    if os.environ.get("SPECFORMER_KERNELS") == "0" or find_spec("triton") is None:
        return False
    if os.environ.get("TRITON_INTERPRET") == "1":
        return True
    from specformer.fused.probe import probe  # late: importing Triton takes a while

    try:
        probe()
    except Exception as error:  # whatever Triton, its compiler or the driver say
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        logger.warning("fused GPU kernels are off, plain PyTorch is used instead: %s", reason)
        return False
    return True
