"""A PyG transform that adds the spectrum, as plain tensors that PyG treats like any others.

``eigenvalues`` ``[q]``, ``eigenvectors`` ``[n * q]`` row by row, and ``num_eigenpairs`` ``[1]``.
PyG concatenates all three in a batch, whatever the sizes of the graphs, and separates them again.
Importing this module gives ``Data`` the property ``spectrum``, which reads them.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from specformer.errors import SpectrumError
from specformer.spectrum.decompose import decompose
from specformer.spectrum.magnetic import MagneticSpectrum
from specformer.spectrum.many.packed_graphs import check_ascending, check_orthonormal, probe
from specformer.spectrum.spectrum import Spectrum


class _Known:
    """A spectrum and the tensors it was made of."""

    def __init__(self, spectrum: Spectrum, *tensors: Tensor) -> None:
        self.spectrum, self._made_of = spectrum, [(each, _changes(each)) for each in tensors]

    def is_of(self, *tensors: Tensor) -> bool:
        """Whether it was made of these, and none has changed in place since."""
        return all(
            known is each and changes == _changes(each)
            for (known, changes), each in zip(self._made_of, tensors, strict=True)
        )


def _changes(tensor: Tensor) -> int:
    """How often a tensor was changed in place; inference tensors do not count it."""
    return 0 if tensor.is_inference() else tensor._version


#: The last spectrum of each graph, so that eigenvalues are grouped only once.
_LAST: Any = WeakIdKeyDictionary()


def spectrum_of(data: Data) -> Spectrum:
    """Return the spectrum that :class:`specformer.AddSpectrum` stored: ``data.spectrum``.

    Example:
        >>> import torch
        >>> data = AddSpectrum()(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2))
        >>> data.spectrum is data.spectrum, data
        (True, Data(edge_index=[2, 2], num_nodes=2, eigenvalues=[2], eigenvectors=[4], ...))
    """
    if "eigenvalues" not in data or "eigenvectors" not in data:
        raise AttributeError("spectrum")  # then PyG looks for a tensor of that name
    values, vectors, nodes = data.eigenvalues, data.eigenvectors, data.num_nodes
    if getattr(data, "num_graphs", 1) > 1:
        raise SpectrumError(
            f"the batch holds {data.num_graphs} graphs, each with its own spectrum: call a "
            "GraphSpecformer with the batch, or take one graph of it, such as batch[0].spectrum."
        )
    if len(vectors) != nodes * len(values):
        raise SpectrumError(
            f"{len(values)} eigenvalues and {len(vectors)} entries of eigenvectors do not fit a "
            f"graph of {nodes} nodes: apply AddSpectrum after transforms that change the graph."
        )
    known = _LAST.get(data)
    if known and known.is_of(values, vectors):
        return known.spectrum
    check_ascending(values, torch.tensor([len(values)]))
    matrix, weights = vectors.view(nodes, -1), probe(len(values), vectors)
    exact = torch.promote_types(vectors.dtype, weights.dtype)
    sums = matrix.detach().to(exact) @ weights.to(exact)
    check_orthonormal(sums.abs().square().sum(), weights.square().sum(), vectors.dtype)
    kind = MagneticSpectrum if vectors.is_complex() else Spectrum
    _LAST[data] = known = _Known(kind(values, matrix), values, vectors)
    return known.spectrum


Data.spectrum = property(spectrum_of)


class AddSpectrum(BaseTransform):
    r"""Add ``data.spectrum``; takes the keyword arguments of :func:`specformer.decompose`.

    It stores plain tensors (:mod:`specformer.spectrum.transform`). So it works as ``transform`` or
    ``pre_transform`` of any data set, and batches of PyG's loaders carry the spectra to
    :class:`specformer.GraphSpecformer`.

    Example:
        >>> import torch
        >>> data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> AddSpectrum()(data).spectrum.eigenvalues
        tensor([0., 2.])
    """

    def __init__(self, **options: Any) -> None:
        inspect.signature(decompose).bind(None, **options)  # a wrong name fails here, not later
        self.options = options

    def forward(self, data: Data) -> Data:
        if isinstance(data, Batch):
            raise SpectrumError(
                "AddSpectrum takes one graph, not a batch: apply it before batching."
            )
        spectrum = decompose(data, **self.options)
        values, vectors = spectrum.eigenvalues, spectrum.eigenvectors.reshape(-1)
        data.eigenvalues, data.eigenvectors = values, vectors
        data.num_eigenpairs = values.new_tensor([len(values)]).long()
        _LAST[data] = _Known(spectrum, values, vectors)
        return data

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({options})"
