"""AddSpectrum on PyG data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import Compose, ToUndirected

from specformer import AddSpectrum, Spectrum

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


def test_an_unknown_option_is_named_at_once() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'solvr'"):
        AddSpectrum(solvr="dense")


def test_edge_weights_of_the_data_count() -> None:
    weights = torch.tensor([1.0, 3.0])
    out = AddSpectrum(dtype=torch.float64)(Data(edge_index=PATH, edge_weight=weights, num_nodes=3))
    null = torch.tensor([1.0, 4.0, 3.0], dtype=torch.float64).sqrt()  # D^(1/2) 1
    assert torch.allclose(out.spectrum.eigenvectors[:, 0] * 8**0.5, null)


def test_data_to_moves_the_spectrum(monkeypatch: pytest.MonkeyPatch) -> None:
    data = AddSpectrum()(Data(edge_index=PATH, num_nodes=3))
    asked: list[object] = []
    to = Spectrum.to

    def recording(self: Spectrum, *args: Any, **options: Any) -> Spectrum:
        asked.append(options["device"])
        return to(self, *args, **options)

    monkeypatch.setattr(Spectrum, "to", recording)
    assert data.to("cpu").spectrum.eigenvalues.tolist() == [0.0, 1.0, 2.0]
    assert asked == ["cpu"]


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
    assert "spectrum=" in repr(out)
