r"""Parameters drawn anew."""

from __future__ import annotations

from torch import nn


def reset_parts(module: nn.Module) -> None:
    """Draw the parameters of a module's parts anew, as their constructors do.

    Parts are modules that hold numbers themselves. They come in the order in which they were made,
    each once, so that after one seed the numbers are those of a fresh module.

    Example:
        >>> import torch
        >>> twins = [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)) for _ in range(2)]
        >>> for twin in twins:
        ...     _ = torch.manual_seed(0)
        ...     reset_parts(twin)
        >>> torch.equal(twins[0][0].weight, twins[1][0].weight)
        True
    """
    for part in list(module.modules())[1:]:
        reset = getattr(part, "reset_parameters", None)
        if reset is not None and (part._parameters or part._buffers):
            reset()


class Resettable(nn.Module):
    """A module that holds no numbers itself, only parts."""

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructors do."""
        reset_parts(self)
