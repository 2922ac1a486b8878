r"""GPR-GNN: one learned polynomial of the adjacency."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines.nodes.mlp import FeatureMLP
from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.recurrence import monomial
from specformer.baselines.nodes.single_graph import SingleGraphModel
from specformer.errors import ConfigError


class GPRGNN(SingleGraphModel):
    r"""Generalised PageRank network.

    From `"Adaptive Universal Generalized PageRank Graph Neural
    Network" <https://arxiv.org/abs/2006.07988>`_.

    .. math::
        Z = \sum_{k=0}^K \gamma_k \hat A^k \, \mathrm{MLP}(X)

    :math:`\hat A` is the normalised adjacency, with self-loops unless ``self_loops`` is false. The
    :math:`\gamma` are free and start as personalised PageRank with teleport probability ``alpha``:
    :math:`\gamma_k = \alpha (1 - \alpha)^k`, and :math:`\gamma_K = (1 - \alpha)^K`.

    Args:
        num_layers: Affine maps of the MLP.
        dropout: Rate of dropout on the features, before each map of the MLP.
        propagation_dropout: Rate of dropout on the MLP's output, before the polynomial.

    Example:
        >>> GPRGNN(3, 8, 2, order=2, alpha=0.5).gamma.tolist()
        [0.5, 0.25, 0.25]
    """

    shown = ("order",)

    def build(
        self,
        *,
        num_layers: int = 2,
        order: int = 10,
        alpha: float = 0.1,
        self_loops: bool = True,
        propagation_dropout: float = 0.0,
    ) -> None:
        self.order, self.alpha, self.self_loops = order, alpha, self_loops
        self.powers = monomial(order)
        self.mlp = FeatureMLP(*self.channels, num_layers, self.dropout.p)
        self.propagation_dropout = nn.Dropout(propagation_dropout)
        self.gamma = nn.Parameter(torch.empty(order + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        stay = 1 - self.alpha
        gamma = [self.alpha * stay**k for k in range(self.order)] + [stay**self.order]
        with torch.no_grad():
            self.gamma.copy_(torch.tensor(gamma, dtype=self.gamma.dtype))

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        adjacency = propagation.adjacency_with_loops if self.self_loops else propagation.adjacency
        h = self.propagation_dropout(self.mlp(x))
        gammas = self.gamma[..., None, None].unbind(-3)
        return self.powers.combine(adjacency, [gamma * h for gamma in gammas])

    def filter_parameters(self) -> list[nn.Parameter]:
        """The polynomial's own parameters, which may have a learning rate of their own."""
        return [self.gamma]

    def response(self, eigenvalues: Tensor) -> Tensor:
        r"""The filter :math:`\sum_k \gamma_k (1 - \lambda)^k` at Laplacian eigenvalues.

        [q] → [..., q, 1]. With self-loops the eigenvalues of :math:`\hat A` are no function of
        those of the Laplacian: this raises :class:`ConfigError`.
        """
        if self.self_loops:
            raise ConfigError(
                "GPRGNN with self-loops is no filter of the Laplacian's eigenvalues; "
                "build it with self_loops=False to see its response."
            )
        return self.powers(1 - eigenvalues) @ self.gamma.unsqueeze(-1)
