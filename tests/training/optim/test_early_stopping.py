"""Early stopping of all runs at once against a plain loop that decides after every epoch."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear
from specformer.training.engine.stacking import stack, trained_state
from specformer.training.optim.early_stopping import EarlyStopping, join, views_of

#: Few values, so that ties are common; NaN and infinity as a diverged run gives them.
SCORES = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, -1.0, math.nan, math.inf])


def plain(scores: list[float], patience: int) -> dict[str, float]:
    """One run alone: its best score and epoch, the epochs it trained, and whether it still does."""
    best, best_epoch, kept = math.inf, 0, -1
    for epoch, score in enumerate(scores):
        if score < best:
            best, best_epoch, kept = score, epoch, epoch
        if epoch - best_epoch >= patience:
            return {
                "best": best,
                "best_epoch": best_epoch,
                "epochs": epoch + 1,
                "active": False,
                "kept": kept,
            }
    return {
        "best": best,
        "best_epoch": best_epoch,
        "epochs": len(scores),
        "active": True,
        "kept": kept,
    }


@given(
    runs=st.integers(1, 30).flatmap(
        lambda epochs: st.lists(
            st.lists(SCORES, min_size=epochs, max_size=epochs), min_size=1, max_size=4
        )
    ),
    patience=st.integers(1, 8),
)
def test_equals_a_loop_that_decides_every_epoch(runs, patience):
    scores = torch.tensor(runs).T  # [epochs, runs]
    # Parameters that say in which epoch they were; -1 before the first.
    parameters = [torch.full((len(runs), 2, 3), -1.0), torch.full((len(runs),), -1.0)]
    stopping = EarlyStopping(parameters, len(runs), patience)
    for epoch, row in enumerate(scores):
        for parameter in parameters:
            parameter.fill_(epoch)
        before = stopping.best.clone()
        improved = stopping.update(row, torch.tensor(epoch))
        assert torch.equal(improved, stopping.best < before)
    expected = [plain(run, patience) for run in runs]
    for name in ("best", "best_epoch", "epochs", "active"):
        np.testing.assert_array_equal(
            getattr(stopping, name).numpy(), [run[name] for run in expected], err_msg=name
        )
    stopping.restore()
    kept = torch.tensor([float(run["kept"]) for run in expected])
    assert torch.equal(parameters[0], kept.view(-1, 1, 1).expand(-1, 2, 3))
    assert torch.equal(parameters[1], kept)


@given(
    scores=st.lists(st.lists(SCORES, min_size=3, max_size=3), min_size=1, max_size=20),
    patience=st.integers(1, 5),
)
def test_an_epoch_taken_twice_is_taken_once(scores, patience):
    once, twice = (EarlyStopping([torch.zeros(3, 2)], 3, patience) for _ in range(2))
    for epoch, row in enumerate(scores):
        for stopping, times in ((once, 1), (twice, 2)):
            stopping.tensors[0].fill_(epoch)
            for _ in range(times):
                stopping.update(torch.tensor(row), torch.tensor(epoch))
        for name, tensor in once.state().items():
            assert torch.equal(tensor, twice.state()[name]), name


def test_what_comes_after_the_stop_counts_for_nothing():
    parameter = torch.zeros(2, 1)
    stopping = EarlyStopping([parameter], 2, patience=2)
    table = [[1.0, 3.0], [2.0, 2.0], [2.0, 1.0], [0.1, 0.5], [0.0, 0.25]]
    for epoch, row in enumerate(table):
        parameter.fill_(epoch)
        stopping.update(torch.tensor(row), torch.tensor(epoch))
    assert stopping.active.tolist() == [False, True]
    assert stopping.best.tolist() == [1.0, 0.25]
    assert stopping.epochs.tolist() == [3, 5]
    stopping.restore()
    assert parameter.flatten().tolist() == [0.0, 4.0]


def test_kept_parameters_are_copies():
    parameter = torch.tensor([[1.0]])
    stopping = EarlyStopping([parameter], 1, patience=5)
    stopping.update(torch.tensor([1.0]), torch.tensor(0))
    parameter.fill_(9.0)
    stopping.restore()
    assert parameter.item() == 1.0


def test_running_averages_are_kept_and_restored_with_the_parameters():
    model = stack([nn.Sequential(BatchNorm(2), Linear(2, 1)) for _ in range(3)])
    state = trained_state(model)
    assert {"0.running_mean", "0.running_var", "1.weight"} <= set(state)
    stopping = EarlyStopping(state.values(), 3, patience=10)
    generator = torch.Generator().manual_seed(0)
    best = [2, 0, 3]  # the epoch at which each run's score is lowest
    seen = []
    for epoch in range(4):
        model(torch.randn(3, 8, 2, generator=generator))  # moves the averages
        seen.append({name: tensor.detach().clone() for name, tensor in state.items()})
        scores = torch.tensor([float(epoch != at) for at in best])
        stopping.update(scores, torch.tensor(epoch))
    assert not torch.equal(seen[0]["0.running_mean"], seen[3]["0.running_mean"])
    stopping.restore()
    for name, tensor in trained_state(model).items():
        for run, at in enumerate(best):
            assert torch.equal(tensor[run], seen[at][name][run]), name


def test_values_shapes_and_identity_stay():
    tensors = [torch.randn(2, 3, 5), nn.Parameter(torch.randn(2)), torch.randn(2, 1).mT]
    before = [(id(tensor), tensor.detach().clone()) for tensor in tensors]
    block = join(tensors)
    for tensor, (identity, value) in zip(tensors, before, strict=True):
        assert id(tensor) == identity
        assert torch.equal(tensor, value)
        assert tensor.is_contiguous()
    assert isinstance(tensors[1], nn.Parameter)
    assert tensors[1].requires_grad
    assert not block.requires_grad


def test_the_block_is_the_tensors():
    tensors = [torch.zeros(3), torch.zeros(2, 2)]
    block = join(tensors)
    tensors[0].fill_(1.0)
    tensors[1][1, 0] = 2.0
    assert float(block.sum()) == 5.0
    for view, tensor in zip(views_of(block, tensors), tensors, strict=True):
        assert view.data_ptr() == tensor.data_ptr()
        assert view.data_ptr() % 256 == block.data_ptr() % 256  # as an allocator aligns them
    block.zero_()
    assert not any(tensor.any() for tensor in tensors)


def test_an_optimiser_moves_the_block():
    layer = nn.Linear(3, 2)
    plain = nn.Linear(3, 2)
    plain.load_state_dict(layer.state_dict())
    block = join(list(layer.parameters()))
    x = torch.randn(4, 3)
    for each in (layer, plain):
        optimiser = torch.optim.Adam(each.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            optimiser.zero_grad()
            each(x).square().sum().backward()
            optimiser.step()
    for found, expected in zip(
        views_of(block, list(layer.parameters())), plain.parameters(), strict=True
    ):
        torch.testing.assert_close(found, expected.detach())
