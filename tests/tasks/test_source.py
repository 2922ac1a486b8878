"""What a source is: by its name, its suffix, or the keys of its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specformer.datasets import GRAPH_SETS, NODE_SETS
from specformer.datasets.signals import SIGNAL_SETS
from specformer.errors import DataNotFoundError, GraphError
from specformer.tasks.job import source_kind, source_name


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("photographs", "filters"),
        ("mine.PNG", "filters"),
        ("cora", "nodes"),
        ("some-folder", "nodes"),
        ("molpcba", "molecules"),
        ("mine.csv", "molecules"),
        ("mine.csv.gz", "molecules"),
    ],
)
def test_by_name(source: str, kind: str, here: Path) -> None:
    (here / "some-folder").mkdir()
    (here / "mine.csv").touch()
    (here / "mine.csv.gz").touch()
    assert source_kind(source) == kind


@pytest.mark.parametrize("typed", ["photograph", "photografs", "gridimages"])
def test_a_mistyped_name_of_signals_is_no_graph(typed: str) -> None:
    meant = "grid-images" if typed == "gridimages" else "photographs"
    with pytest.raises(DataNotFoundError, match=f"did you mean '{meant}'"):
        source_kind(typed)


def test_what_is_not_there_is_told_all_names(here: Path) -> None:
    with pytest.raises(DataNotFoundError) as caught:
        source_kind("xyz")
    said = str(caught.value)
    assert said.startswith("xyz: neither a file, a folder nor a data set; those are cora, ")
    listed = set(said.removesuffix(".").partition("those are ")[2].split(", "))
    assert listed == {*NODE_SETS, *GRAPH_SETS, *SIGNAL_SETS}


@pytest.mark.parametrize("path", ["missing.npz", "missing.csv", "folder/missing", "missing/"])
def test_a_path_that_is_not_there_is_no_name(path: str, here: Path) -> None:
    with pytest.raises(DataNotFoundError, match=f"^{path}: there is no such file or folder.$"):
        source_kind(path)


def test_by_the_keys_of_a_file(tmp_path) -> None:
    np.savez(tmp_path / "one.npz", edge_index=[[0], [1]], num_nodes=2)
    np.savez(tmp_path / "many.npz", num_nodes_list=[2], num_edges_list=[1], edge_index=[[0], [1]])
    (tmp_path / "odd.npz").write_text("not a zip")
    kinds = [source_kind(str(tmp_path / f"{name}.npz")) for name in ("one", "many", "odd")]
    assert kinds == ["nodes", "molecules", "nodes"]


@pytest.mark.parametrize("name", ["mine.gz", "mine.xlsx", "mine.mol2"])
def test_a_file_of_another_kind_is_told_what_is_read(name: str, tmp_path) -> None:
    (tmp_path / name).write_text("CCO\t1\n")
    with pytest.raises(GraphError, match=r"\.\w+ files are not read; .*pass a folder with edges"):
        source_kind(str(tmp_path / name))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("cora", "cora"),
        ("mine.csv", "mine"),
        ("below/mine.CSV.gz", "mine"),
        ("mine.npz", "mine"),
        ("my.graph/", "my.graph"),
        ("my.graph/below/..", "my.graph"),
    ],
)
def test_a_run_is_called_by_its_source(source: str, name: str, here: Path) -> None:
    (here / "my.graph" / "below").mkdir(parents=True)
    assert source_name(source) == name


def test_the_folder_one_is_in_has_a_name(here: Path) -> None:
    assert source_name(".") == here.resolve().name
