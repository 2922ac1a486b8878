"""Spectral graph learning with set-to-set filters.

Public names load on first use, so that ``import specformer`` and the command line start at once.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specformer import datasets as datasets
    from specformer import graphs as graphs
    from specformer import nn as nn
    from specformer import spectrum as spectrum
    from specformer import testing as testing
    from specformer.errors import ConfigError as ConfigError
    from specformer.errors import DataNotFoundError as DataNotFoundError
    from specformer.errors import GraphError as GraphError
    from specformer.errors import RunError as RunError
    from specformer.errors import SpecformerError as SpecformerError
    from specformer.errors import SpectrumError as SpectrumError
    from specformer.estimators import GraphClassifier as GraphClassifier
    from specformer.estimators import GraphRegressor as GraphRegressor
    from specformer.estimators import LinkPredictor as LinkPredictor
    from specformer.estimators import NodeClassifier as NodeClassifier
    from specformer.estimators import NodeRegressor as NodeRegressor
    from specformer.estimators import load as load
    from specformer.graphs import Graph as Graph
    from specformer.graphs import as_graph as as_graph
    from specformer.graphs import read_graph as read_graph
    from specformer.nn import EigenvalueEncoding as EigenvalueEncoding
    from specformer.nn import GraphSpecformer as GraphSpecformer
    from specformer.nn import Specformer as Specformer
    from specformer.nn import SpectralConv as SpectralConv
    from specformer.nn import SpectralFilter as SpectralFilter
    from specformer.nn.export import export as export
    from specformer.spectrum import ImplicitSpectrum as ImplicitSpectrum
    from specformer.spectrum import Spectrum as Spectrum
    from specformer.spectrum import approximate as approximate
    from specformer.spectrum.decompose import decompose as decompose
    from specformer.spectrum.transform import AddSpectrum as AddSpectrum
    from specformer.tasks.compare import compare as compare
    from specformer.tasks.contest import Comparison as Comparison

__version__ = "0.1.0"

_HOMES = {
    "AddSpectrum": "specformer.spectrum.transform",
    "Comparison": "specformer.tasks.contest",
    "ConfigError": "specformer.errors",
    "DataNotFoundError": "specformer.errors",
    "EigenvalueEncoding": "specformer.nn",
    "Graph": "specformer.graphs",
    "GraphClassifier": "specformer.estimators",
    "GraphError": "specformer.errors",
    "GraphRegressor": "specformer.estimators",
    "GraphSpecformer": "specformer.nn",
    "ImplicitSpectrum": "specformer.spectrum",
    "LinkPredictor": "specformer.estimators",
    "NodeClassifier": "specformer.estimators",
    "NodeRegressor": "specformer.estimators",
    "RunError": "specformer.errors",
    "SpecformerError": "specformer.errors",
    "SpectrumError": "specformer.errors",
    "Specformer": "specformer.nn",
    "SpectralConv": "specformer.nn",
    "SpectralFilter": "specformer.nn",
    "Spectrum": "specformer.spectrum",
    "approximate": "specformer.spectrum",
    "as_graph": "specformer.graphs",
    "compare": "specformer.tasks.compare",
    "decompose": "specformer.spectrum",
    "export": "specformer.nn.export",
    "load": "specformer.estimators",
    "read_graph": "specformer.graphs",
}

#: Subpackages that need no import of their own.
_ROOMS = ("datasets", "graphs", "nn", "spectrum", "testing")

__all__ = ["__version__", *sorted(_HOMES)]


if not TYPE_CHECKING:  # to a type checker every name would be there, a misspelt one too

    def __getattr__(name: str) -> Any:
        if name not in __dir__():
            raise AttributeError(f"module 'specformer' has no attribute {name!r}")
        if "torch_geometric" in sys.modules:  # graphs that were stored with a spectrum show it
            importlib.import_module(_HOMES["AddSpectrum"])
        if name in _ROOMS:
            return importlib.import_module(f"specformer.{name}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS]
