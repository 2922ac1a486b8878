"""The whole model with kernels and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.baselines.graphs.small_models import fresh
from tests.nn.molecules import EDGE_CARDINALITIES, MOLECULES, NODE_CARDINALITIES, pack

from specformer import GraphSpecformer, kernels
from specformer.baselines.graphs import GRAPH_BASELINES
from specformer.kernels.weighted_attention import FlatSpectra
from specformer.nn.conv.graph_conv import GraphPairs
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.spectrum import Tokens

ZINC: dict[str, Any] = {"num_heads": 4}
MOLHIV: dict[str, Any] = {
    "num_heads": 2,
    "sharing": "medium",
    "bases_norm": "batch",
    "normalise_bases": "softmax",
}
PAIRS: dict[str, Any] = {**ZINC, "form": "pairs", "max_ring": 6, "bases_activation": "gelu"}


@pytest.mark.parametrize(
    ("options", "training"),
    [
        (ZINC, True),
        (MOLHIV, True),
        pytest.param(ZINC, False, marks=pytest.mark.slow),
        pytest.param(MOLHIV, False, marks=pytest.mark.slow),
        pytest.param({**MOLHIV, "sharing": "small"}, True, marks=pytest.mark.slow),
        ({**MOLHIV, "sharing": "large"}, True),
        pytest.param(
            {**MOLHIV, "sharing": "large", "decoder": "heads"}, True, marks=pytest.mark.slow
        ),
        ({**MOLHIV, "bases_activation": "gelu"}, True),
        (PAIRS, True),
        pytest.param(PAIRS, False, marks=pytest.mark.slow),
        pytest.param({**MOLHIV, "bases_activation": "gelu"}, False, marks=pytest.mark.slow),
        # Dropout of everything is no chance: all shares are the same.
        pytest.param({**MOLHIV, "propagation_dropout": 1.0}, True, marks=pytest.mark.slow),
        pytest.param({**ZINC, "bases_activation": "gelu"}, True, marks=pytest.mark.slow),
        pytest.param({**ZINC, "normalise_bases": "softmax"}, True, marks=pytest.mark.slow),
        pytest.param({**ZINC, "decoder": "heads"}, True, marks=pytest.mark.slow),
    ],
)
def test_outputs_gradients_and_averages(
    options, training: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for with_kernels in (True, False):
        torch.manual_seed(0)
        model = GraphSpecformer(
            NODE_CARDINALITIES, EDGE_CARDINALITIES, 12, 3, num_layers=2, **options
        ).train(training)
        dtype, place = (torch.float32, device) if with_kernels else (torch.float64, "cpu")
        model = model.to(place, dtype)
        chosen = [MOLECULES[i] for i in (2, 4)]
        batch = pack(chosen, dtype=dtype, spare_nodes=2, spare_pairs=9, max_nodes=6).to(place)
        if not with_kernels:
            monkeypatch.setattr(kernels, "DEVICES", set())
        out = model(batch)
        gradients = torch.autograd.grad(out.square().sum(), list(model.parameters()))
        results.append([x.detach().cpu().double() for x in (out, *gradients, *model.buffers())])
    for one, other in zip(*results, strict=True):
        largest = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4 * largest)


@pytest.mark.parametrize(
    "name",
    ["gps", *(pytest.param(n, marks=pytest.mark.slow) for n in GRAPH_BASELINES if n != "gps")],
)
def test_baselines(name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for with_kernels in (True, False):
        dtype, place = (torch.float32, device) if with_kernels else (torch.float64, "cpu")
        model = fresh(name).to(place, dtype).train()
        room = {"spare_nodes": 2, "spare_pairs": 9, "spare_bonds": 3, "spare_rings": 1}
        batch = pack(MOLECULES, dtype=dtype, **room).to(place)
        if not with_kernels:
            monkeypatch.setattr(kernels, "DEVICES", set())
        out = model(batch)
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(out.square().sum(), parameters, materialize_grads=True)
        results.append([x.detach().cpu().double() for x in (out, *gradients, *model.buffers())])
    for one, other in zip(*results, strict=True):
        largest = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-3 * largest)


NAMES = ["block_attention", "basis_entries", "softmax_sum", "pair_sum", "gelu_lift"]
NAMES += ["batch_norm", "folded_norm", "layer_norm"]


@pytest.mark.parametrize(
    "name",
    [each if each in NAMES[1:2] else pytest.param(each, marks=pytest.mark.slow) for each in NAMES],
)
def test_any_kernel_may_be_off_alone(
    name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [MOLECULES[i] for i in (2, 4)]
    batch = pack(chosen, dtype=torch.float32, spare_nodes=2, spare_pairs=9, max_nodes=6).to(device)
    results = []
    for off in (set(), {name}):
        monkeypatch.setattr(kernels, "OFF", off)
        torch.manual_seed(0)
        options = {**(ZINC if name == "pair_sum" else MOLHIV), "num_layers": 1}
        model = GraphSpecformer(NODE_CARDINALITIES, EDGE_CARDINALITIES, 8, 3, **options).to(device)
        out = model(batch)
        gradients = torch.autograd.grad(out.square().sum(), list(model.parameters()))
        results.append([out.detach(), *gradients, *model.buffers()])
    for one, other in zip(*results, strict=True):
        largest = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4 * largest)


@pytest.mark.parametrize("activation", ["gelu", pytest.param(None, marks=pytest.mark.slow)])
def test_norms_that_workers_share_are_those_of_one_alone(activation, device: torch.device) -> None:
    batch = pack([MOLECULES[i] for i in (2, 4)], dtype=torch.float32, spare_nodes=2, spare_pairs=9)
    results = []
    for shared in (True, False):
        torch.manual_seed(0)
        options = {**MOLHIV, "bases_activation": activation}
        model = GraphSpecformer(
            NODE_CARDINALITIES, EDGE_CARDINALITIES, 12, 3, num_layers=2, **options
        ).to(device)
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.across = (lambda part: part) if shared else None
        out = model(batch.to(device))
        gradients = torch.autograd.grad(out.square().sum(), list(model.parameters()))
        results.append([out.detach(), *gradients, *model.buffers()])
    for one, other in zip(*results, strict=True):
        largest = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4 * largest)


@pytest.mark.parametrize("options", [ZINC, pytest.param(MOLHIV, marks=pytest.mark.slow)])
def test_nothing_of_all_pairs_is_gathered_or_sorted(options, device: torch.device) -> None:
    model = GraphSpecformer(NODE_CARDINALITIES, EDGE_CARDINALITIES, 4, 3, num_layers=1, **options)
    batch = pack(MOLECULES[:2], dtype=torch.float32).to(device)
    model.to(device)(batch)
    # What is worked out lies in the object from then on.
    assert not {"target", "source"} & set(vars(batch))


def test_spectra_are_not_padded(device: torch.device) -> None:
    batch = pack(MOLECULES[:4], dtype=torch.float32, spare_nodes=3, spare_pairs=9).to(device)
    layout = GraphPairs(batch, torch.float32)
    assert isinstance(layout.spectra, FlatSpectra)
    assert layout.spectra.values is batch.eigenvalues
    assert layout.spectra.weights.offsets.tolist() == batch.starts.tolist()
    # Neither doubles nor bfloat16 are for kernels.
    assert isinstance(GraphPairs(batch, torch.float64).spectra, Tokens)
    with torch.autocast(device.type, torch.bfloat16):
        assert isinstance(GraphPairs(batch, torch.float32).spectra, Tokens)
