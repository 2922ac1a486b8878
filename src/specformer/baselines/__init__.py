r"""The paper's other models, one per file. These take single graphs, those of ``graphs`` many."""

from specformer.baselines.nodes.chebnet import ChebNet
from specformer.baselines.nodes.gat import GAT
from specformer.baselines.nodes.gcn import GCN
from specformer.baselines.nodes.gcnii import GCNII
from specformer.baselines.nodes.gprgnn import GPRGNN
from specformer.baselines.nodes.graphormer import Graphormer
from specformer.baselines.nodes.h2gcn import H2GCN
from specformer.baselines.nodes.jacobiconv import JacobiConv
from specformer.baselines.nodes.lanczosnet import LanczosNet
from specformer.baselines.nodes.mlp import MLP
from specformer.baselines.nodes.node_registry import (
    BASELINES,
    NodeBaseline,
    node_baseline,
    signal_baseline,
)
from specformer.baselines.nodes.nonnegative import BernNet, ChebNetII
from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.transformer import Transformer

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
