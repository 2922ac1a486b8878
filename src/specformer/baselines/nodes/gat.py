r"""GAT: attention over neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, leaky_relu

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import ConvStack, layer_widths
from specformer.errors import ConfigError
from specformer.nn.layers.linear import Linear


class GATConv(nn.Module):
    r"""One layer of GAT.

    .. math::
        \alpha_{ij} = \mathrm{softmax}_{j \in N(i) \cup \{i\}} \, \mathrm{LeakyReLU}_{0.2}
        \bigl(a_{\mathrm{dst}}^\top W x_i + a_{\mathrm{src}}^\top W x_j\bigr), \qquad
        y_i = \sum_j \alpha_{ij} W x_j

    The heads are concatenated, or averaged if ``concat`` is False. Edge weights are not used.
    Messages are :math:`x_j` or :math:`W x_j`, whichever is narrower.

    Shapes:
        - input: ``[..., n, in_channels]``
        - output: ``[..., n, heads * channels]``, or ``[..., n, channels]`` averaged
    """

    def __init__(
        self, in_channels: int, channels: int, heads: int, *, concat: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.heads = heads
        self.concat = concat
        self.lin = Linear(in_channels, heads * channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(heads, channels))
        self.att_dst = nn.Parameter(torch.empty(heads, channels))
        self.bias = nn.Parameter(torch.empty(heads * channels if concat else channels))
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        weight = torch.unflatten(
            self.lin.weight, -2, (self.heads, -1)
        )  # [..., heads, channels, in]
        attention = self._attention(x, weight, propagation)
        if x.size(-1) < weight.size(-2):
            mixed = _mix(attention, x.unsqueeze(-2), propagation)
            out = torch.einsum("...nhi,...hci->...nhc", mixed, weight)
        else:
            values = self.lin(x).unflatten(-1, (self.heads, -1))
            out = _mix(attention, values, propagation)
        out = out.flatten(-2) if self.concat else out.mean(dim=-2)
        return out + self.bias.unsqueeze(-2)

    def _attention(self, x: Tensor, weight: Tensor, propagation: Propagation) -> Tensor:
        """Weights of every edge and head, [..., edges, heads], that sum to 1 at each target."""
        from torch_geometric.utils import softmax  # here: it takes as long to import as torch

        source, target = propagation.edge_index_with_loops
        from_source = x @ torch.einsum("...hc,...hci->...ih", self.att_src, weight)
        from_target = x @ torch.einsum("...hc,...hci->...ih", self.att_dst, weight)
        score = from_source.index_select(-2, source) + from_target.index_select(-2, target)
        score = leaky_relu(score, negative_slope=0.2)
        weights = softmax(score, target, num_nodes=propagation.num_nodes, dim=score.dim() - 2)
        return self.dropout(weights)


def _mix(attention: Tensor, values: Tensor, propagation: Propagation) -> Tensor:
    """Sum [..., n, heads or 1, channels] over each target's edges: [..., n, heads, channels]."""
    source, target = propagation.edge_index_with_loops
    messages = attention.unsqueeze(-1) * values.index_select(-3, source)
    shape = *messages.shape[:-3], propagation.num_nodes, *messages.shape[-2:]
    return messages.new_zeros(shape).index_add(-3, target, messages)


class GAT(ConvStack):
    r"""Graph attention network.

    From `"Graph Attention Networks"
    <https://arxiv.org/abs/1710.10903>`_.

    .. math::
        X^{(l+1)} = \mathrm{ELU}\Bigl(
        \big\Vert_{h} \alpha^{(l, h)} X^{(l)} W_{l, h}^\top + b_l\Bigr)

    Hidden layers concatenate their heads, so ``hidden_channels`` counts the channels of all heads
    together. The last layer averages them and has no ELU. Dropout also acts on the attention
    weights :math:`\alpha`, as in the paper.
    """

    repr_arguments = ("num_layers", "heads")

    def build(self, *, num_layers: int = 2, heads: int = 8) -> None:
        if self.channels[1] % heads:
            raise ConfigError(
                f"GAT's hidden_channels must be a multiple of heads, not {self.channels[1]} "
                f"with {heads} heads."
            )
        *hidden, last = layer_widths(*self.channels, num_layers)
        rate = self.dropout.p
        layers = [GATConv(i, o // heads, heads, concat=True, dropout=rate) for i, o in hidden]
        self.stack([*layers, GATConv(*last, heads, concat=False, dropout=rate)])

    def activation(self, x: Tensor) -> Tensor:
        return elu(x)
