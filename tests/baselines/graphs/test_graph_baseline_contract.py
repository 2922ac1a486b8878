"""What every graph-level baseline must do: padding, symmetries, cost, precision, training."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from tests.baselines.graphs.small_models import COLUMNS, SMALL, fresh, model_of
from tests.nn.molecules import MAX_RING, MOLECULES, molecule, numbers_for_kinds, pack, relabelled
from tests.nn.plain_twin import assert_sums_of_a_gpu
from tests.operations import WAITS, Watch

from specformer.baselines.graphs import GRAPH_BASELINES
from specformer.datasets.packed import GraphStore
from specformer.errors import ConfigError
from specformer.graphs import read_graph_set
from specformer.spectrum import decompose_many
from specformer.training.loops.graphs import GraphTask, fit_graphs
from specformer.training.optim.schedule import GraphSchedule

PADDING = {"spare_nodes": 5, "spare_pairs": 40, "spare_bonds": 3, "spare_rings": 2, "max_nodes": 9}
every_model = pytest.mark.parametrize("name", GRAPH_BASELINES)


def test_all_have_a_small_version() -> None:
    assert list(SMALL) == list(GRAPH_BASELINES)


@every_model
def test_padding_changes_nothing(name: str) -> None:
    results = []
    for padding in ({}, PADDING, {**PADDING, "spare_graphs": 2}):
        model = model_of(name)
        out = model(pack(MOLECULES, **padding))[: len(MOLECULES)]
        parameters = list(model.parameters())
        gradients = torch.autograd.grad((out**3).sum(), parameters, materialize_grads=True)
        results.append([out, *gradients, *model.buffers()])
    for padded in results[1:]:
        for one, other in zip(results[0], padded, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-8, atol=1e-9)


@every_model
def test_numbers_of_ones_and_zeros_are_categories(name: str) -> None:
    model, batch = model_of(name).eval(), pack(MOLECULES)
    same = fresh(name, ([1], COLUMNS[1]), in_channels=sum(COLUMNS[0])).double().eval()
    numbers = numbers_for_kinds(model, same, batch)
    torch.testing.assert_close(same(numbers), model(batch))


@every_model
def test_much_padding_stays_finite(name: str) -> None:
    model = fresh(name, num_layers=8).train()
    padding = {"spare_nodes": 50, "spare_pairs": 20_000, "spare_graphs": 4, "max_nodes": 40}
    out = model(pack(MOLECULES, dtype=torch.float32, **padding))
    out.square().sum().backward()
    assert out.isfinite().all()
    unused = {id(p) for p in _unused(model)}
    for parameter in model.parameters():
        assert (parameter.grad is None) == (id(parameter) in unused)
        assert parameter.grad is None or bool(parameter.grad.isfinite().all())


def _unused(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """GatedGCN's last layer normalises states of bonds that nobody reads."""
    last = getattr(model, "layers", [None])[-1]
    return list(last.bond_norm.parameters()) if hasattr(last, "bond_norm") else []


@every_model
@pytest.mark.parametrize("training", [True, False])
def test_blind_to_labels(name: str, training: bool) -> None:
    model = model_of(name)
    model = model if training else model.eval()
    before = model(pack(MOLECULES))
    generator = torch.Generator().manual_seed(0)
    changed = [
        relabelled(one, torch.randperm(len(one.nodes), generator=generator).tolist())
        for one in MOLECULES
    ]
    torch.testing.assert_close(model(pack(changed)), before, rtol=0, atol=1e-9)


@every_model
def test_order_of_the_graphs_in_a_batch(name: str) -> None:
    order = [3, 5, 0, 2, 4, 1]
    model = model_of(name)
    before = model(pack(MOLECULES))
    after = model(pack([MOLECULES[i] for i in order]))
    torch.testing.assert_close(after, before[order], rtol=0, atol=1e-9)


@every_model
def test_graphs_do_not_see_each_other_in_evaluation(name: str) -> None:
    model = model_of(name).eval()
    together = model(pack(MOLECULES))
    for number, one in enumerate(MOLECULES):
        torch.testing.assert_close(model(pack([one]))[0], together[number], rtol=0, atol=1e-10)


@every_model
def test_which_bonds_matter_and_of_which_kind(name: str) -> None:
    model = model_of(name).eval()
    ring = MOLECULES[1]
    before = model(pack([ring]))
    other = torch.where(ring.bonds > 0, ring.bonds % 2 + 1, 0)
    change = (before - model(pack([ring._replace(bonds=other)]))).abs().max()
    assert change < 1e-12 if name == "gcn" else change > 1e-4
    cut = ring.bonds.clone()
    cut[0, 1] = cut[1, 0] = 0
    assert (before - model(pack([ring._replace(bonds=cut)]))).abs().max() > 1e-4


@every_model
def test_the_sums_of_a_gpu_are_those_of_a_cpu(name: str, monkeypatch) -> None:
    model = model_of(name).eval()
    assert_sums_of_a_gpu(model, pack(MOLECULES, **PADDING), monkeypatch)


@every_model
@pytest.mark.parametrize("training", [True, False])
def test_no_wait_for_the_host(name: str, training: bool) -> None:
    model = fresh(name, dropout=0.1).train(training)
    chains = [molecule(nx.path_graph(n), seed=n) for n in (10, 15, 20)]
    batch = pack(chains, dtype=torch.float32, max_nodes=30, spare_nodes=1)
    with Watch() as watch:
        model(batch).square().sum().backward()
    assert not watch.names & WAITS


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@every_model
def test_bfloat16_by_autocast(name: str) -> None:
    model = fresh(name)
    batch = pack(MOLECULES, dtype=torch.float32, **PADDING)
    exact = model(batch)
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            brief = model(batch)
        brief.square().sum().backward()
    assert brief.dtype == torch.float32
    assert 0 < (brief - exact).abs().max() < 0.2
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@every_model
def test_training_after_evaluation_in_inference_mode(name: str) -> None:
    model, batch = model_of(name), pack(MOLECULES)
    with torch.inference_mode():
        model.eval()(batch)
    model.train()(batch).sum().backward()


@every_model
def test_dropout_only_in_training(name: str) -> None:
    model = fresh(name, dropout=0.5)
    batch = pack(MOLECULES, dtype=torch.float32)
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


@every_model
def test_round_trip(name: str, tmp_path: Path) -> None:
    model = fresh(name, columns=tuple(map(tuple, COLUMNS)))
    batch = pack(MOLECULES, dtype=torch.float32)
    model(batch)  # moves the running statistics
    model.eval().save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config == model.config
    assert torch.equal(again(batch), model(batch))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gcn", {"pooling": "odd"}, "pooling='odd': choose mean or sum or max"),
        ("gin", {"hidden_channels": 0}, "hidden_channels=0 must be at least 1"),
        ("gin", {"num_layers": 2.5}, "num_layers=2.5 must be a whole number"),
        ("pna", {"average_log_degree": None}, "average_log_degree=None must be a finite number"),
        ("gps", {"hidden_channels": None}, "hidden_channels=None must be a whole number"),
        ("graphormer", {"num_heads": -1}, "num_heads=-1 must be at least 1"),
        ("san", {"gamma": float("nan")}, "gamma=nan must be a finite number"),
        ("san", {"frequencies": 2.5}, "frequencies=2.5 must be a whole number"),
        ("cin", {"max_ring": None}, "max_ring=None must be a whole number"),
        ("gatedgcn", {"num_layers": 0}, "num_layers=0"),
        ("gatedgcn", {"dropout": 1.5}, "dropout=1.5 must lie between 0 and 1"),
        ("gatedgcn", {"walk_steps": 0}, "walk_steps=0 must be at least 1"),
        ("pna", {"towers": 3}, "split evenly over towers=3"),
        ("pna", {"average_log_degree": 0.0}, "average_log_degree=0.0 must be positive"),
        ("gps", {"num_heads": 3}, "split evenly over num_heads=3"),
        ("gps", {"walk_channels": 8}, "walk_channels=8 must lie between"),
        ("gps", {"walk_steps": 0}, "walk_steps=0"),
        ("gps", {"attention_dropout": -1.0}, "attention_dropout=-1.0 must lie"),
        ("graphormer", {"max_hops": 0}, "max_hops=0"),
        ("gsn", {"max_ring": 2}, "max_ring=2 must be at least 3"),
        ("cin", {"max_ring": 0}, "max_ring=0 must be at least 3"),
        ("gin-ak+", {"hops": 0}, "hops=0 must be at least 1"),
        ("san", {"num_heads": 5}, "split evenly over num_heads=5"),
        ("san", {"gamma": -1.0}, "gamma=-1.0 must not be negative"),
        ("san", {"frequencies": 0}, "frequencies=0"),
        ("san", {"spectrum_channels": 9}, "spectrum_channels=9 must lie between"),
        ("san", {"spectrum_channels": 6}, "spectrum_channels=6 must be a multiple of 4"),
        ("san", {"spectrum_layers": 0}, "spectrum_layers=0"),
    ],
)
def test_bad_options_are_named(name: str, options, message: str) -> None:
    arguments = {"hidden_channels": 8, "out_channels": 1, **SMALL[name], **options}
    with pytest.raises(ConfigError, match=message):
        GRAPH_BASELINES[name](*COLUMNS, **arguments)


@every_model
def test_plain_numbers_are_no_cardinalities(name: str) -> None:
    for columns, named in (((4, [1]), "node_cardinalities=4"), (([4], 1), "edge_cardinalities=1")):
        with pytest.raises(ConfigError, match=f"^{named}: give a list of whole numbers"):
            fresh(name, columns)


@pytest.fixture(scope="module")
def zinc(shared_data: Path) -> GraphStore:
    graphs = read_graph_set(shared_data / "zinc.npz").subset(np.arange(96))
    return GraphStore.build(graphs, decompose_many(graphs), max_ring=MAX_RING)


@every_model
def test_an_epoch_on_zinc(name: str, zinc: GraphStore) -> None:
    model = fresh(name, columns=([28], [4]))
    model.readout = torch.nn.Linear(model.readout.in_features, 1)
    parts = np.split(np.arange(96), [64, 80])
    before = model.atoms.weight.detach().clone()
    task = GraphTask(zinc, *parts, loss="l1", metric="mae", standardise=True)
    fit = fit_graphs(model, task, GraphSchedule(epochs=1, batch_size=16, warmup=0))
    assert np.isfinite(fit.curves).all()
    assert 0 < fit.chosen["loss"].test < 10
    assert not torch.equal(before, model.atoms.weight)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["gsn", "cin"])
def test_captured_steps_are_the_called_ones(name: str, zinc: GraphStore) -> None:
    curves = []
    for device, capture in (("cuda", True), ("cuda", False), ("cpu", False)):
        model = fresh(name, columns=([28], [4]))
        model.readout = torch.nn.Linear(model.readout.in_features, 1)
        task = GraphTask(zinc, *np.split(np.arange(96), [64, 80]), loss="l1", metric="mae")
        schedule = GraphSchedule(epochs=4, batch_size=16, warmup=1)
        curves.append(fit_graphs(model.to(device), task, schedule, capture=capture).curves)
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-5)
    np.testing.assert_allclose(curves[0], curves[2], rtol=1e-3)
