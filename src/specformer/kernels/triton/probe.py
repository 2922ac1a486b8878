r"""The smallest kernel: if it runs, the others do."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _write(out):
    tl.store(out, 1.0)


def probe() -> None:
    """Compile and run it; raises where that fails."""
    out = torch.zeros(1, device="cuda")
    _write[(1,)](out)
    torch.cuda.synchronize()
    if float(out) != 1.0:
        raise RuntimeError("a test kernel gave a wrong number")
