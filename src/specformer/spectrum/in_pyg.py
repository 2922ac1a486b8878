r"""Spectra as plain tensors of a PyG ``Data``, which batches, files and devices treat as any other.

``eigenvalues`` ``[q]``, ``eigenvectors`` ``[n * q]`` row by row, and ``num_eigenpairs`` ``[1]``.
PyG joins all three end to end, whatever the sizes of the graphs, and takes them apart again.
Importing this module gives ``Data`` the property ``spectrum``, which reads them.
"""

from __future__ import annotations

from typing import Any

from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from specformer.errors import SpectrumError
from specformer.spectrum.magnetic import MagneticSpectrum
from specformer.spectrum.spectrum import Spectrum

#: The last spectrum of each graph and the tensors it was made of: nothing is grouped twice.
_LAST: Any = WeakIdKeyDictionary()


def put_spectrum(data: Data, spectrum: Spectrum) -> None:
    """Store a spectrum in a graph."""
    values, vectors = spectrum.eigenvalues, spectrum.eigenvectors.reshape(-1)
    data.eigenvalues, data.eigenvectors = values, vectors
    data.num_eigenpairs = values.new_tensor([len(values)]).long()
    _LAST[data] = (values, vectors, spectrum)


def spectrum_of(data: Data) -> Spectrum:
    """The spectrum that :class:`specformer.AddSpectrum` has stored: ``data.spectrum``.

    Example:
        >>> import torch
        >>> path = Spectrum(torch.tensor([0.0, 2.0]), torch.tensor([[1.0, 1], [1, -1]]) / 2**0.5)
        >>> data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> put_spectrum(data, path)
        >>> data.spectrum is path, data
        (True, Data(edge_index=[2, 2], num_nodes=2, eigenvalues=[2], eigenvectors=[4], ...))
    """
    if "eigenvalues" not in data or "eigenvectors" not in data:
        raise AttributeError("spectrum")  # PyG then looks for a tensor of that name
    values, vectors, nodes = data.eigenvalues, data.eigenvectors, data.num_nodes
    if getattr(data, "num_graphs", 1) > 1:
        raise SpectrumError(
            f"the batch holds {data.num_graphs} graphs with a spectrum each: call a "
            "GraphSpecformer with the batch, or take one graph of it, such as batch[0].spectrum."
        )
    if len(vectors) != nodes * len(values):
        raise SpectrumError(
            f"{len(values)} eigenvalues and {len(vectors)} entries of eigenvectors do not belong "
            f"to a graph of {nodes} nodes: apply AddSpectrum after what changes the graph."
        )
    known_values, known_vectors, known = _LAST.get(data, (None, None, None))
    if isinstance(known, Spectrum) and known_values is values and known_vectors is vectors:
        return known
    kind = MagneticSpectrum if vectors.is_complex() else Spectrum
    spectrum = kind(values, vectors.view(nodes, -1))
    _LAST[data] = (values, vectors, spectrum)
    return spectrum


Data.spectrum = property(spectrum_of)
