r"""The spectrum as a PyG transform."""

from __future__ import annotations

import inspect
from typing import Any

from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from specformer.errors import SpectrumError
from specformer.spectrum.decompose import decompose
from specformer.spectrum.in_pyg import put_spectrum


class AddSpectrum(BaseTransform):
    r"""Add ``data.spectrum``; takes the keyword arguments of :func:`specformer.decompose`.

    What is stored are plain tensors: ``eigenvalues`` ``[q]``, ``eigenvectors`` ``[n * q]`` row by
    row and ``num_eigenpairs`` ``[1]``. So it serves as ``transform`` or ``pre_transform`` of any
    data set, and batches of PyG's loaders carry the spectra to :class:`specformer.GraphSpecformer`.

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
        put_spectrum(data, decompose(data, **self.options))
        return data

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({options})"
