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
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.layers.batch_norm import BatchNorm

Model = TypeVar("Model", bound=nn.Module)


def trained_state(model: nn.Module) -> dict[str, Tensor]:
    """What training changes, by name: parameters, and the running averages of batch norms.

    Buffers of any other kind are constants that all runs share.
    """
    state: dict[str, Tensor] = dict(model.named_parameters())
    for path, norm in model.named_modules():
        if isinstance(norm, BatchNorm):
            for leaf in ("running_mean", "running_var"):
                state[f"{path}.{leaf}" if path else leaf] = getattr(norm, leaf)
    return state


def stack(models: Sequence[Model], runs: int | None = None) -> Model:
    """A copy of the first model whose trained state is that of all models along a new axis.

    ``runs`` is the expected number of models; another one is refused.
    """
    if runs not in (None, len(models)):
        raise ConfigError(f"{len(models)} models for {runs} runs; pass one per run.")
    stacked = copy.deepcopy(models[0])
    sources = [trained_state(model) for model in models]
    for name, first in sources[0].items():
        path, _, leaf = name.rpartition(".")
        owner = stacked.get_submodule(path)
        joined = torch.stack([source[name].detach() for source in sources])
        if isinstance(first, nn.Parameter):
            owner.register_parameter(leaf, nn.Parameter(joined))
        else:
            owner.register_buffer(leaf, joined)
    return stacked


def unstack(stacked: nn.Module, run: int, template: Model) -> Model:
    """One run of a stacked model, with the plain parameters of ``template``'s shape."""
    single = copy.deepcopy(template)
    joined = trained_state(stacked)
    with torch.no_grad():
        for name, tensor in trained_state(single).items():
            tensor.copy_(joined[name][run])
    return single


class WeightAverage:
    r"""A copy of a model that follows what training changes.

    After step t it becomes :math:`\bar\theta + (\theta - \bar\theta) / \min(t, T)`: the mean of all
    steps until the T-th (``window``), and from there on one that forgets. Batch norms' running
    averages are averaged too.
    """

    def __init__(self, model: nn.Module, window: float) -> None:
        self.model = copy.deepcopy(model)
        self.window = max(1.0, window)
        self._trained = list(trained_state(model).values())
        self._means = list(trained_state(self.model).values())

    @torch.no_grad()
    def update(self, steps: Tensor) -> None:
        """Add the weights after another step to the mean; ``steps`` counts those before it."""
        share = (steps + 1).clamp(max=self.window).to(self._means[0].dtype).reciprocal()
        torch._foreach_mul_(self._means, 1.0 - share)
        torch._foreach_add_(self._means, torch._foreach_mul(self._trained, share))

    @torch.no_grad()
    def settle(self) -> None:
        """Give the trained model the state of the copy."""
        torch._foreach_copy_(self._trained, self._means)
