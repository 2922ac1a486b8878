r"""The paper's other models, one a file: each called as ``model(x, propagation)``."""

from specformer.baselines.bernnet import BernNet
from specformer.baselines.chebnet import ChebNet
from specformer.baselines.gat import GAT
from specformer.baselines.gcn import GCN
from specformer.baselines.gprgnn import GPRGNN
from specformer.baselines.jacobiconv import JacobiConv
from specformer.baselines.propagation import Propagation
from specformer.baselines.registry import BASELINES, signal_baseline

__all__ = [
    "BASELINES",
    "GAT",
    "GCN",
    "GPRGNN",
    "BernNet",
    "ChebNet",
    "JacobiConv",
    "Propagation",
    "signal_baseline",
]
