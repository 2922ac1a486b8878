"""AddSpectrum on PyG data."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.transforms import Compose, ToSparseTensor, ToUndirected

from specformer import AddSpectrum, Spectrum, decompose
from specformer.errors import GraphError, SpectrumError

PATH = torch.tensor([[0, 1], [1, 2]])


def test_adds_a_spectrum_and_leaves_the_original_alone() -> None:
    data = Data(x=torch.eye(3), edge_index=PATH, y=torch.tensor([0, 1, 0]))
    out = AddSpectrum()(data)
    assert isinstance(out.spectrum, Spectrum)
    assert out.spectrum.eigenvalues.tolist() == [0.0, 1.0, 2.0]
    assert "spectrum" not in data
    assert out.num_nodes == 3
    assert torch.equal(out.x, data.x)


def test_passes_options_on() -> None:
    data = Data(edge_index=PATH, num_nodes=4)
    spectrum = AddSpectrum(k=1, dtype=torch.float64)(data).spectrum
    assert (spectrum.num_eigenpairs, spectrum.dtype) == (1, torch.float64)
    assert AddSpectrum(isolated="zero")(data).spectrum.eigenvalues.tolist() == [0, 0, 1, 2]


def test_a_stored_graph_has_it_in_another_program(tmp_path: Path) -> None:
    """One that loads graphs and only calls a model."""
    path = tmp_path / "graph.pt"
    InMemoryDataset.save([AddSpectrum()(Data(x=torch.eye(3), edge_index=PATH))], path)
    code = (
        "import sys, torch, specformer as sf, torch_geometric.data\n"
        "held, *_ = torch.load(sys.argv[1], weights_only=True)\n"
        "data = torch_geometric.data.Data.from_dict(held)\n"
        "print(*sf.Specformer(3, 8, 2)(data.x, data.spectrum).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["3", "2"]


def test_an_unknown_option_is_named_at_once() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'solvr'"):
        AddSpectrum(solvr="dense")


def test_edge_weights_of_the_data_count() -> None:
    weights = torch.tensor([1.0, 3.0])
    out = AddSpectrum(dtype=torch.float64)(Data(edge_index=PATH, edge_weight=weights, num_nodes=3))
    null = torch.tensor([1.0, 4.0, 3.0], dtype=torch.float64).sqrt()  # D^(1/2) 1
    assert torch.allclose(out.spectrum.eigenvectors[:, 0] * 8**0.5, null)


def test_the_spectrum_goes_where_the_data_go() -> None:
    data = AddSpectrum()(Data(edge_index=PATH, num_nodes=3))
    first = data.spectrum
    assert data.to("cpu").spectrum is first  # nothing has moved, so nothing is made anew
    assert first.report is not None
    longer = data.apply(Tensor.double, "eigenvalues", "eigenvectors").spectrum
    assert (longer.dtype, longer.eigenvalues.tolist()) == (torch.float64, [0.0, 1.0, 2.0])


def test_copies_have_it_and_subgraphs_say_that_it_is_not_theirs() -> None:
    data = AddSpectrum()(Data(edge_index=PATH, num_nodes=3))
    for copied in (copy.copy(data), copy.deepcopy(data), Data.from_dict(data.to_dict())):
        assert torch.equal(copied.spectrum.eigenvectors, data.spectrum.eigenvectors)
    with pytest.raises(SpectrumError, match="do not fit a graph of 2 nodes"):
        data.subgraph(torch.tensor([0, 1])).spectrum  # noqa: B018
    with pytest.raises(SpectrumError, match="AddSpectrum after what reorders the nodes"):
        data.subgraph(torch.tensor([1, 2, 0])).spectrum  # noqa: B018


@pytest.mark.parametrize("change", [ToUndirected(), ToSparseTensor()])
def test_eigenvectors_that_pyg_took_for_features_of_edges_are_refused(change: Any) -> None:
    """A triangle with a tail has eight entries of edges, and of two eigenvectors."""
    ends = torch.tensor([[3, 1, 2, 0], [2, 0, 1, 2]])
    ends = torch.cat([ends, ends.flip(0)], dim=1)
    data = AddSpectrum(k=2)(Data(edge_index=ends, num_nodes=4))
    assert data.clone().spectrum.num_eigenpairs == 2
    changed = change(data.clone())
    with pytest.raises(SpectrumError, match="AddSpectrum after other transforms"):
        changed.spectrum  # noqa: B018
    single = AddSpectrum(k=1)(Data(edge_index=PATH, num_nodes=3)).subgraph(torch.tensor([0, 1]))
    with pytest.raises(SpectrumError, match="AddSpectrum after other transforms"):
        single.spectrum  # noqa: B018


def test_a_change_in_place_is_seen() -> None:
    data = AddSpectrum()(Data(edge_index=PATH, num_nodes=3))
    data.eigenvalues.mul_(0.5)
    assert torch.equal(data.spectrum.distinct.values, data.eigenvalues)


def test_directions_are_those_of_the_edge_index_in_adj_t_too() -> None:
    ring = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), num_nodes=4)
    x = torch.eye(4)[:, :2]
    expected, found = (
        spectrum.filter(x, spectrum.eigenvalues)
        for spectrum in (decompose(each, charge=0.1) for each in (ring, ToSparseTensor()(ring)))
    )
    torch.testing.assert_close(found, expected)


def test_an_adj_t_that_is_no_matrix_is_refused() -> None:
    with pytest.raises(GraphError, match="cannot read a graph from dict"):
        decompose(Data(adj_t={}, num_nodes=2))


def test_a_tensor_of_that_name_is_left_alone() -> None:
    assert Data(spectrum=torch.ones(2), num_nodes=2).spectrum.tolist() == [1.0, 1.0]
    assert not hasattr(Data(edge_index=PATH, num_nodes=3), "spectrum")


def test_a_spectrum_is_forgotten_with_its_graph() -> None:
    data = AddSpectrum()(Data(edge_index=PATH, num_nodes=3))
    vectors = weakref.ref(data.spectrum)
    del data
    gc.collect()
    assert vectors() is None


def test_a_molecule_has_its_label_for_the_whole_graph() -> None:
    molecule = Data(
        x=torch.tensor([[6], [6], [8]]),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        edge_attr=torch.ones(4, 3),
        y=torch.tensor([[0.5, float("nan")]]),
    )
    out = AddSpectrum()(molecule)
    assert out.spectrum.num_nodes == 3
    assert out.y.shape == (1, 2)


def test_composes_and_has_a_repr() -> None:
    transform = Compose([ToUndirected(), AddSpectrum(k=2, solver="dense")])
    out = transform(Data(edge_index=PATH, num_nodes=3))
    assert out.spectrum.num_eigenpairs == 2
    assert repr(AddSpectrum(k=2, solver="dense")) == "AddSpectrum(k=2, solver='dense')"
    assert repr(AddSpectrum()) == "AddSpectrum()"
    assert "eigenvectors=[6]" in repr(out)
