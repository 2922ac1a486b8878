r"""Eigenvalues as vectors (paper §4.1, Eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from specformer.errors import ConfigError
from specformer.nn.argument_checks import check_positive, whole_number
from specformer.nn.derived import Derived
from specformer.nn.remembered import Remembered


class EigenvalueEncoding(Derived):
    r"""The eigenvalue beside sines and cosines of it at geometrically spaced frequencies.

    .. math::
        \rho(\lambda, 2i) = \sin(\epsilon\lambda / 10000^{2i/d}), \quad
        \rho(\lambda, 2i+1) = \cos(\epsilon\lambda / 10000^{2i/d}), \quad
        z = [\lambda \,\Vert\, \rho(\lambda)]

    Args:
        channels: d, even.
        epsilon: stretches [0, 2] over the wavelengths; with 1 most channels are constant.
        waves: False leaves the eigenvalue alone, for ablations.

    Shapes: input ``[q]``, output ``[q, channels + 1]``.

    Example:
        >>> EigenvalueEncoding(4)(torch.zeros(1))
        tensor([[0., 0., 1., 0., 1.]])
    """

    frequencies: Tensor

    def __init__(self, channels: int, epsilon: float = 100.0, waves: bool = True) -> None:
        super().__init__()
        check_positive({"epsilon": epsilon}, "epsilon")
        channels = whole_number("hidden_channels", channels)
        if channels < 2 or channels % 2:
            raise ConfigError(f"hidden_channels={channels} must be an even number of at least 2.")
        self.channels = channels if waves else 0
        self.epsilon = epsilon
        self._known = Remembered()
        self.register_derived()

    def derived(self) -> dict[str, Tensor]:
        """The frequencies, in float64 until the module is cast."""
        exponents = torch.arange(0, self.channels, 2, dtype=torch.float64) / max(self.channels, 1)
        return {"frequencies": self.epsilon / 10000.0**exponents}

    def forward(self, eigenvalues: Tensor) -> Tensor:
        return self._known(eigenvalues, self.frequencies.dtype, lambda: self._encoded(eigenvalues))

    def _encoded(self, eigenvalues: Tensor) -> Tensor:
        angles = eigenvalues.unsqueeze(-1) * self.frequencies.to(eigenvalues.dtype)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return torch.cat([eigenvalues.unsqueeze(-1), waves], dim=-1)

    def extra_repr(self) -> str:
        return f"{self.channels}, epsilon={self.epsilon}"
