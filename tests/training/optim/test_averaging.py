"""The running mean of weights against its formula, in NumPy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from specformer.nn.layers.batch_norm import BatchNorm
from specformer.training.optim.averaging import WeightAverage


def test_it_is_the_mean_at_first_and_then_forgets() -> None:
    model = nn.Sequential(nn.Linear(2, 3), BatchNorm(3)).double()
    average = WeightAverage(model, window=4)
    expected = {}
    for step in range(9):
        model.train()(torch.randn(8, 2).double()).square().sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update(torch.tensor(step))
        for name, tensor in model.state_dict().items():
            now, before = tensor.detach().numpy().copy(), expected.get(name, 0.0)
            expected[name] = before + (now - before) / min(step + 1, 4)
    for name in ("0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"):
        found = average.model.state_dict()[name].numpy()
        np.testing.assert_allclose(found, expected[name], rtol=1e-12)
        assert not np.allclose(found, model.state_dict()[name].numpy())
    average.settle()
    for name, tensor in average.model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_its_copy_leaves_the_model_alone() -> None:
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    average = WeightAverage(model, window=2)
    average.update(torch.tensor(0))
    assert torch.equal(model.weight, before)
    assert average.model.weight.data_ptr() != model.weight.data_ptr()
