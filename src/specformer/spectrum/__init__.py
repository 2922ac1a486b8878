"""Spectra of graphs: solvers, checks, cache, and the points attention runs over."""

from specformer.spectrum.decompose import decompose
from specformer.spectrum.eigenpairs import Distinct, Tokens
from specformer.spectrum.implicit.implicit import AnySpectrum, ImplicitSpectrum, approximate
from specformer.spectrum.landmarks import Keys, Landmarks
from specformer.spectrum.magnetic import MagneticSpectrum
from specformer.spectrum.many.packed_graphs import PackedGraphs
from specformer.spectrum.many.spectra import ManyReport, ManySpectra, decompose_many
from specformer.spectrum.spectrum import Spectrum

__all__ = [
    "AnySpectrum",
    "Distinct",
    "ImplicitSpectrum",
    "Keys",
    "Landmarks",
    "MagneticSpectrum",
    "ManyReport",
    "ManySpectra",
    "PackedGraphs",
    "Spectrum",
    "Tokens",
    "approximate",
    "decompose",
    "decompose_many",
]
