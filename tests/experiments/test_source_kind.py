"""What a source is: by its name, its suffix, or the keys of its file."""

from __future__ import annotations

import numpy as np
import pytest

from specformer.errors import DataNotFoundError, GraphError
from specformer.experiments.source_kind import source_kind


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("photographs", "filters"),
        ("mine.PNG", "filters"),
        ("cora", "nodes"),
        ("some-folder", "nodes"),
        ("missing.npz", "nodes"),
        ("molpcba", "molecules"),
        ("mine.csv", "molecules"),
        ("mine.csv.gz", "molecules"),
    ],
)
def test_by_name(source: str, kind: str) -> None:
    assert source_kind(source) == kind


@pytest.mark.parametrize("typed", ["photograph", "photografs", "gridimages"])
def test_a_mistyped_name_of_signals_is_no_graph(typed: str) -> None:
    meant = "grid-images" if typed == "gridimages" else "photographs"
    with pytest.raises(DataNotFoundError, match=f"did you mean '{meant}'"):
        source_kind(typed)


def test_by_the_keys_of_a_file(tmp_path) -> None:
    np.savez(tmp_path / "one.npz", edge_index=[[0], [1]], num_nodes=2)
    np.savez(tmp_path / "many.npz", num_nodes_list=[2], num_edges_list=[1], edge_index=[[0], [1]])
    (tmp_path / "odd.npz").write_text("not a zip")
    kinds = [source_kind(str(tmp_path / f"{name}.npz")) for name in ("one", "many", "odd")]
    assert kinds == ["nodes", "molecules", "nodes"]


@pytest.mark.parametrize("name", ["mine.gz", "mine.tsv", "mine.smi"])
def test_a_file_of_another_kind_is_told_what_is_read(name: str, tmp_path) -> None:
    (tmp_path / name).write_text("CCO\t1\n")
    with pytest.raises(
        GraphError, match=r"\.\w+ files are not read; pass a \.csv file of molecules"
    ):
        source_kind(str(tmp_path / name))
