"""Spectra of graphs: solvers, checks, cache, and the points attention runs over."""

from specformer.spectrum.decompose import decompose
from specformer.spectrum.distinct import Distinct, Tokens
from specformer.spectrum.spectrum import SolveReport, Spectrum

__all__ = ["Distinct", "SolveReport", "Spectrum", "Tokens", "decompose"]
