"""Feature embeddings against PyTorch's, a table a column."""

from __future__ import annotations

import pytest
import torch

from specformer.errors import ConfigError
from specformer.nn.conv.embedding import FeatureEmbedding, NodeEmbedding, summed_rows


def test_is_the_sum_of_a_table_a_column() -> None:
    ours = FeatureEmbedding([4, 2, 3], 5)
    tables = [torch.nn.Embedding(count, 5) for count in (4, 2, 3)]
    ours.weight.data = torch.cat([table.weight.detach() for table in tables])
    features = torch.tensor([[0, 0, 0], [3, 1, 2], [1, 1, 0]])
    expected = sum(table(column) for table, column in zip(tables, features.T, strict=True))
    torch.testing.assert_close(ours(features), expected)
    torch.testing.assert_close(ours(features.to(torch.uint8)), expected)


def test_initial_values_are_those_of_pytorch_and_ogb() -> None:
    torch.manual_seed(0)
    assert FeatureEmbedding([50], 64).weight.std().item() == pytest.approx(1.0, rel=0.05)
    tables = FeatureEmbedding([400, 50], 64)
    for table, rows in zip(tables.weight.split([400, 50]), (400, 50), strict=True):
        limit = (6.0 / (rows + 64)) ** 0.5
        assert 0.99 * limit < table.abs().max().item() <= limit
    tables.reset_parameters(0.02)
    assert tables.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_tables_are_not_saved_twice() -> None:
    assert list(FeatureEmbedding([3], 2).state_dict()) == ["weight"]


def test_numbers_are_standardised_by_those_given() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator) * torch.tensor([1e3, 1e-3, 0.0]) + 5.0
    nodes = NodeEmbedding([1], 4, in_channels=3)
    nodes.standardise(x)
    torch.testing.assert_close(nodes.mean, x.mean(dim=0))
    torch.testing.assert_close(nodes.std[:2], x.std(dim=0, correction=0)[:2], rtol=1e-3, atol=0)
    assert nodes.std[2] == 1.0  # a constant
    assert set(nodes.state_dict()) == {"weight", "mean", "std", "numbers.weight", "numbers.bias"}
    assert list(NodeEmbedding([3], 2).state_dict()) == ["weight"]


@pytest.mark.parametrize(
    ("channels", "x", "told"),
    [
        (
            3,
            torch.ones(4, 1),
            r"x has shape \[4, 1\], but the model has in_channels=3 for the nodes",
        ),
        (3, torch.ones(0, 3), r"x has shape \[0, 3\]"),
        (0, torch.ones(4, 3), "the model has in_channels=0"),
        (1, torch.tensor([1.0, torch.nan]), "the numbers of the nodes are not all finite"),
    ],
)
def test_numbers_that_do_not_fit_are_not_spread_over_all_columns(channels: int, x, told) -> None:
    with pytest.raises(ConfigError, match=told):
        NodeEmbedding([1], 4, in_channels=channels).standardise(x)


@pytest.mark.parametrize("cardinalities", [[], [3, 0], 3])
def test_columns_need_values(cardinalities) -> None:
    with pytest.raises(ConfigError, match="give a list of whole numbers of at least 1"):
        FeatureEmbedding(cardinalities, 4)


@pytest.mark.parametrize("columns", [1, 3])
def test_another_number_of_columns_is_refused(columns: int) -> None:
    with pytest.raises(ConfigError, match=f"features have {columns} columns, .* for 2"):
        FeatureEmbedding([4, 2], 4)(torch.zeros(5, columns, dtype=torch.long))


def test_the_gradient_for_a_gpu_is_pytorchs() -> None:
    weight = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    rows = torch.stack([torch.randint(5, (20,)), 5 + torch.randint(4, (20,))], dim=-1)
    cotangent = torch.randn(20, 4, dtype=torch.float64)
    ours = summed_rows(rows, weight)
    theirs = torch.nn.functional.embedding(rows, weight).sum(dim=-2)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(out, weight, cotangent)[0] for out in (ours, theirs)]
    torch.testing.assert_close(*gradients)
