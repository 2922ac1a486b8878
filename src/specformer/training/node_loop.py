r"""Full-batch node classification: every split a run of its own, all trained as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from specformer.datasets.splits import Split
from specformer.nn import Specformer
from specformer.nn.sparse_features import SparseFeatures
from specformer.spectrum import Keys
from specformer.training.capture import Repeated
from specformer.training.checkpoint import Checkpoint
from specformer.training.early_stopping import EarlyStopping
from specformer.training.progress import Update
from specformer.training.schedule import Schedule, moments
from specformer.training.stacking import stack, trained_state

#: What decides when a run stops and which epoch's model is kept.
Monitor = Literal["loss", "accuracy"]
_READ_EVERY = 50
_SAVE_EVERY = 200


@dataclass(frozen=True)
class NodeTask:
    """Features ``[n, in]``, labels ``[n]`` and one row of masks ``[runs, n]`` a split."""

    x: Tensor | SparseFeatures
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def from_splits(
        cls,
        x: np.ndarray | sp.csr_array,
        y: np.ndarray,
        splits: Sequence[Split],
        device: torch.device,
    ) -> NodeTask:
        """Stack the masks of several splits of one graph; sparse features stay sparse."""

        def masks(part: str) -> Tensor:
            rows = np.stack([getattr(split, part) for split in splits])
            return torch.as_tensor(rows).to(device)

        if isinstance(x, np.ndarray):
            features: Tensor | SparseFeatures = torch.as_tensor(x, dtype=torch.float32).to(device)
        else:
            features = SparseFeatures.from_scipy(x).to(device)
        return cls(
            x=features,
            y=torch.as_tensor(y).to(device).clamp_min(0),  # unlabelled nodes are in no mask
            train=masks("train"),
            val=masks("val"),
            test=masks("test"),
        )

    @property
    def runs(self) -> int:
        return len(self.train)


@dataclass(frozen=True)
class Selection:
    """Accuracies ``[runs]`` at the epoch a rule picks."""

    val: Tensor
    test: Tensor
    epoch: Tensor


@dataclass(frozen=True)
class NodeFit:
    """The outcome of all runs.

    The model at its best epoch, both selection rules, and curves ``[epochs, runs, 3]``
    of training loss, validation loss and validation accuracy.
    """

    model: nn.Module
    by_loss: Selection
    by_accuracy: Selection
    epochs: Tensor
    curves: Tensor


class _Tracker:
    """Accuracies at the epoch with the lowest score so far, updated on the device."""

    def __init__(self, task: NodeTask) -> None:
        options: dict[str, Any] = {"dtype": task.x.dtype, "device": task.x.device}
        self.best = torch.full((task.runs,), float("inf"), **options)
        self.val = torch.zeros(task.runs, **options)
        self.test = torch.zeros(task.runs, **options)
        self.epoch = task.y.new_zeros(task.runs)

    def update(
        self, score: Tensor, active: Tensor, val: Tensor, test: Tensor, epoch: Tensor
    ) -> None:
        improved = active & (score < self.best)
        self.best.copy_(torch.where(improved, score, self.best))
        self.val.copy_(torch.where(improved, val, self.val))
        self.test.copy_(torch.where(improved, test, self.test))
        self.epoch.copy_(torch.where(improved, epoch, self.epoch))

    def state(self) -> dict[str, Tensor]:
        return {"best": self.best, "val": self.val, "test": self.test, "epoch": self.epoch}

    def selection(self) -> Selection:
        return Selection(self.val, self.test, self.epoch)


def fit_nodes(
    models: Sequence[nn.Module],
    task: NodeTask,
    operator: object,
    schedule: Schedule,
    *,
    monitor: Monitor = "loss",
    landmarks: Keys | None = None,
    checkpoint: Checkpoint | None = None,
    on_progress: Update | None = None,
) -> NodeFit:
    """Train one model a split, all at once, with early stopping on the validation nodes.

    Args:
        models: one a split, of one shape.
        task: features, labels and splits.
        operator: what the models take beside the features: a spectrum, or a ``Propagation``.
        schedule: epochs, patience and learning rates.
        monitor: what stops a run and picks the model that is kept: the lowest validation loss or
            the highest validation accuracy.
        landmarks: what Specformer's attention looks at instead of every eigenvalue.
        checkpoint: read at the start, if it exists, and written every few hundred epochs. On a CPU
            a resumed run gives what an uninterrupted one gives, to the bit.
        on_progress: called with the epochs done, the mean validation accuracy at the best epochs,
            the mean training loss (``loss``) and how many runs still train (``runs_left``).
    """
    device = task.x.device
    model = stack(models).to(device)
    stopping = EarlyStopping(trained_state(model).values(), task.runs, schedule.patience)
    by_loss, by_accuracy = _Tracker(task), _Tracker(task)
    points = () if landmarks is None else (landmarks,)
    filters = model.filter_parameters() if isinstance(model, Specformer) else ()
    optimiser = schedule.optimiser(model.parameters(), device, filters)
    epoch = torch.zeros((), dtype=torch.long, device=device)
    curves = torch.full(
        (schedule.epochs, task.runs, 3), float("nan"), dtype=task.x.dtype, device=device
    )

    def one_epoch() -> None:
        schedule.set_rate(optimiser, epoch)
        model.train()
        optimiser.zero_grad(set_to_none=False)
        logits = model(task.x, operator, *points)
        train_loss = _mean_over(task.train, _cross_entropy(logits, task.y))
        train_loss.sum().backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            logits = model(task.x, operator, *points)
            val_loss = _mean_over(task.val, _cross_entropy(logits, task.y))
            right = (logits.argmax(dim=-1) == task.y).to(logits.dtype)
            val, test = _mean_over(task.val, right), _mean_over(task.test, right)
            by_loss.update(val_loss, stopping.active, val, test, epoch)
            by_accuracy.update(-val, stopping.active, val, test, epoch)
            stopping.update(val_loss if monitor == "loss" else -val, epoch)
            record = torch.stack([train_loss.detach(), val_loss, val], dim=-1)
            curves.index_copy_(0, epoch.view(1), record.unsqueeze(0))
            epoch.add_(1)

    state = {"epoch": epoch, "curves": curves, **moments(optimiser)}
    for prefix, part in (
        ("model", trained_state(model)),
        ("stopping", stopping.state()),
        ("by_loss", by_loss.state()),
        ("by_accuracy", by_accuracy.state()),
    ):
        state |= {f"{prefix}.{name}": tensor for name, tensor in part.items()}
    done = int(epoch) if checkpoint and checkpoint.restore(state) else 0
    repeated = Repeated(one_epoch, device)
    while done < schedule.epochs:
        repeated()
        done += 1
        if done % _READ_EVERY == 0 or done == schedule.epochs:
            if on_progress:
                chosen = by_loss if monitor == "loss" else by_accuracy
                on_progress(
                    done,
                    float(chosen.val.mean()),
                    loss=float(curves[done - 1, :, 0].mean()),
                    runs_left=float(stopping.active.sum()),
                )
            if not stopping.active.any():
                break
        if checkpoint and done % _SAVE_EVERY == 0:
            checkpoint.save(state)
    stopping.restore()
    return NodeFit(
        model.eval(),
        by_loss.selection(),
        by_accuracy.selection(),
        stopping.epochs,
        curves[:done],
    )


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of every node in every run, ``[runs, n, classes]`` to ``[runs, n]``."""
    labels = y.expand(logits.shape[:-1])
    return -logits.log_softmax(dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def _mean_over(mask: Tensor, values: Tensor) -> Tensor:
    """Each run's mean over its mask, ``[runs, n]`` to ``[runs]``."""
    weights = mask.to(values.dtype)
    return (values * weights).sum(dim=-1) / weights.sum(dim=-1).clamp_min(1.0)
