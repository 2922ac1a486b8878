r"""Many independent models of one shape as a single module with a leading run axis.

Every layer of :mod:`specformer.nn` and :mod:`specformer.baselines` broadcasts over such an axis, so
one forward pass serves all runs: a shared matrix is read once, small kernels become large ones.
Optimisers that work entry by entry (Adam and its kin) train each run as if it were alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

from specformer.errors import ConfigError

Model = TypeVar("Model", bound=nn.Module)


def stack(models: Sequence[Model]) -> Model:
    """A copy of the first model whose parameters are those of all models along a new axis.

    Example:
        >>> from specformer.nn.linear import Linear
        >>> stack([Linear(2, 3), Linear(2, 3)])(torch.zeros(5, 2)).shape
        torch.Size([2, 5, 3])
    """
    if any(isinstance(module, nn.BatchNorm1d) for module in models[0].modules()):
        raise ConfigError("norm='batch' keeps statistics that cannot be stacked; use 'layer'.")
    stacked = copy.deepcopy(models[0])
    sources = [dict(model.named_parameters()) for model in models]
    for name, _ in models[0].named_parameters():
        owner, leaf = _owner(stacked, name)
        joined = torch.stack([source[name].detach() for source in sources])
        owner.register_parameter(leaf, nn.Parameter(joined))
    return stacked


def unstack(stacked: nn.Module, run: int, template: Model) -> Model:
    """One run of a stacked model, with the plain parameters of ``template``'s shape."""
    single = copy.deepcopy(template)
    parameters = dict(stacked.named_parameters())
    with torch.no_grad():
        for name, parameter in single.named_parameters():
            parameter.copy_(parameters[name][run])
    return single


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf
