r"""Arrays that a report draws of learned filters, under the names it expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from specformer.datasets import SignalSet
from specformer.nn import Specformer
from specformer.spectrum import Spectrum
from specformer.training.loops.signals import SignalFit, SignalTask

#: Pictures are kept of this many signals; numbers of all.
_DRAWN = 4


def task_pictures(
    signals: SignalSet, task: SignalTask, filters: Sequence[str]
) -> dict[str, np.ndarray]:
    """The signals before and after the true filters, and those filters."""
    groups = task.spectrum.distinct
    targets = task.targets().unflatten(0, (-1, len(filters)))
    arrays = {
        "filters/eigenvalues": groups.values.cpu().numpy(),
        "filters/counts": groups.counts.cpu().numpy().astype(np.int64),
        "filters/raw": signals.signals[:_DRAWN].reshape(-1, *signals.shape),
        "filters/titles": np.array(signals.titles[:_DRAWN]),
    }
    for index, name in enumerate(filters):
        arrays[f"filters/{name}/target"] = task.responses[index].cpu().numpy()
        arrays[f"filters/{name}/true"] = _images(targets[:_DRAWN, index], signals)
    return arrays


def fit_pictures(
    label: str,
    signals: SignalSet,
    task: SignalTask,
    filters: Sequence[str],
    fits: Sequence[SignalFit],
) -> dict[str, np.ndarray]:
    """What one contestant gives for the signals, its loss by epoch and its learned filters."""
    output = torch.cat([fit.output for fit in fits]).unflatten(0, (-1, len(filters)))
    epochs = max(len(fit.curves) for fit in fits)
    curves = torch.cat(
        [pad(fit.curves, (0, 0, 0, epochs - len(fit.curves)), value=torch.nan) for fit in fits],
        dim=1,
    ).unflatten(1, (-1, len(filters)))
    response = _responses(task, fits)
    arrays = {}
    for index, name in enumerate(filters):
        key = f"filters/{name}/{label}"
        arrays[f"{key}/image"] = _images(output[:_DRAWN, index], signals)
        arrays[f"{key}/curve"] = curves[:, :_DRAWN, index].numpy()
        if response is not None:
            gains = response.unflatten(0, (-1, len(filters)))[:_DRAWN, index]
            arrays[f"{key}/response"] = gains.cpu().numpy()
    return arrays


@torch.no_grad()
def attention_pictures(
    label: str, spectrum: Spectrum, filters: Sequence[str], models: Sequence[Specformer]
) -> dict[str, np.ndarray]:
    """Condensed attention of one contestant's models of the first signal, one per filter."""
    arrays = {}
    for name, model in zip(filters, models, strict=False):  # runs are signal-major
        attention = model.to(spectrum.device).condensed_attention(spectrum)[0]
        arrays[f"filters/{name}/{label}/attention"] = attention.cpu().numpy()
    return arrays


@torch.no_grad()
def _responses(task: SignalTask, fits: Sequence[SignalFit]) -> Tensor | None:
    """Learned gains at the distinct eigenvalues, ``[runs, p]``, for models that have them.

    A polynomial behind a nonlinear feature map is drawn at the scale that explains its output.
    """
    values = task.spectrum.distinct.values
    gains = []
    start = 0
    for fit in fits:
        count = len(fit.sse) // task.num_filters
        part = replace(task, signals=task.signals[start : start + count])
        start += count
        if isinstance(fit.model, Specformer):
            gains.append(fit.model.linear_response(task.spectrum.distinct.tokens)[..., 0, 0])
        elif hasattr(fit.model, "response"):
            polynomial: Tensor = fit.model.response(values)[..., 0]  # type: ignore[operator]
            filtered = part.apply(polynomial)
            power = filtered.square().sum(dim=-1, keepdim=True).clamp_min(1e-30)
            gains.append(polynomial * (fit.output * filtered).sum(dim=-1, keepdim=True) / power)
        else:
            return None
    return torch.cat(gains)


def _images(rows: Tensor, signals: SignalSet) -> np.ndarray:
    return np.asarray(rows.cpu().numpy().reshape(-1, *signals.shape), dtype=np.float32)
