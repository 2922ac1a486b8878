r"""The paper's other models, one a file: each called as ``model(x, propagation)``."""

from specformer.baselines.bernnet import BernNet
from specformer.baselines.chebnet import ChebNet
from specformer.baselines.chebnetii import ChebNetII
from specformer.baselines.gat import GAT
from specformer.baselines.gcn import GCN
from specformer.baselines.gcnii import GCNII
from specformer.baselines.gprgnn import GPRGNN
from specformer.baselines.graphormer import Graphormer
from specformer.baselines.h2gcn import H2GCN
from specformer.baselines.jacobiconv import JacobiConv
from specformer.baselines.lanczosnet import LanczosNet
from specformer.baselines.mlp import MLP
from specformer.baselines.node_baseline import NodeBaseline, node_baseline
from specformer.baselines.propagation import Propagation
from specformer.baselines.registry import BASELINES, signal_baseline
from specformer.baselines.transformer import Transformer

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
