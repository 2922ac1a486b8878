r"""Baselines for node classification, from a recipe's settings."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass

from specformer.baselines.nodes.node_registry import BASELINES
from specformer.baselines.nodes.transformer import Transformer
from specformer.errors import ConfigError, check_known
from specformer.nn.pretrained import Pretrained

_WIDTHS = ("hidden_channels", "transformer_channels")


@dataclass(frozen=True)
class NodeBaseline:
    """What baselines take. None leaves a model's own default.

    Args:
        hidden_channels: width of all but the Transformers.
        transformer_channels: theirs; the paper gives them half of it.
        dropout: on the features and between layers.
        propagation_dropout: on what a polynomial filter is applied to (GPR-GNN, BernNet,
            ChebNetII, JacobiConv).
        num_layers: layers, or affine maps of the feature network.
        order: of the polynomials, or LanczosNet's highest short scale.
        steps: LanczosNet's Ritz pairs.
        heads: of attention.
        self_loops: whether GPR-GNN's graph has them.
        alpha: GPR-GNN's teleport probability at the start; GCNII's share of the initial features.
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
    """A fresh baseline of that name; a setting that it does not have is refused.

    Example:
        >>> node_baseline("gprgnn", NodeBaseline(order=4, alpha=0.5), 3, 2)
        GPRGNN(3, 64, 2, order=4)
    """
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
                f"baseline.{option} is no setting of {name}, which has {', '.join(fitting)}."
            )
    transformer = issubclass(kind, Transformer)
    width = settings.transformer_channels if transformer else settings.hidden_channels
    return kind(in_channels, width, out_channels, **options)
