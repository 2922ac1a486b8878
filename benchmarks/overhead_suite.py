r"""The paper's overhead tables, with the plain version and the floor beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.floor import Peaks
from benchmarks.graph_suite import graph_floor, plain_graphs
from benchmarks.node_suite import node_floor, plain_nodes
from specformer.paper.timing.measure import Candidate, Plan, Setting
from specformer.paper.timing.overhead import overhead_rows
from specformer.paper.timing.timed_graphs import GraphCase
from specformer.paper.timing.timed_nodes import NodeCase


def bench_overhead(
    names: Sequence[str], setting: Setting, plan: Plan, peaks: Peaks
) -> list[dict[str, Any]]:
    """One row per set, as ``specformer table overhead`` has it and more."""

    def beside(case: NodeCase | GraphCase) -> tuple[list[Candidate], float]:
        if isinstance(case, NodeCase):
            return [plain_nodes(case, setting.device)], node_floor(case, peaks)
        return [plain_graphs(case, setting.device)], graph_floor(case, peaks)

    return overhead_rows(names, setting, plan, beside)
