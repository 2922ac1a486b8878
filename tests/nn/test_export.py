"""Exported models: onnxruntime gives PyTorch's outputs on graphs of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import specformer as sf
from specformer.errors import ConfigError
from specformer.graphs import find_rings, graph_set_from_pyg

SIZES = (5, 23, 60)


def session(model: torch.nn.Module, folder: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    path = folder / "model.onnx"
    torch.onnx.export(sf.export(model), f=path, verbose=False)
    return runtime.InferenceSession(path)


def assert_runs_alike(running: Any, inputs: dict[str, Tensor], expected: Tensor) -> None:
    (out,) = running.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    torch.testing.assert_close(torch.from_numpy(out), expected, rtol=1e-5, atol=1e-5)


def edges_of(size: int) -> Tensor:
    torch.manual_seed(size)
    return to_undirected(torch.randint(0, size, (2, 2 * size)), num_nodes=size)


def spectrum_inputs(spectrum: sf.Spectrum) -> dict[str, Tensor]:
    return {"eigenvalues": spectrum.eigenvalues, "eigenvectors": spectrum.eigenvectors}


def test_specformer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = sf.Specformer(8, 16, 3, sharing="large", norm="layer", activation="relu").eval()
    running = session(model, tmp_path)
    for size in SIZES:  # the last one with a part of its spectrum
        k = 7 if size == SIZES[-1] else None
        spectrum, x = sf.decompose(edges_of(size), num_nodes=size, k=k), torch.randn(size, 8)
        expected = model(x, spectrum).detach()
        assert_runs_alike(running, {"x": x, **spectrum_inputs(spectrum)}, expected)


def graph_inputs(data: Data) -> dict[str, Tensor]:
    inputs = {"nodes": data.x, "edges": data.edge_attr, "edge_index": data.edge_index}
    return inputs | spectrum_inputs(data.spectrum)


def molecule(size: int) -> Data:
    edges = edges_of(size)
    kinds = (edges.sum(dim=0) % 3).unsqueeze(1)
    return sf.AddSpectrum()(Data(torch.randint(0, 9, (size, 1)), edges, edge_attr=kinds))


def test_graph_specformer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"bases_norm": "batch", "normalise_bases": "softmax"}
    model = sf.GraphSpecformer([9], [3], 8, 2, num_layers=1, num_heads=2, **options).eval()
    running = session(model, tmp_path)
    for size in SIZES:
        data = molecule(size)
        assert_runs_alike(running, graph_inputs(data), model(data).detach())


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"pooling": "max", "sharing": "large", "decoder": "heads"}])
def test_other_options_of_graphs(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = sf.GraphSpecformer([9], [3], 8, 2, num_layers=2, num_heads=2, **options).eval()
    program = sf.export(model).module()
    for size in SIZES:
        data = molecule(size)
        torch.testing.assert_close(program(**graph_inputs(data)), model(data))


def test_pair_states_and_rings() -> None:
    torch.manual_seed(0)
    model = sf.GraphSpecformer([9], [3], 8, 2, 2, 2, form="pairs", max_ring=5).eval()
    program = sf.export(model).module()
    for size in SIZES[:2]:
        data = molecule(size)
        rings = torch.from_numpy(find_rings(graph_set_from_pyg([data]), 5).rows).long()
        out = program(**graph_inputs(data), rings=rings)
        torch.testing.assert_close(out, model(data), rtol=1e-5, atol=1e-5)


def test_numbers_of_nodes_and_edges() -> None:
    torch.manual_seed(0)
    model = sf.GraphSpecformer([1], [1], 8, 2, 1, 2, in_channels=3, edge_dim=2, fingerprint=5)
    program = sf.export(model).module()
    assert model.training  # the program is of a copy in evaluation mode
    model.eval()
    for size in SIZES:
        edges = edges_of(size)
        x, edge_x = torch.randn(size, 3), torch.randn(edges.shape[1], 2)
        counts = torch.randint(0, 4, (1, 5)).float()
        data = sf.AddSpectrum()(Data(x, edges, edge_attr=edge_x, fingerprints=counts))
        alike = {
            "nodes": torch.zeros(size, 1, dtype=torch.long),
            "edges": torch.zeros(edges.shape[1], 1, dtype=torch.long),
        }
        inputs = {**alike, "edge_index": edges, **spectrum_inputs(data.spectrum)}
        out = program(**inputs, x=x, edge_x=edge_x, fingerprints=counts)
        torch.testing.assert_close(out, model(data), rtol=1e-5, atol=1e-5)


def test_what_cannot_be_exported_is_refused() -> None:
    with pytest.raises(ConfigError, match="a Linear cannot be exported; give a Specformer or a"):
        sf.export(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
