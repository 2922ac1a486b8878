"""The plain graph model: the same outputs, gradients and losses as GraphSpecformer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.nn.molecules import EDGE_CARDINALITIES, MOLECULES, NODE_CARDINALITIES, pack
from tests.nn.plain_twin import scrambled

from benchmarks.plain_graph import PlainBatch, PlainGraphSpecformer
from benchmarks.plain_loop import step_plainly
from specformer import GraphSpecformer
from specformer.errors import ConfigError

OGB = {"bases_norm": "batch", "bases_activation": "gelu", "normalise_bases": "softmax"}


def model_of(**options: Any) -> GraphSpecformer:
    torch.manual_seed(0)
    options = {"num_layers": 2, "num_heads": 2, **options}
    model = GraphSpecformer(NODE_CARDINALITIES, EDGE_CARDINALITIES, 8, 3, **options)
    return scrambled(model)  # type: ignore[return-value]


@pytest.mark.parametrize("sharing", ["small", "medium", "large"])
@pytest.mark.parametrize("options", [{}, {**OGB, "epsilon": 30.0}])
@pytest.mark.parametrize("training", [True, False])
def test_same_outputs_and_gradients(sharing, options: dict[str, Any], training: bool) -> None:
    model = model_of(sharing=sharing, **options).train(training)
    plain = PlainGraphSpecformer.of(model).train(training)
    packed = pack(MOLECULES)
    ours, theirs = model(packed), plain(PlainBatch.of(packed))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    (ours**2).sum().backward()
    (theirs**2).sum().backward()
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in plain.parameters())
    for name in ("atoms.weight", "bonds.weight", "convs.1.message.weight", "bases.0.first.weight"):
        torch.testing.assert_close(
            plain.get_parameter(name).grad,
            model.get_parameter(name).grad,
            rtol=1e-6,
            atol=1e-8,
            msg=name,
        )


@pytest.mark.parametrize("options", [{}, OGB])
@pytest.mark.parametrize("which", ["transformer", "feature", "propagation"])
def test_dropout_is_in_the_same_places(which: str, options: dict[str, Any]) -> None:
    """A rate of one leaves nothing to chance: all that passes through it is lost."""
    model = model_of(**options, **{f"{which}_dropout": 1.0})
    packed = pack(MOLECULES)
    theirs = PlainGraphSpecformer.of(model)(PlainBatch.of(packed))
    torch.testing.assert_close(model(packed), theirs, rtol=0, atol=1e-9)


def test_same_losses_over_twenty_steps() -> None:
    model = model_of()
    plain = PlainGraphSpecformer.of(model)
    packed = pack(MOLECULES)
    batch = PlainBatch.of(packed)
    settings: dict[str, Any] = {"steps": 20, "learning_rate": 1e-3, "weight_decay": 5e-4}
    ours = step_plainly(model, lambda _: model(packed).abs().mean(), **settings)
    theirs = step_plainly(plain, lambda _: plain(batch).abs().mean(), **settings)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=0, atol=1e-6)
    assert theirs[-1] < theirs[0]


def test_a_batch_is_complete_and_padded() -> None:
    batch = PlainBatch.of(pack(MOLECULES))
    largest = max(len(one.nodes) for one in MOLECULES)
    assert batch.vectors.shape == (len(MOLECULES), largest, largest)
    assert len(batch.source) == sum(len(one.nodes) ** 2 for one in MOLECULES)
    bonds = batch.bonds.split([len(one.nodes) ** 2 for one in MOLECULES])
    for number, one in enumerate(MOLECULES):
        size = len(one.nodes)
        assert torch.equal(batch.vectors[number, :size, :size], one.vectors)
        assert not batch.vectors[number, size:].any()
        assert torch.equal(bonds[number].view(size, size, -1), one.bonds)


@pytest.mark.parametrize("options", [{"decoder": "heads"}, {"pooling": "max"}])
def test_what_it_does_not_compute_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name}=.*the plain version has"):
        PlainGraphSpecformer.of(model_of(**options))
