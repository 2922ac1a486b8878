r"""H2GCN: separate representations of a node, its neighbours and its two-hop neighbours."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import SingleGraphModel
from specformer.nn.layers.linear import Linear


class H2GCN(SingleGraphModel):
    r"""H2GCN: separate ego and neighbour embeddings, two hops, and the outputs of all rounds.

    From `"Beyond Homophily in Graph Neural Networks: Current
    Limitations and Effective Designs" <https://arxiv.org/abs/2006.11468>`_.

    .. math::
        R^{(0)} = \mathrm{ReLU}(X W_e + b_e), \qquad
        R^{(k)} = \bigl[\hat A_1 R^{(k-1)}, \hat A_2 R^{(k-1)}\bigr], \qquad
        Z = \bigl[R^{(0)}, \dots, R^{(K)}\bigr] W_c + b_c

    :math:`\hat A_i = D_i^{-1/2} A_i D_i^{-1/2}` are the normalised adjacencies of nodes one edge
    apart and exactly two edges apart, without self-loops.

    The rounds have no weights, so :math:`W_c` is applied before them. Each of the :math:`2^K`
    blocks of sparse products then has ``out_channels`` columns instead of ``hidden_channels``. For
    this, the dropout before :math:`W_c` acts once, on :math:`R^{(0)}`.
    """

    repr_arguments = ("num_rounds",)

    lowest: ClassVar = {"num_rounds": 0}

    def build(self, *, num_rounds: int = 2) -> None:
        in_channels, hidden_channels, out_channels = self.channels
        self.num_rounds = num_rounds
        self.embed = Linear(in_channels, hidden_channels)
        self.classify = Linear((2 ** (num_rounds + 1) - 1) * hidden_channels, out_channels)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        r = self.dropout(self.embed(self.dropout(x)).relu())
        # One block of W_c for each sequence of up to K one- or two-hop steps, shorter sequences
        # first; the last step changes fastest.
        blocks = torch.unflatten(self.classify.weight, -1, (-1, r.size(-1)))  # [..., out, words, h]
        terms = torch.einsum("...nh,...owh->...nwo", r, blocks)
        *others, current = terms.split([2**k for k in range(self.num_rounds + 1)], dim=-2)
        for term in reversed(others):
            near, far = current[..., ::2, :], current[..., 1::2, :]
            hops = propagation.one_hop(near.flatten(-2)) + propagation.two_hop(far.flatten(-2))
            current = term + hops.view_as(term)
        assert self.classify.bias is not None
        return current.squeeze(-2) + self.classify.bias.unsqueeze(-2)
