"""The drawing of a graph: which nodes have which colour, and what its key says."""

from __future__ import annotations

import re

import numpy as np

from specformer.reports.looks import HUES
from specformer.reports.sections.node_section import graphs
from specformer.reports.sections.pictures import predictions
from specformer.reports.variants import Rows


def drawn(labels: list[int], classes: list[str]) -> tuple[dict[str, str], list[str]]:
    """The key, as hues by name, and the hue of every node."""
    count = len(labels)
    arrays = {
        "nodes": np.arange(count),
        "edges": np.array([[node, node + 1] for node in range(count - 1)]),
        "labels": np.array(labels),
        "tested": np.ones(count, dtype=bool),
        "chances": np.full((count, len(classes)), 1 / len(classes)),
    }
    row = {"dataset": "mine", "model": "specformer", "classes": classes, "num_nodes": 1000}
    kept = {f"nodes/mine/specformer/drawn/{name}": array for name, array in arrays.items()}
    (picture,) = graphs(Rows.of("nodes", {"nodes": [row]}, kept))
    assert picture.note == f"{count} of 1,000 nodes, and the {count - 1} edges between them"
    hues = re.findall(r"<circle[^>]*fill:var\(--plot-(\w+)\)", picture.svg)
    return {look.label: look.hue for look in picture.key}, hues


def test_few_classes_have_a_hue_each_and_nodes_without_a_label_are_in_the_key() -> None:
    key, hues = drawn([1, 0, -1, 1], ["cat", "dog", "cow"])
    assert key == {"cat": HUES[0], "dog": HUES[1], "no label": "rule"}
    assert hues == [HUES[1], HUES[0], "rule", HUES[1]]


def test_of_many_classes_the_rarest_share_a_hue_that_no_other_has() -> None:
    """Class c has c + 1 nodes: 5 to 11 are the seven largest."""
    labels = [label for label in range(12) for _ in range(label + 1)]
    key, hues = drawn(labels, [f"class {label}" for label in range(12)])
    assert list(key) == [f"class {label}" for label in range(5, 12)] + ["other classes"]
    assert len(set(key.values())) == len(HUES)
    for label, hue in zip(labels, hues, strict=True):
        assert hue == key.get(f"class {label}", key["other classes"])


def test_a_target_without_a_name_gets_none() -> None:
    tested = np.array([[[1.0], [2.0]], [[1.5], [2.5]]])
    row = {"dataset": "mine", "model": "gcn", "metric": "rmse", "targets": ["target 0"]}
    rows = Rows.of("nodes", {"nodes": [row]}, {"nodes/mine/gcn/tested": tested})
    (picture,) = predictions(rows, "nodes").pictures
    assert ">measured<" in picture.svg
    assert "target 0" not in picture.svg
