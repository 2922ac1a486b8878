r"""Baselines for many graphs (Table 3) and a random forest, each called as ``model(batch)``."""

from specformer.baselines.graphs.cin import CIN
from specformer.baselines.graphs.dgn import DGN
from specformer.baselines.graphs.forest import FragmentForest
from specformer.baselines.graphs.gatedgcn import GatedGCN
from specformer.baselines.graphs.gin import GIN, GINAK, GSN
from specformer.baselines.graphs.gps import GPS
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.baselines.graphs.graph_gcn import GraphGCN
from specformer.baselines.graphs.graph_graphormer import GraphGraphormer
from specformer.baselines.graphs.pna import PNA
from specformer.baselines.graphs.san import SAN
from specformer.baselines.graphs.specgn import SpecGN

GRAPH_BASELINES: dict[str, type[GraphBaseline]] = {
    "gcn": GraphGCN,
    "gin": GIN,
    "gatedgcn": GatedGCN,
    "pna": PNA,
    "gps": GPS,
    "graphormer": GraphGraphormer,
    "san": SAN,
    "dgn": DGN,
    "gsn": GSN,
    "cin": CIN,
    "gin-ak+": GINAK,
    "specgn": SpecGN,
}

__all__ = [
    "CIN",
    "DGN",
    "GIN",
    "GINAK",
    "GPS",
    "GRAPH_BASELINES",
    "GSN",
    "PNA",
    "SAN",
    "FragmentForest",
    "GatedGCN",
    "GraphBaseline",
    "GraphGCN",
    "GraphGraphormer",
    "SpecGN",
]
