r"""The baselines for single graphs by name; those for many graphs are in ``graphs``."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import Any

from specformer.baselines.nodes.chebnet import ChebNet
from specformer.baselines.nodes.gat import GAT
from specformer.baselines.nodes.gcn import GCN
from specformer.baselines.nodes.gcnii import GCNII
from specformer.baselines.nodes.graphormer import Graphormer
from specformer.baselines.nodes.h2gcn import H2GCN
from specformer.baselines.nodes.jacobiconv import JacobiConv
from specformer.baselines.nodes.lanczosnet import LanczosNet
from specformer.baselines.nodes.mlp import MLP
from specformer.baselines.nodes.polynomial import GPRGNN, BernNet, ChebNetII
from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.transformer import Transformer
from specformer.errors import ConfigError, check_known
from specformer.nn.pretrained import Pretrained

__all__ = [
    "BASELINES",
    "GAT",
    "GCN",
    "GCNII",
    "GPRGNN",
    "H2GCN",
    "MLP",
    "BernNet",
    "ChebNet",
    "ChebNetII",
    "Graphormer",
    "JacobiConv",
    "LanczosNet",
    "NodeBaseline",
    "Propagation",
    "Transformer",
    "node_baseline",
    "signal_baseline",
]

BASELINES: dict[str, type[Pretrained]] = {
    "gcn": GCN,
    "gat": GAT,
    "chebnet": ChebNet,
    "gprgnn": GPRGNN,
    "bernnet": BernNet,
    "jacobiconv": JacobiConv,
    "mlp": MLP,
    "h2gcn": H2GCN,
    "gcnii": GCNII,
    "lanczosnet": LanczosNet,
    "chebnetii": ChebNetII,
    "transformer": Transformer,
    "graphormer": Graphormer,
}

_WIDTHS = ("hidden_channels", "transformer_channels")

# "We tune the number of hidden units to ensure that each method has nearly 2K trainable parameters"
# (Section 5.1). Depths were measured: GPR-GNN and BernNet have lower errors with a third layer in
# the MLP, at a fifteenth of the width. GCN reaches the paper's low-pass error with two layers.
_SIGNAL: dict[str, dict[str, Any]] = {
    "gcn": {"hidden_channels": 666},
    "gat": {"hidden_channels": 168, "heads": 8},
    "chebnet": {"hidden_channels": 87},
    "gprgnn": {"hidden_channels": 43, "num_layers": 3, "self_loops": False},
    "bernnet": {"hidden_channels": 43, "num_layers": 3},
    "jacobiconv": {"hidden_channels": 142},
}


def signal_baseline(name: str) -> Pretrained:
    """A baseline that learns a filter of one signal (Table 1): one input and one output channel.

    It has about 2,000 parameters, polynomials of order 10 and no dropout. GPR-GNN has no
    self-loops, so that its filter, like the others, is a function of the Laplacian's eigenvalues.
    """
    if name not in _SIGNAL:
        problem = "is not in Table 1" if name in BASELINES else "does not exist"
        raise ConfigError(f"The baseline {name!r} {problem}; choose from {', '.join(_SIGNAL)}.")
    return BASELINES[name](in_channels=1, out_channels=1, **_SIGNAL[name])


@dataclass(frozen=True)
class NodeBaseline:
    """Settings of node baselines. None means the default of the model.

    Args:
        hidden_channels: width of all models except the Transformers.
        transformer_channels: width of the Transformers, half as wide in the paper.
        dropout: dropout rate on the features and between layers.
        propagation_dropout: dropout rate on the input of a polynomial filter (GPR-GNN, BernNet,
            ChebNetII, JacobiConv).
        num_layers: number of layers, or of linear maps of the feature network.
        order: order of the polynomials, or LanczosNet's highest short scale.
        steps: number of LanczosNet's Ritz pairs.
        heads: number of attention heads.
        self_loops: whether GPR-GNN adds self-loops.
        alpha: GPR-GNN's initial teleport probability; GCNII's weight of the initial features.
        theta: strength of GCNII's weights.
        a, b: exponents of JacobiConv's weight function.
        gamma: bound of JacobiConv's coefficients.
    """

    hidden_channels: int = 64
    transformer_channels: int = 32
    dropout: float = 0.5
    propagation_dropout: float | None = None
    num_layers: int | None = None
    order: int | None = None
    steps: int | None = None
    heads: int | None = None
    self_loops: bool | None = None
    alpha: float | None = None
    theta: float | None = None
    a: float | None = None
    b: float | None = None
    gamma: float | None = None


def node_baseline(
    name: str, settings: NodeBaseline, in_channels: int, out_channels: int
) -> Pretrained:
    """A new baseline of that name; settings that it does not have are refused."""
    check_known("baseline", BASELINES, name)
    kind = BASELINES[name]
    known = inspect.signature(kind).parameters
    options = {
        key: value
        for key, value in asdict(settings).items()
        if key not in _WIDTHS and value is not None
    }
    for option in options:
        if option not in known:
            fitting = [key for key in asdict(settings) if key in known]
            raise ConfigError(
                f"baseline.{option} is not a setting of {name}; choose from {', '.join(fitting)}."
            )
    transformer = issubclass(kind, Transformer)
    width = settings.transformer_channels if transformer else settings.hidden_channels
    return kind(in_channels, width, out_channels, **options)
