"""A checksum of tensors and text, kept beside them on disk so that an altered file is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """SHA-256 of named tensors on the CPU and of a text: of every bit, type and shape.

    Example:
        >>> one = torch.ones(2)
        >>> checksum({"a": one}) == checksum({"a": one.clone()}), checksum({"b": one})[:8]
        (True, 'f8c993a8')
    """
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f";{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        if tensor.numel():  # the stride of an empty one may be 0, which no view takes
            digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
