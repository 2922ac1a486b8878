"""The operations that a computation is made of."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Those in which the host waits for a GPU.
WAITS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "repeat_interleave",
    "_unique2",
    "unique_consecutive",
    "unique_dim",
}


class Watch(TorchDispatchMode):
    """Names of all operations, and the largest tensor any of them made."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        self.names.add(name)
        if name.startswith("index") and any(
            isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool
            for leaf in tree_leaves(args[1])
        ):
            self.names.add("nonzero")  # of a mask, to find its entries
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.largest = max(self.largest, leaf.untyped_storage().nbytes() // leaf.itemsize)
        return out
