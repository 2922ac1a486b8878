"""The graph model: its literal twin, padding, symmetries, cost, precision, parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from tests.nn.molecules import (
    EDGE_CARDINALITIES,
    MOLECULES,
    NODE_CARDINALITIES,
    molecule,
    numbers_for_kinds,
    pack,
    relabelled,
)
from tests.nn.plain_twin import BOTH_DTYPES, assert_sums_of_a_gpu, assert_twins, scrambled, state_of
from tests.operations import WAITS, Watch
from torch_geometric.data import Batch, Data

from specformer import GraphSpecformer, reference
from specformer.errors import ConfigError, SpecformerError
from specformer.reference import Molecule
from specformer.tasks.graphs.graph_models import graph_model
from specformer.tasks.graphs.graph_recipe import graph_recipe

SHARINGS = ["small", "medium", "large"]
COLUMNS = (NODE_CARDINALITIES, EDGE_CARDINALITIES)
#: What the paper's recipes for OGB's sets have, in the largest model.
EVERYTHING = {
    "bases_norm": "batch",
    "bases_activation": "gelu",
    "normalise_bases": "softmax",
    "sharing": "large",
}
#: Pair states as the recipe for ZINC has them.
PAIRS = {"form": "pairs", "max_ring": 6, "bases_activation": "gelu", "pooling": "sum"}
PADDING = {"spare_nodes": 5, "spare_pairs": 40, "spare_rings": 3, "max_nodes": 9}


def model_of(**options: Any) -> GraphSpecformer:
    torch.manual_seed(0)
    options = {"num_layers": 2, "num_heads": 2, **options}
    return scrambled(GraphSpecformer(*COLUMNS, 8, 3, **options))  # type: ignore[return-value]


def assert_is_the_papers(training: bool = True, **options: Any) -> None:
    model = model_of(**options).train(training)
    batch = pack(MOLECULES)

    def plain() -> torch.Tensor:
        return reference.graph_specformer(state_of(model), model.config, MOLECULES, training)

    assert_twins(model, lambda: model(batch), plain, atol=1e-10)


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("bases_norm", [None, "batch"])
@pytest.mark.parametrize("normalise_bases", [None, "softmax"])
@pytest.mark.parametrize("training", [True, False])
def test_structure_is_the_papers(sharing, bases_norm, normalise_bases, training: bool) -> None:
    options = {"bases_norm": bases_norm, "normalise_bases": normalise_bases}
    assert_is_the_papers(training, sharing=sharing, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "sum"},
        {"pooling": "max"},
        {"decoder": "heads", "num_blocks": 2},
        {"epsilon": 30.0},
        {"encoding": False, "attention": False},
        {"attention": False, "sharing": "large"},
        {"bases_activation": "gelu"},
        {"num_layers": 3, "num_heads": 4, "sharing": "large"},
        {"fingerprint": 6},
    ],
)
def test_options_are_the_papers(options) -> None:
    assert_is_the_papers(**options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_ring": 6},
        {"max_ring": 6, "normalise_bases": "softmax", "bases_norm": "batch"},
        {**PAIRS, "num_layers": 3, "fingerprint": 6},
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_pair_states_are_their_equations(options, training: bool) -> None:
    assert_is_the_papers(training, **{"form": "pairs", **options})


@pytest.mark.parametrize("options", [{}, EVERYTHING, PAIRS])
def test_the_sums_of_a_gpu_are_those_of_a_cpu(options, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(**options).eval()
    assert_sums_of_a_gpu(model, pack(MOLECULES, **PADDING), monkeypatch)


# --- padding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoder", ["joint", "heads"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("options", [{}, EVERYTHING, {"fingerprint": 6}, PAIRS])
def test_padding_changes_nothing(options, pooling, decoder) -> None:
    results = []
    for padding in ({}, PADDING, {**PADDING, "spare_graphs": 2}):
        model = model_of(**{**options, "pooling": pooling, "decoder": decoder})
        out = model(pack(MOLECULES, **padding))[: len(MOLECULES)]
        gradients = torch.autograd.grad((out**3).sum(), list(model.parameters()))
        results.append([out, *gradients, *model.buffers()])
    for padded in results[1:]:
        for one, other in zip(results[0], padded, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("options", [{}, EVERYTHING, PAIRS])
def test_much_padding_stays_finite(options) -> None:
    torch.manual_seed(0)
    model = GraphSpecformer(*COLUMNS, 8, 3, num_layers=8, num_heads=2, **options)
    padding = {"spare_nodes": 50, "spare_pairs": 20_000, "spare_graphs": 4, "max_nodes": 40}
    out = model(pack(MOLECULES, dtype=torch.float32, **padding))
    out.square().sum().backward()
    assert out.isfinite().all()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


# --- symmetries ---------------------------------------------------------------------------------


def rotated(one: Molecule, seed: int) -> Molecule:
    """Other signs, and another basis of every eigenspace."""
    generator = torch.Generator().manual_seed(seed)
    vectors = one.vectors.clone()
    values = one.eigenvalues.round(decimals=8)
    for value in values.unique():
        columns = values == value
        size = int(columns.sum())
        square = torch.randn(size, size, generator=generator, dtype=torch.float64)
        vectors[:, columns] = vectors[:, columns] @ torch.linalg.qr(square).Q
    return one._replace(vectors=vectors)


def shuffled(one: Molecule, seed: int) -> Molecule:
    generator = torch.Generator().manual_seed(seed)
    return relabelled(one, torch.randperm(len(one.nodes), generator=generator).tolist())


@pytest.mark.parametrize("dtype", BOTH_DTYPES)
@pytest.mark.parametrize(
    "options",
    [{}, EVERYTHING, {"sharing": "medium", "decoder": "heads"}, {"fingerprint": 6}, PAIRS],
)
@pytest.mark.parametrize("change", [rotated, shuffled])
def test_blind_to_labels_and_to_the_eigenbasis(change, options, dtype: torch.dtype) -> None:
    model = model_of(**options).to(dtype)
    before = model(pack(MOLECULES, dtype=dtype))
    changed = [change(one, seed) for seed, one in enumerate(MOLECULES)]
    after = model(pack(changed, dtype=dtype))
    atol = 1e-9 if dtype == torch.float64 else 2e-3
    torch.testing.assert_close(after, before, rtol=0, atol=atol)


def test_numbers_of_ones_and_zeros_are_categories() -> None:
    for padding in ({}, PADDING):
        model, batch = model_of().eval(), pack(MOLECULES, **padding)
        same = GraphSpecformer(
            [1], EDGE_CARDINALITIES, 8, 3, 2, 2, in_channels=sum(NODE_CARDINALITIES)
        )
        numbers = numbers_for_kinds(model, same.double().eval(), batch)
        torch.testing.assert_close(same(numbers), model(batch))
        with pytest.raises(ConfigError, match=f"nodes have {numbers.x.shape[1]} numbers each, but"):
            GraphSpecformer([1], EDGE_CARDINALITIES, 8, 3)(numbers)
        with pytest.raises(ConfigError, match="nodes have 0 numbers each, but the model has in_ch"):
            same(replace(numbers, x=None))


@pytest.mark.parametrize("options", [{}, EVERYTHING, PAIRS])
def test_order_of_the_graphs_in_a_batch(options) -> None:
    order = [3, 5, 0, 2, 4, 1]
    model = model_of(**options)
    before = model(pack(MOLECULES))
    after = model(pack([MOLECULES[i] for i in order]))
    torch.testing.assert_close(after, before[order], rtol=0, atol=1e-9)


@pytest.mark.parametrize("options", [EVERYTHING, PAIRS])
def test_graphs_do_not_see_each_other_in_evaluation(options) -> None:
    model = model_of(**options).eval()
    together = model(pack(MOLECULES))
    for number, one in enumerate(MOLECULES):
        torch.testing.assert_close(model(pack([one]))[0], together[number], rtol=0, atol=1e-10)


def test_bonds_matter() -> None:
    model = model_of().eval()
    ring = MOLECULES[1]
    other = torch.where(ring.bonds > 0, ring.bonds % 2 + 1, 0)
    before, after = model(pack([ring])), model(pack([ring._replace(bonds=other)]))
    assert (before - after).abs().max() > 1e-4


@pytest.mark.parametrize(
    "odd", [nx.cycle_graph(18), nx.complete_graph(20), nx.ladder_graph(12), nx.star_graph(30)]
)
def test_a_graph_unlike_the_others_stays_within_bounds(odd: nx.Graph) -> None:
    """In evaluation batch norm has averages of others: products of ten layers must not grow.

    Without the signed root the first gives 3e26, and the others are not numbers.
    """
    torch.manual_seed(0)
    options = {**PAIRS, "pooling": "mean"}
    model = GraphSpecformer(*COLUMNS, 16, 1, num_layers=10, num_heads=2, **options)
    for _ in range(30):
        model(pack(MOLECULES, dtype=torch.float32))
    out = model.eval()(pack([molecule(odd)], dtype=torch.float32))
    assert out.abs().max() < 100


# --- cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, EVERYTHING, PAIRS])
def test_no_wait_for_the_host_and_nothing_larger_than_pairs_by_channels(options) -> None:
    torch.manual_seed(0)
    model = GraphSpecformer(*COLUMNS, 32, 3, num_heads=2, **options)
    chains = [molecule(nx.path_graph(n), seed=n) for n in (10, 15, 20)]
    batch = pack(chains, dtype=torch.float32, max_nodes=30, spare_nodes=1)
    with Watch() as watch:
        model(batch).square().sum().backward()
    assert not watch.names & WAITS
    # P·d is 23,200 here; B·n·n·d would be 86,400, and P·d·d 742,400. A state is mapped to two.
    most = 2 if options is PAIRS else 1
    assert watch.largest == most * len(batch.target) * 32 == most * 23_200


# --- precision ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("options", [{}, {**EVERYTHING, "decoder": "heads"}, PAIRS])
def test_bfloat16_by_autocast(options) -> None:
    torch.manual_seed(0)
    model = GraphSpecformer(*COLUMNS, 16, 3, num_layers=2, num_heads=2, **options)
    batch = pack(MOLECULES, dtype=torch.float32, **PADDING)
    exact = model(batch)
    # Not every processor that oneDNN takes for one with bfloat16 products can run them.
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            brief = model(batch)
        brief.square().sum().backward()
    assert brief.dtype == torch.float32
    assert 0 < (brief - exact).abs().max() < 0.1
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


# --- parameters ---------------------------------------------------------------------------------

#: OGB's lists of atom and bond features, with four kinds of chirality as they were in 2022.
OGB_ATOMS = [119, 4, 12, 12, 10, 6, 6, 2, 2]
OGB_BONDS = [5, 6, 2]
OGB = {"bases_norm": "batch", "normalise_bases": "softmax"}


def parameters(*arguments: Any, **options: Any) -> int:
    return sum(p.numel() for p in GraphSpecformer(*arguments, **options).parameters())


def test_zinc_has_as_many_parameters_as_the_papers() -> None:
    assert parameters([45], [4], 160, 1, 4, 8, "small") == 529_609
    # The data use 28 kinds of atoms; the paper's count leaves room for 17 more.
    assert parameters([28], [4], 160, 1, 4, 8, "small") == 529_609 - 17 * 160


@pytest.mark.parametrize(
    ("channels", "tasks", "heads", "sharing", "paper"),
    [
        (80, 1, 4, "small", 226_645),  # MolHIV
        (272, 128, 8, "medium", 3_025_048),  # MolPCBA
        (320, 1, 8, "medium", 4_117_129),  # PCQM4Mv2
    ],
)
def test_the_papers_other_counts(channels, tasks, heads, sharing, paper: int) -> None:
    """Width and sharing are those of the authors' code, not of the paper's text."""
    assert parameters(OGB_ATOMS, OGB_BONDS, channels, tasks, 8, heads, sharing, **OGB) == paper


def test_pair_states_on_zinc_have_as_many_as_the_paper_allows() -> None:
    _, recipe = graph_recipe("best", "zinc")
    model = graph_model("specformer", recipe, [28], [4], 1)
    assert sum(p.numel() for p in model.parameters()) <= 530_000


# --- options, saving ----------------------------------------------------------------------------


def test_responses_are_those_of_the_filter_alone() -> None:
    model = model_of(sharing="large").eval()
    responses = model.responses(pack(MOLECULES))
    assert [tuple(response.shape) for response in responses] == [(6, 6, 2)] * 2
    for number, one in enumerate(MOLECULES):
        alone = model.filters[1](one.eigenvalues)
        torch.testing.assert_close(responses[1][number, : len(one.nodes)], alone)


@pytest.mark.parametrize("which", ["transformer", "feature", "propagation"])
@pytest.mark.parametrize("options", [{}, PAIRS])
def test_dropout_only_in_training(options, which: str) -> None:
    model = GraphSpecformer(*COLUMNS, 8, 3, num_heads=2, **{**options, f"{which}_dropout": 0.5})
    batch = pack(MOLECULES, dtype=torch.float32)
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_training_after_evaluation_in_inference_mode() -> None:
    model, batch = model_of(**EVERYTHING), pack(MOLECULES)
    with torch.inference_mode():
        model.eval()(batch)
    model.train()(batch).sum().backward()


def test_initial_weights_of_a_given_deviation() -> None:
    torch.manual_seed(0)
    model = GraphSpecformer([28], [4], 64, 1, init_std=0.02, form="pairs")
    for weight in (
        model.atoms.weight,
        model.convs[0].message.weight,
        model.bases[0].second.weight,
        model.filters[0].encoder.embedding.weight,
    ):
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
    query = model.filters[0].encoder.blocks[0].attention.query.weight
    assert query.abs().max().item() == pytest.approx(1 / 8, rel=0.01)  # PyTorch's own
    assert not model.convs[0].message.bias.any()
    assert bool((model.convs[0].first_norm.weight == 1).all())


@pytest.mark.parametrize("options", [EVERYTHING, PAIRS])
@pytest.mark.parametrize("dtype", BOTH_DTYPES)
def test_round_trip(tmp_path: Path, dtype: torch.dtype, options) -> None:
    model = GraphSpecformer(tuple(NODE_CARDINALITIES), (3, 2), 8, 3, 2, 2, **options).to(dtype)
    batch = pack(MOLECULES, dtype=dtype)
    model(batch)  # moves the running statistics
    model.eval().save_pretrained(tmp_path)
    again = GraphSpecformer.from_pretrained(tmp_path)
    assert again.config == model.config
    assert torch.equal(again(batch), model(batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sharing": "odd"}, "sharing='odd': choose small or medium or large"),
        ({"pooling": "odd"}, "pooling='odd': choose mean or sum or max"),
        ({"bases_norm": "odd"}, "bases_norm='odd'"),
        ({"normalise_bases": "odd"}, "normalise_bases='odd'"),
        ({"bases_activation": "odd"}, "activation='odd'"),
        ({"decoder": "odd"}, "decoder='odd'"),
        ({"hidden_channels": 7}, "hidden_channels=7"),
        ({"out_channels": 0}, "out_channels=0 must be at least 1"),
        ({"in_channels": 1.5}, "in_channels=1.5 must be a whole number"),
        ({"in_channels": -1}, "in_channels=-1 must not be negative"),
        ({"bases_activation": "odd"}, "bases_activation='odd': choose relu or"),
        ({"encoding": None}, "encoding=None: choose True or False"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"num_heads": 3}, "num_heads=3"),
        ({"node_cardinalities": []}, r"node_cardinalities=\[\]: give a list of whole numbers"),
        ({"node_cardinalities": 4}, "node_cardinalities=4: give a list of whole numbers"),
        ({"edge_cardinalities": 1}, "edge_cardinalities=1: give a list of whole numbers"),
        ({"edge_cardinalities": [1.5]}, r"edge_cardinalities=\[1.5\]: give a list"),
        ({"edge_cardinalities": [0]}, r"edge_cardinalities=\[0\]"),
        ({"feature_dropout": 1.5}, "feature_dropout=1.5 must lie between 0 and 1"),
        ({"init_std": -0.02}, "init_std=-0.02 must be positive"),
        ({"form": "odd"}, "form='odd': choose paper or pairs"),
        ({"max_ring": 6}, "max_ring=6 does not apply to form='paper'"),
        ({"form": "pairs", "max_ring": 2}, "max_ring=2: use 0, or at least 3 atoms"),
        ({"form": "pairs", "sharing": "large"}, "sharing='large' does not apply to form='pairs'"),
    ],
)
def test_bad_options_are_named(options, message: str) -> None:
    arguments = {"node_cardinalities": [5], "edge_cardinalities": [3], "hidden_channels": 8}
    with pytest.raises(ConfigError, match=message):
        GraphSpecformer(**{**arguments, "out_channels": 1, "num_heads": 2, **options})


@pytest.mark.parametrize("batch", [Batch(), [Data()], None])
def test_graphs_that_are_not_packed_are_refused(batch: Any) -> None:
    with pytest.raises(SpecformerError, match=r"AddSpectrum.* specformer.datasets.pack"):
        model_of()(batch)
    with pytest.raises(SpecformerError, match=r"AddSpectrum.* specformer.datasets.pack"):
        model_of().responses(batch)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_of_short_precision_are_refused(dtype: torch.dtype) -> None:
    model = GraphSpecformer(*COLUMNS, 8, 1, num_heads=2).to(dtype)
    with pytest.raises(ConfigError, match=f"weights are {dtype}; .* torch.autocast"):
        model(pack(MOLECULES))
