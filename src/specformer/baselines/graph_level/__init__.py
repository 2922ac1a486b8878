r"""Table 3's other models, one a file: each called as ``model(batch)``, like ours."""

from specformer.baselines.graph_level.cin import CIN
from specformer.baselines.graph_level.dgn import DGN
from specformer.baselines.graph_level.gatedgcn import GatedGCN
from specformer.baselines.graph_level.gcn import GraphGCN
from specformer.baselines.graph_level.gin import GIN
from specformer.baselines.graph_level.gin_ak import GINAK
from specformer.baselines.graph_level.gps import GPS
from specformer.baselines.graph_level.graphormer import GraphGraphormer
from specformer.baselines.graph_level.gsn import GSN
from specformer.baselines.graph_level.pna import PNA
from specformer.baselines.graph_level.registry import GRAPH_BASELINES
from specformer.baselines.graph_level.san import SAN
from specformer.baselines.graph_level.specgn import SpecGN
from specformer.baselines.graph_level.stem import GraphBaseline

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
    "GatedGCN",
    "GraphBaseline",
    "GraphGCN",
    "GraphGraphormer",
    "SpecGN",
]
