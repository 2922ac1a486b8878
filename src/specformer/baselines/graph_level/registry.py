r"""Graph-level baselines by name."""

from __future__ import annotations

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
from specformer.baselines.graph_level.san import SAN
from specformer.baselines.graph_level.specgn import SpecGN
from specformer.baselines.graph_level.stem import GraphBaseline

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
