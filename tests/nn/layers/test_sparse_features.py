"""Sparse features against the same features dense."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.undropped import undropped

from specformer import decompose
from specformer.datasets import csbm
from specformer.nn.layers.linear import Linear
from specformer.nn.layers.sparse_features import SparseFeatures
from specformer.training.engine.stacking import stack

GENERATOR = np.random.default_rng(0)
MATRIX = sp.random_array(
    (30, 12), density=0.15, rng=GENERATOR, data_sampler=GENERATOR.standard_normal
).tocsr()
DENSE = torch.as_tensor(MATRIX.toarray())
SPARSE = SparseFeatures.from_scipy(MATRIX, dtype=torch.float64)


def maps(runs: int | None) -> Linear:
    torch.manual_seed(1)
    if runs is None:
        return Linear(12, 5).double()
    return stack([Linear(12, 5).double() for _ in range(runs)])


@pytest.mark.parametrize("runs", [None, 1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_map_and_gradients(runs, bias):
    ours, plain = maps(runs), maps(runs)
    left = SPARSE.linear(ours.weight, ours.bias if bias else None)
    right = plain(DENSE) if bias else DENSE @ plain.weight.mT
    torch.testing.assert_close(left, right)
    factors = torch.randn_like(right)
    (left * factors).sum().backward()
    (right * factors).sum().backward()
    torch.testing.assert_close(ours.weight.grad, plain.weight.grad)


@pytest.mark.parametrize("runs", [None, 3])
def test_dropout_takes_entries_of_each_run(runs):
    layer = maps(runs)
    torch.manual_seed(5)
    out = SPARSE.linear(layer.weight, layer.bias, dropout=0.4)
    (out.square().sum()).backward()
    torch.manual_seed(5)
    shape = () if runs is None else (runs,)
    values = torch.nn.functional.dropout(SPARSE.values.expand(*shape, -1), 0.4)
    rows, columns = MATRIX.nonzero()
    x = torch.zeros(*shape, 30, 12, dtype=torch.float64)
    x[..., rows, columns] = values
    again = maps(runs)
    plain = again(x)
    torch.testing.assert_close(out, plain)
    plain.square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, again.weight.grad)


def test_an_empty_row_and_column():
    matrix = sp.csr_array(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    weight = torch.randn(2, 3)
    out = SparseFeatures.from_scipy(matrix).linear(weight, None)
    torch.testing.assert_close(out, torch.as_tensor(matrix.toarray()).float() @ weight.mT)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (4, 3)], ids=str)
@pytest.mark.parametrize("lead", [(), (2,)], ids=["one", "runs"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_no_entry_at_all(shape, lead, dropout):
    x = SparseFeatures.from_scipy(sp.csr_array(shape))
    weight = torch.randn(*lead, 2, shape[1], requires_grad=True)
    bias = torch.randn(*lead, 2, requires_grad=True)
    out = x.linear(weight, bias, dropout)
    assert torch.equal(out, torch.zeros(shape) @ weight.mT + bias.unsqueeze(-2))
    out.sum().backward()
    assert torch.equal(weight.grad, torch.zeros_like(weight))
    assert torch.equal(bias.grad, torch.full_like(bias, shape[0]))


@pytest.mark.parametrize("options", [{}, {"feature_layers": 1}, {"space": "hidden"}])
def test_a_model_takes_either(options):
    torch.manual_seed(0)
    graph = csbm(0.5, num_nodes=30, num_features=4)
    spectrum = decompose(graph, dtype=torch.float64)
    model = undropped(12, 8, 3, num_heads=2, **options).double()
    torch.testing.assert_close(model(SPARSE, spectrum), model(DENSE, spectrum))


def test_another_type_has_the_same_entries() -> None:
    matrix = sp.csr_array(np.array([[0.0, 2.0], [0.0, 0.0], [0.5, 0.0]]))
    features = SparseFeatures.from_scipy(matrix)
    double = features.to(dtype=torch.float64)
    assert (features.dtype, double.dtype) == (torch.float32, torch.float64)
    weight = torch.eye(2, dtype=torch.float64)
    np.testing.assert_array_equal(double.linear(weight, None), matrix.toarray())
    spectrum = decompose([[0, 1], [1, 2]], dtype=torch.float64)
    model = undropped(2, 8, 3).double()
    dense = torch.as_tensor(matrix.toarray())
    torch.testing.assert_close(model(double, spectrum), model(dense, spectrum))


def test_repr_is_short() -> None:
    features = SparseFeatures.from_scipy(sp.csr_array((300, 20)))
    assert repr(features) == (
        "SparseFeatures(num_nodes=300, in_channels=20, entries=0, dtype=torch.float32, device=cpu)"
    )
