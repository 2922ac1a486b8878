"""SMILES to graphs, against OGB's own conversion."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.graphs.formats.pyg_data import graph_set_to_pyg

from specformer.errors import GraphError
from specformer.graphs import read_smiles
from specformer.graphs.formats.smiles import ATOM_CARDINALITIES, BOND_CARDINALITIES

ODD = [
    "C",
    "[Na+].[Cl-]",
    "[H][H]",
    "[2H]O[2H]",
    "*CC*",
    "F/C=C/F",
    "F/C=C\\F",
    "C[C@H](N)C(=O)O",
    "C[C@@H](N)C(=O)O",
    "[CH3]",
    "[O-][N+](=O)c1ccccc1",
    "FS(F)(F)(F)(F)F",
    "F[P](F)(F)(F)F",
    "[U+6]",
    "[Fe-7]",
    "C#N",
    "[O][O]",
    "c1ccc2c(c1)[nH]c1ccccc12",
    "[NH4+]->[Cu]",
    "C~C",
    "[Og]",
    "Cl[Pt@SP1](Cl)([NH3])[NH3]",
]


def assert_like_ogb(smiles: list[str]) -> None:
    mol = pytest.importorskip("ogb.utils.mol", exc_type=ImportError)
    found = read_smiles(smiles)
    assert not found.problems
    for text, data in zip(smiles, graph_set_to_pyg(found.graphs), strict=True):
        theirs = mol.smiles2graph(text)
        np.testing.assert_array_equal(data.x, theirs["node_feat"], err_msg=text)
        np.testing.assert_array_equal(data.edge_index, theirs["edge_index"], err_msg=text)
        np.testing.assert_array_equal(data.edge_attr, theirs["edge_feat"], err_msg=text)


@pytest.fixture(autouse=True)
def _chem() -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")


@pytest.mark.parametrize("smiles", ODD)
def test_odd_molecules_are_as_ogb_has_them(smiles: str) -> None:
    assert_like_ogb([smiles])


def test_real_molecules_are_as_ogb_has_them(shared_data: Path) -> None:
    with (shared_data / "esol.csv").open(encoding="utf-8", newline="") as file:
        assert_like_ogb([row["smiles"] for row in csv.DictReader(file)][:300])


def test_the_number_of_values_of_each_column_is_ogbs() -> None:
    features = pytest.importorskip("ogb.utils.features", exc_type=ImportError)
    assert list(ATOM_CARDINALITIES) == features.get_atom_feature_dims()
    assert list(BOND_CARDINALITIES) == features.get_bond_feature_dims()


def test_ethanol_by_hand() -> None:
    graphs = read_smiles(["CCO"], name="ethanol").graphs
    assert graphs.name == "ethanol"
    assert graphs.edge_index.tolist() == [[0, 1], [1, 2]]
    carbon = [5, 0, 4, 5, 3, 0, 2, 0, 0]  # number − 1, …, degree 4, charge 0, 3 H, …, SP3
    assert graphs.node_feat[0].tolist() == carbon
    assert graphs.edge_feat.tolist() == [[0, 0, 0]] * 2
    assert graphs.smiles == ("CCO",)


def test_what_cannot_be_read_is_reported_and_the_rest_goes_on(capfd: Any) -> None:
    smiles = ["CCO", "C1CC", "", "C(C)(C)(C)(C)C", "[Xx]", "N", "c1cccc1"]
    found = read_smiles(smiles, rows=range(10, 17))
    assert found.rows == (10, 15)
    assert found.graphs.num_nodes.tolist() == [3, 1]
    assert [(bad.row, bad.smiles) for bad in found.problems] == [
        (row + 10, smiles[row]) for row in (1, 2, 3, 4, 6)
    ]
    reasons = [bad.reason for bad in found.problems]
    assert reasons[0] == reasons[3] == "is not valid SMILES"
    assert reasons[1] == "is empty"
    assert reasons[2].startswith("is not a possible molecule: Explicit valence for atom # 0 C, 5")
    assert reasons[4].startswith("is not a possible molecule: Can't kekulize")
    assert str(found.problems[0]) == "row 11: 'C1CC' is not valid SMILES"
    assert capfd.readouterr().err == ""


def test_nothing_readable_is_an_error() -> None:
    with pytest.raises(GraphError, match="none of the 1 molecules can be read; row 0: 'C1'"):
        read_smiles(["C1"])
    with pytest.raises(GraphError, match="none of the 0 molecules"):
        read_smiles([])


def test_what_a_table_has_in_place_of_a_molecule_is_reported() -> None:
    missing: Any = [None, float("nan"), np.nan, 7]
    found = read_smiles([*missing, np.str_("CCO")])
    assert (found.rows, found.graphs.smiles) == ((4,), ("CCO",))
    assert [(bad.smiles, bad.reason) for bad in found.problems] == [
        (text, "is not text") for text in ("None", "nan", "nan", "7")
    ]


def test_a_single_text_is_not_taken_for_a_list_of_atoms() -> None:
    with pytest.raises(GraphError, match="smiles='CCO' is one text; pass a list of them"):
        read_smiles("CCO")


def test_without_rdkit_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['rdkit'] = None\n"
        "from specformer.errors import ConfigError\n"
        "from specformer.graphs import read_smiles\n"
        "try:\n    read_smiles(['C'])\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "pip install 'specformer[chem]'" in done.stdout
