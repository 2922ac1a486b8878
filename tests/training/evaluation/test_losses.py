"""Losses against PyTorch's on known targets alone; scales there and back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specformer.training.evaluation.graph_metrics import Scale, graph_errors, mean_error

OUTPUTS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
TARGETS = (torch.randn(6, 3, generator=torch.Generator().manual_seed(1)) > 0).float()
PLAIN = {
    "l1": nn.functional.l1_loss,
    "mse": nn.functional.mse_loss,
    "bce": nn.functional.binary_cross_entropy_with_logits,
}


@pytest.mark.parametrize("loss", PLAIN)
def test_missing_targets_count_for_nothing(loss) -> None:
    targets = TARGETS.clone()
    targets[0, 1] = targets[3] = torch.nan
    known = ~targets.isnan()
    outputs = OUTPUTS.clone().requires_grad_()
    errors, found = graph_errors(loss, outputs, targets)
    assert torch.equal(found, known)
    mean = errors.sum() / known.sum()
    torch.testing.assert_close(mean, PLAIN[loss](outputs[known], targets[known]))
    assert mean_error(loss, outputs, targets) == pytest.approx(mean.item())
    (gradient,) = torch.autograd.grad(mean, outputs)
    assert bool((gradient[~known] == 0).all())
    assert bool(gradient.isfinite().all())


def test_one_of_several_classes_is_pytorchs_cross_entropy() -> None:
    targets = torch.tensor([[0.0], [2.0], [torch.nan], [1.0], [2.0], [2.0]])
    known = ~targets[:, 0].isnan()
    outputs = OUTPUTS.clone().requires_grad_()
    errors, found = graph_errors("ce", outputs, targets)
    assert errors.shape == found.shape == (6, 1)
    assert torch.equal(found[:, 0], known)
    mean = errors.sum() / known.sum()
    expected = nn.functional.cross_entropy(outputs[known], targets[known, 0].long())
    torch.testing.assert_close(mean, expected)
    (gradient,) = torch.autograd.grad(mean, outputs)
    assert bool((gradient[2] == 0).all())
    with pytest.raises(ValueError, match=r"outputs \[6, 3\] and targets \[6, 3\] differ"):
        graph_errors("ce", OUTPUTS, TARGETS)


@pytest.mark.parametrize("loss", PLAIN)
def test_a_column_is_not_broadcast_against_a_row(loss) -> None:
    """[B, 1] against [B] would compare all pairs."""
    with pytest.raises(ValueError, match=r"outputs \[6, 1\] and targets \[6\] differ"):
        graph_errors(loss, OUTPUTS[:, :1], TARGETS[:, 0])
    pairs = (OUTPUTS[:, :1] - TARGETS[:, 0]).abs().mean()
    right = graph_errors("l1", OUTPUTS[:, :1], TARGETS[:, :1])[0].mean()
    assert abs(float(pairs - right)) > 0.01


def test_scales_go_there_and_back() -> None:
    targets = torch.tensor([[1.0, 5.0, 7.0], [3.0, 5.0, torch.nan], [torch.nan, 5.0, 9.0]])
    scale = Scale.of(targets)
    assert scale.mean.tolist() == [2.0, 5.0, 8.0]
    assert scale.std.tolist() == [1.0, 1.0, 1.0]  # a constant is only shifted
    back = scale.original(scale.standardised(targets))
    torch.testing.assert_close(back, targets, equal_nan=True)


@pytest.mark.parametrize("constant", [0.1, -7.7, 1_000_000.3])
@pytest.mark.parametrize("count", [3, 7, 1128])
def test_a_constant_is_only_shifted_whatever_its_mean_is_rounded_to(
    constant: float, count: int
) -> None:
    targets = torch.full((count, 2), constant)
    targets[0, 1] = torch.nan
    assert Scale.of(targets).std.tolist() == [1.0, 1.0]


def test_a_target_that_is_never_known_stays_as_it_is() -> None:
    assert Scale.of(torch.full((4, 1), torch.nan)) == Scale(torch.zeros(1), torch.ones(1))


@pytest.mark.parametrize("unit", [1e20, 1e-25])
def test_targets_of_any_unit_are_standardised(unit: float) -> None:
    targets = torch.tensor([[1.0], [3.0], [torch.nan]]) * unit
    expected = torch.tensor([[-1.0], [1.0], [torch.nan]])
    torch.testing.assert_close(Scale.of(targets).standardised(targets), expected, equal_nan=True)


def test_a_folded_layer_predicts_in_original_units() -> None:
    layer, x = nn.Linear(4, 2), torch.randn(3, 4)
    scale = Scale(torch.tensor([10.0, -3.0]), torch.tensor([2.0, 0.5]))
    expected = scale.original(layer(x))
    scale.fold_into(layer)
    torch.testing.assert_close(layer(x), expected)
