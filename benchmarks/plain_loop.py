r"""Training loops as in the code of most papers: the host reads results after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets import Split
from specformer.training.optim.schedule import Schedule


class Reading(NamedTuple):
    """The numbers that the host reads after an epoch."""

    train_loss: float
    val_loss: float
    val_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class PlainTask:
    """Labels ``[n]`` and node indices of one split on a device; labels also on the host."""

    y: Tensor
    train: Tensor
    val: Tensor
    host_y: np.ndarray
    split: Split

    @classmethod
    def of(cls, y: np.ndarray, split: Split, device: torch.device) -> PlainTask:
        def index(mask: np.ndarray) -> Tensor:
            return torch.from_numpy(np.flatnonzero(mask)).to(device)

        return cls(torch.as_tensor(y).to(device), index(split.train), index(split.val), y, split)


def fit_plainly(
    model: nn.Module,
    forward: Callable[[], Tensor],
    task: PlainTask,
    schedule: Schedule,
) -> list[Reading]:
    """Train on one split, evaluate on the host after every epoch, stop early.

    Args:
        model: the model to train.
        forward: the model's outputs ``[n, classes]`` for all nodes.
        task: labels and split.
        schedule: only its epochs, patience, learning rate and weight decay are used.
    """
    rate, decay = schedule.learning_rate, schedule.weight_decay
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    readings: list[Reading] = []
    best, waited = float("inf"), 0
    for _ in range(schedule.epochs):
        model.train()
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(forward()[task.train], task.y[task.train])
        loss.backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            logits = forward()
            val_loss = nn.functional.cross_entropy(logits[task.val], task.y[task.val]).item()
        right = logits.argmax(dim=1).cpu().numpy() == task.host_y
        val, test = right[task.split.val].mean(), right[task.split.test].mean()
        readings.append(Reading(loss.item(), val_loss, float(val), float(test)))
        best, waited = (val_loss, 0) if val_loss < best else (best, waited + 1)
        if waited >= schedule.patience:
            break
    return readings


def step_plainly(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    *,
    steps: int,
    learning_rate: float,
    weight_decay: float,
) -> list[float]:
    """Take AdamW steps on ``loss(number)``, and read every loss on the host."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    model.train()
    losses = []
    for number in range(steps):
        optimiser.zero_grad()
        value = loss(number)
        value.backward()
        optimiser.step()
        losses.append(value.item())
    return losses
