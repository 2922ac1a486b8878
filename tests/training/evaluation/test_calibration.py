"""Batch norms' averages for evaluation against single training passes without dropout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.training.small_graphs import small_model, small_set, small_task

from specformer.baselines.graphs import GraphGraphormer
from specformer.datasets.batches import Batches
from specformer.errors import ConfigError
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.training.evaluation.calibration import Calibration
from specformer.training.evaluation.graphs import Work

BASES = {"bases_norm": "batch", "bases_activation": "gelu", "normalise_bases": "softmax"}
DROPOUTS = ("transformer_dropout", "feature_dropout", "propagation_dropout")


def averages(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: t.numpy().copy() for name, t in model.named_buffers() if "running" in name}


@pytest.mark.parametrize("graphs", [5, 8, 30])
def test_averages_are_those_of_a_model_without_dropout(graphs: int) -> None:
    task = small_task(small_set(60))
    model = small_model(**BASES, **dict.fromkeys(DROPOUTS, 0.5))
    work = Work(model, "highest", torch.device("cpu"))
    calibrate = Calibration(work, task.store, task.train, batch_size=2, graphs=graphs, seed=3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.train()(task.store.exact(task.train))  # moves the averages, which must not matter
    calibrate()

    plain = small_model(**BASES)
    plain.load_state_dict(model.state_dict())
    for norm in plain.modules():
        if isinstance(norm, BatchNorm):
            norm.momentum = 1.0
    batches = Batches(task.store, task.train, 8, seed=3).epoch(0)[: -(-graphs // 8)]
    seen = []
    with torch.no_grad():
        for batch in batches:
            plain.train()(task.store.exact(batch.index))
            seen.append(averages(plain))
    weights = [len(batch.index) for batch in batches]
    assert len(set(weights)) > 1 or len(weights) == 1  # the last of all 30 is a smaller one
    for name, found in averages(model).items():
        expected = np.average([each[name] for each in seen], axis=0, weights=weights)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9, err_msg=name)

    assert not any(module.training for module in model.modules())
    assert {norm.momentum for norm in model.modules() if isinstance(norm, BatchNorm)} == {0.1}
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_a_model_without_batch_norms_is_refused() -> None:
    task = small_task(small_set(20))
    model = GraphGraphormer([3], [2], 8, 2)
    work = Work(model, "highest", torch.device("cpu"))
    with pytest.raises(ConfigError, match="the model has no batch norm"):
        Calibration(work, task.store, task.train, batch_size=2, graphs=4, seed=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_replayed_it_is_the_same() -> None:
    found = []
    for device in ("cuda", "cpu"):
        task = small_task(small_set(200), dtype=torch.float32)
        model = small_model(torch.float32, **BASES, **dict.fromkeys(DROPOUTS, 0.5)).to(device)
        store = task.store.placed(torch.device(device))
        work = Work(model, "highest", torch.device(device))
        calibrate = Calibration(work, store, task.train, batch_size=8, graphs=90, seed=0)
        for change in range(6):  # three calls, a capture, two replays
            with torch.no_grad():
                model.convs[0].first.weight.add_(0.01 * change)
            calibrate()
        found.append(averages(model.cpu()))
    for name, one in found[0].items():
        np.testing.assert_allclose(one, found[1][name], rtol=1e-3, atol=1e-5, err_msg=name)
