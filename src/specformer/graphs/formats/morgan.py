"""Morgan fingerprints: how often each small surrounding of an atom occurs in a molecule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specformer.errors import ConfigError
from specformer.graphs.formats.smiles import rdkit
from specformer.graphs.graph_set import GraphSet

#: Bonds from the middle of a surrounding to its rim, as in ECFP4.
_RADIUS = 2


def morgan_counts(graphs: GraphSet, size: int) -> NDArray[np.uint8]:
    """Counts of the surroundings of up to two bonds, hashed to ``size`` columns, ``[G, size]``.

    More than 255 count as 255. Chirality is left out, as RDKit does.

    Example:
        >>> from specformer.graphs.formats.smiles import read_smiles
        >>> found = read_smiles(["CCO", "OCC"]).graphs  # doctest: +SKIP
        >>> morgan_counts(found, 64).sum(axis=1)  # doctest: +SKIP
        array([6, 6], dtype=uint64)
    """
    if graphs.smiles is None:
        raise ConfigError(
            f"{graphs.name}: fingerprints need molecules as SMILES, and there are none; choose a "
            "model without fingerprints."
        )
    chem, silence = rdkit()
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    generator = GetMorganGenerator(radius=_RADIUS, fpSize=size)
    counts = np.zeros((len(graphs), size), dtype=np.uint8)
    with silence():
        for row, text in zip(counts, graphs.smiles, strict=True):
            molecule = chem.MolFromSmiles(text)
            if molecule is None:
                raise ConfigError(f"{graphs.name}: {text!r} is not valid SMILES.")
            row[:] = generator.GetCountFingerprintAsNumPy(molecule).clip(max=255)
    return counts
