"""Morgan fingerprints: RDKit's counts, whatever the SMILES, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specformer.errors import ConfigError
from specformer.graphs import GraphSet

pytest.importorskip("rdkit")
from specformer.graphs.formats.morgan import morgan_counts
from specformer.graphs.formats.smiles import read_smiles

SMILES = ["CCO", "OCC", "c1ccccc1C(=O)O", "[Na+].[Cl-]", "C"]


def test_counts_are_those_of_rdkits_older_function() -> None:
    from rdkit import Chem
    from rdkit.Chem import AllChem

    found = morgan_counts(read_smiles(SMILES).graphs, 2048)
    assert (found.shape, found.dtype) == ((5, 2048), np.uint8)
    for row, text in zip(found, SMILES, strict=True):
        expected = AllChem.GetHashedMorganFingerprint(Chem.MolFromSmiles(text), 2, 2048)
        assert {int(i): int(row[i]) for i in row.nonzero()[0]} == expected.GetNonzeroElements()
    np.testing.assert_array_equal(found[0], found[1])


def test_many_count_as_255() -> None:
    counts = morgan_counts(read_smiles(["C" * 400]).graphs, 64)
    assert counts.max() == 255


def test_graphs_without_smiles_are_refused() -> None:
    with pytest.raises(ConfigError, match="fingerprints need molecules as SMILES"):
        morgan_counts(GraphSet([1], [0], []), 8)
    with pytest.raises(ConfigError, match="'C1CC' is not valid SMILES"):
        morgan_counts(replace(read_smiles(["CCO"]).graphs, smiles=("C1CC",)), 8)
