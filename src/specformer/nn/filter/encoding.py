r"""Eigenvalues as vectors (paper §4.1, Eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from specformer.nn.layers.derived import Derived
from specformer.nn.layers.remembered import Remembered
from specformer.nn.model_checks import check_encoding


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
        self.channels = check_encoding(channels, epsilon) * waves
        self.epsilon = epsilon
        self._known = Remembered()
        self.register_derived()

    def derived(self) -> dict[str, Tensor]:
        """The frequencies, in float64 until the module is cast."""
        exponents = torch.arange(0, self.channels, 2, dtype=torch.float64) / max(self.channels, 1)
        return {"frequencies": self.epsilon / 10000.0**exponents}

    def forward(self, eigenvalues: Tensor) -> Tensor:
        return self._known(eigenvalues, self.frequencies.dtype, lambda: self.encode(eigenvalues))

    def encode(self, eigenvalues: Tensor) -> Tensor:
        """The encoding, computed anew."""
        angles = eigenvalues.unsqueeze(-1) * self.frequencies.to(eigenvalues.dtype)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return torch.cat([eigenvalues.unsqueeze(-1), waves], dim=-1)

    def extra_repr(self) -> str:
        return f"{self.channels}, epsilon={self.epsilon}"
