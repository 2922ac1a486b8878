"""Losses, accuracies and best epochs of all runs at once against one run at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from specformer.training.evaluation.node_objectives import BestEpochs, NodeTask

RUNS, NODES, CLASSES = 3, 50, 4


def example() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(RUNS, NODES, CLASSES, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    parts = torch.randint(3, (RUNS, NODES), generator=generator)
    return logits, y, parts == 0, parts == 1, parts == 2


def test_loss_and_gradient_are_cross_entropy():
    logits, y, train, val, test = example()
    terms = logits.requires_grad_().log_softmax(dim=-1)
    losses = (terms * NodeTask(logits, y, train, val, test).weights(terms)).sum(dim=(-2, -1))
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    plain = torch.stack(
        [nn.functional.cross_entropy(logits[run][train[run]], y[train[run]]) for run in range(RUNS)]
    )
    (expected,) = torch.autograd.grad(plain.sum(), logits)
    torch.testing.assert_close(losses, plain)
    torch.testing.assert_close(gradient, expected)


def test_evaluation_of_every_run():
    logits, y, train, val, test = example()
    found = NodeTask(logits, y, train, val, test).evaluate(logits)
    assert found.shape == (2, 2, RUNS)
    for run in range(RUNS):
        for part, mask in enumerate((val[run], test[run])):
            loss = nn.functional.cross_entropy(logits[run][mask], y[mask])
            right = (logits[run].argmax(dim=-1) == y)[mask].double().mean()
            torch.testing.assert_close(found[0, part, run], loss)
            assert found[1, part, run] == right  # to the bit: ties between epochs stay ties


def test_a_part_without_nodes_is_zero():
    logits, y, train, val, test = example()
    found = NodeTask(logits, y, train, val, torch.zeros_like(test)).evaluate(logits)
    assert not found[:, 1].any()


@pytest.mark.parametrize("stop", [2, 100])
def test_best_epochs_of_both_rules(stop: int):
    generator = torch.Generator().manual_seed(stop)
    best = BestEpochs(RUNS, torch.float64, torch.device("cpu"))
    losses = torch.randint(5, (12, RUNS), generator=generator).double()
    accuracies = torch.randint(5, (12, 2, RUNS), generator=generator).double() / 4
    losses[3, 0] = math.nan
    for epoch, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True)):
        active = torch.tensor([True, True, epoch < stop])  # the last run stops
        scores = torch.stack([loss, -accuracy[0]])
        best.update(scores, accuracy, active, torch.tensor(epoch))
    for run in range(RUNS):
        last = stop if run == RUNS - 1 else len(losses)
        for rule, scores in enumerate((losses[:last, run], -accuracies[:last, 0, run])):
            epoch = min(
                range(len(scores)),
                key=lambda at: math.inf if scores[at].isnan() else float(scores[at]),
            )
            assert best.epoch[rule, run] == epoch
            assert best.score[rule, run] == scores[epoch]
            assert torch.equal(best.figure[rule, :, run], accuracies[epoch, :, run])


def test_state_names_every_part():
    best = BestEpochs(RUNS, torch.float32, torch.device("cpu"))
    for tensor in best.state().values():
        tensor.fill_(2)
    assert (best.score == 2).all()
    assert (best.figure == 2).all()
    assert (best.epoch == 2).all()
    assert set(best.state()) == {
        f"by_{rule}.{name}"
        for rule in ("loss", "metric")
        for name in ("best", "val", "test", "epoch")
    }
