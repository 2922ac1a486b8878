"""What a TensorCache stores, for how long, and when it stores nothing."""

from __future__ import annotations

import copy
import gc
import weakref

import torch

from specformer.kernels.tracing import TensorCache
from specformer.nn.filter import EigenvalueEncoding


class Made:
    """Counts how often it makes a number."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> torch.Tensor:
        self.times += 1
        return torch.tensor(float(self.times))


def test_made_once_for_a_tensor_and_a_name():
    cache, made = TensorCache(), Made()
    one, other = torch.ones(2), torch.ones(2)
    for _ in range(3):
        cache(one, "a", made)
    assert made.times == 1
    cache(one, "b", made)
    cache(other, "a", made)  # equal, but not the same
    assert made.times == 3


def test_a_change_in_place_is_noticed():
    cache, made = TensorCache(), Made()
    source = torch.ones(2)
    cache(source, "a", made)
    source.add_(1.0)
    assert cache(source, "a", made) == 2.0


def test_what_is_made_of_several_tensors_needs_the_same_ones():
    cache, made = TensorCache(), Made()
    one, other, third = torch.ones(2), torch.ones(2), torch.ones(2)
    for others in ((other,), (other,), (third,), (third,), (), (third, other)):
        cache(one, "a", made, *others)
    assert made.times == 4
    other.add_(1.0)
    cache(one, "a", made, third, other)
    assert made.times == 5


def test_nothing_outlives_its_tensor():
    cache, source = TensorCache(), torch.ones(2)
    kept = weakref.ref(cache(source, "a", lambda: torch.zeros(3)))
    assert kept() is not None
    del source
    gc.collect()
    assert kept() is None


def test_not_where_gradients_flow_or_versions_are_uncache():
    cache, made = TensorCache(), Made()
    variable = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        frozen = torch.ones(2)
    for source in (variable, frozen):
        cache(source, "a", made)
        cache(source, "a", made)
    assert made.times == 4


def test_what_inference_mode_makes_is_made_again():
    cache, made, source = TensorCache(), Made(), torch.ones(2)
    with torch.inference_mode():
        assert cache(source, "a", made).is_inference()
    assert not cache(source, "a", made).is_inference()
    with torch.inference_mode():  # what is kept serves there too
        cache(source, "a", made)
    assert made.times == 2


def test_copies_are_empty():
    cache, made, source = TensorCache(), Made(), torch.ones(2)
    cache(source, "a", made)
    copy.deepcopy(cache)(source, "a", made)
    assert made.times == 2


def test_an_encoding_is_that_of_its_own_eigenvalues_and_precision():
    encoding = EigenvalueEncoding(4)
    values = torch.tensor([0.5, 1.0])
    first = encoding(values)
    assert encoding(values) is first
    values.mul_(2.0)
    torch.testing.assert_close(encoding(values), EigenvalueEncoding(4)(values.clone()))
    torch.testing.assert_close(copy.deepcopy(encoding)(values), encoding(values))
