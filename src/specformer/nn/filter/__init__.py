"""Eigenvalues in, new eigenvalues out: the set-to-set filter (paper §4.1 and §4.2)."""

from specformer.nn.filter.filter import SpectralFilter

__all__ = ["SpectralFilter"]
