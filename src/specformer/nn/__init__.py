"""Neural building blocks: tensors and spectra in, tensors out."""

from specformer.nn.conv.spectral_conv import SpectralConv
from specformer.nn.filter import EigenvalueEncoding, SpectralFilter
from specformer.nn.graph_model import GraphSpecformer
from specformer.nn.node_model import Specformer

__all__ = [
    "EigenvalueEncoding",
    "GraphSpecformer",
    "Specformer",
    "SpectralConv",
    "SpectralFilter",
]
