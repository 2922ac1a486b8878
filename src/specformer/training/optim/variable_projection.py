r"""Train a filter's encoder with its read-out always solved for, never learned.

The response of a one-head linear Specformer is affine in the encoder's features,
:math:`h(\lambda) = \theta_0 + z(\lambda)^\top \theta`, and the loss is quadratic in it. Variable
projection (Golub and Pereyra, 1973) solves the least-squares problem for θ at every epoch and
descends on what is left, a function of the encoder alone. On image filters, where a few
eigenvalues near zero hold nearly all energy, it takes the worst-conditioned part out of Adam's
hands: on two 40 × 40 photographs and five filters, 500 such epochs ended 7 to 220 times below 2000
plain ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn import Specformer, SpectralFilter
from specformer.nn.conv.bases import LinearBases
from specformer.nn.filter.decoder import JointDecoder
from specformer.nn.filter.tokens import encoded
from specformer.nn.layers.linear import Linear
from specformer.spectrum import Keys, Tokens

#: Keeps the normal equations solvable when features are nearly dependent; relative to a unit
#: diagonal.
_RIDGE = 1e-9


class ProjectedReadout:
    """Solves for the decoder of a stacked Specformer and writes the solution into it.

    Args:
        model: stacked, one layer, one head, ``decoder="joint"``, a linear filter of one channel.
        energy: the signals' energy at each token, the weights of the squares, ``[runs, p]``.
        targets: gains to reach, ``[runs, p]``.
    """

    def __init__(self, model: Specformer, energy: Tensor, targets: Tensor) -> None:
        config = model.config
        if not model.is_linear_filter or (config["num_layers"], config["num_heads"]) != (1, 1):
            raise ConfigError(
                "variable projection needs a linear Specformer of one layer and head."
            )
        self.filter: SpectralFilter = model.filters[0]  # type: ignore[assignment]
        decoder, bases = self.filter.decoder, model.convs[0].bases
        if not isinstance(decoder, JointDecoder):
            raise ConfigError("variable projection needs decoder='joint'.")
        assert isinstance(bases, LinearBases)
        self.linear = decoder.linear
        self.energy = energy
        self.targets = targets
        with torch.no_grad():
            # h = Σ_c lift_c readout_c (w_0c + w_1c g): two constants, as only g is solved for.
            assert isinstance(model.readout, Linear)
            path = model.lift.weight.squeeze(-1) * model.readout.weight.squeeze(-2)
            self.constant, self.slope = (path.unsqueeze(-2) * bases.weight).sum(dim=-1).unbind(-1)

    def parameters(self) -> list[nn.Parameter]:
        """What is left to train."""
        return list(self.filter.encoder.parameters())

    def gains(self, tokens: Tokens, landmarks: Keys | None) -> Tensor:
        """The best gains ``[runs, p]`` the present features allow; the decoder is set to them."""
        filt = self.filter
        hidden, *_ = encoded(filt.encoder, filt.decoder, tokens, landmarks, None)
        features = torch.cat([torch.ones_like(hidden[..., :1]), hidden], dim=-1)
        with torch.no_grad():
            theta = self._solve(features.double())
            weights = (theta[:, 1:] / self.slope.double().unsqueeze(-1)).to(hidden.dtype)
            self.linear.weight.copy_(weights.unsqueeze(-2))
            shift = (theta[:, 0] - self.constant.double()) / self.slope.double()
            assert self.linear.bias is not None
            self.linear.bias.copy_(shift.to(hidden.dtype).unsqueeze(-1))
        # Through the decoder as stored, so that the loss is that of the model as saved.
        decoded: Tensor = self.linear(hidden).squeeze(-1)
        return self.constant.unsqueeze(-1) + self.slope.unsqueeze(-1) * decoded

    def _solve(self, features: Tensor) -> Tensor:
        """Weighted least squares ``[runs, channels + 1]`` in float64, unit-scaled, ridged."""
        weighted = self.energy.double().unsqueeze(-1) * features
        normal = features.mT @ weighted
        right = weighted.mT @ self.targets.double().unsqueeze(-1)
        scale = normal.diagonal(dim1=-2, dim2=-1).clamp_min(1e-300).rsqrt().unsqueeze(-1)
        normal = normal * scale * scale.mT
        normal.diagonal(dim1=-2, dim2=-1).add_(_RIDGE)
        factor, _ = torch.linalg.cholesky_ex(normal)
        return (scale * torch.cholesky_solve(scale * right, factor)).squeeze(-1)
