r"""Settings of the models for many small graphs, as recipes hold them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from specformer.errors import ConfigError
from specformer.nn.argument_checks import check_counts


@dataclass(frozen=True)
class GraphModel:
    """Specformer's settings, see :class:`specformer.GraphSpecformer`."""

    hidden_channels: int = 64
    num_layers: int = 4
    num_heads: int = 4
    sharing: Literal["small", "medium", "large"] = "small"
    pooling: Literal["mean", "sum", "max"] = "mean"
    num_blocks: int = 1
    decoder: Literal["joint", "heads"] = "joint"
    epsilon: float = 100.0
    encoding: bool = True
    attention: bool = True
    bases_norm: Literal["batch"] | None = None
    bases_activation: Literal["relu", "gelu", "tanh"] | None = None
    normalise_bases: Literal["softmax"] | None = None
    transformer_dropout: float = 0.0
    feature_dropout: float = 0.0
    propagation_dropout: float = 0.0
    init_std: float | None = None


@dataclass(frozen=True)
class BaselineModel:
    """A baseline's settings, see :mod:`specformer.baselines.graphs`; None for its own."""

    hidden_channels: int = 64
    num_layers: int = 4
    dropout: float = 0.0
    pooling: Literal["mean", "sum", "max"] | None = None
    num_heads: int | None = None
    attention_dropout: float | None = None
    towers: int | None = None
    average_log_degree: float | None = None
    walk_steps: int | None = None
    walk_channels: int | None = None
    gamma: float | None = None
    max_ring: int | None = None
    order: int | None = None
    exponent: float | None = None
    bases_norm: Literal["batch"] | None = None
    normalise_bases: Literal["softmax"] | None = None


@dataclass(frozen=True)
class ForestModel:
    """A forest's settings, see :meth:`specformer.baselines.graphs.MorganForest.grown`."""

    num_trees: int = 200
    max_features: float | None = None
    min_samples_leaf: int = 1
    fingerprint: int = 2048

    def __post_init__(self) -> None:
        check_counts(asdict(self), "num_trees", "min_samples_leaf", "fingerprint")
        share = self.max_features
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"max_features={share} must be above 0 and at most 1.")
