"""GraphSpecformer on PyG's own batches: the stored spectra, and the numbers of packed graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.graphs.formats.pyg_data import graph_set_to_pyg
from tests.nn.molecules import EDGE_CARDINALITIES, MOLECULES, NODE_CARDINALITIES
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader, DynamicBatchSampler

import specformer as sf
from specformer.baselines.graphs.forest import FragmentForest
from specformer.baselines.graphs.gin import GIN
from specformer.datasets import GraphStore, graph_set, pack
from specformer.errors import ConfigError, GraphError, SpectrumError
from specformer.graphs import GraphSet, fragment_counts, graph_set_from_pyg
from specformer.reference import Molecule, graph_specformer
from specformer.spectrum import decompose_many

SPECTRUM = sf.AddSpectrum(dtype=torch.float64)


def model_of(**options: Any) -> sf.GraphSpecformer:
    torch.manual_seed(0)
    options = {"num_layers": 2, "num_heads": 2, "normalise_bases": "softmax"} | options
    nodes = options.pop("node_cardinalities", NODE_CARDINALITIES)
    edges = options.pop("edge_cardinalities", EDGE_CARDINALITIES)
    return sf.GraphSpecformer(nodes, edges, 8, 3, **options).double().eval()


def data_of(one: Molecule) -> Data:
    edges = (one.bonds > 0).any(dim=-1).nonzero().T
    return Data(one.nodes, edges, edge_attr=one.bonds[edges[0], edges[1]] - 1)


GRAPHS = [data_of(one) for one in MOLECULES]


def batch_of(graphs: list[Data], transform: Callable[[Data], Data] = SPECTRUM) -> Batch:
    return Batch.from_data_list([transform(data) for data in graphs])


def test_a_batch_gives_what_the_equations_give() -> None:
    model = model_of(sharing="large")
    expected = graph_specformer(model.state_dict(), model.config, MOLECULES)
    torch.testing.assert_close(model(batch_of(GRAPHS)), expected, rtol=0, atol=1e-10)


def test_fingerprints_of_a_batch() -> None:
    model = model_of(fingerprint=6)
    expected = graph_specformer(model.state_dict(), model.config, MOLECULES)
    pairs = zip(GRAPHS, MOLECULES, strict=True)
    graphs = [data.clone().update({"fingerprints": one.fingerprint[None]}) for data, one in pairs]
    torch.testing.assert_close(model(batch_of(graphs)), expected, rtol=0, atol=1e-10)
    with pytest.raises(ConfigError, match="the graphs have no fingerprints, but the model has"):
        model(pack(batch_of(GRAPHS)))
    with pytest.raises(ConfigError, match="the graphs have fingerprints of 6, but the model has"):
        model_of(fingerprint=7)(batch_of(graphs))


def test_fragments_of_a_batch_are_counted(tmp_path: Path) -> None:
    """A saved model needs nothing of a loader's batches but spectra, as data of training did."""
    model_of(fingerprint=20).save_pretrained(tmp_path)
    model = sf.GraphSpecformer.from_pretrained(tmp_path)
    counts = torch.from_numpy(fragment_counts(graph_set_from_pyg(GRAPHS), 20))
    counted = [one._replace(fingerprint=row) for one, row in zip(MOLECULES, counts, strict=True)]
    expected = graph_specformer(model.state_dict(), model.config, counted)
    graphs = [SPECTRUM(data) for data in GRAPHS]
    found = torch.cat([model(batch) for batch in DataLoader(graphs, batch_size=4)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    packed = pack(Batch.from_data_list(graphs), fingerprint=20)
    torch.testing.assert_close(model(packed), expected, rtol=0, atol=1e-10)
    forest = FragmentForest.grown(counts.numpy(), np.arange(6.0)[:, None], "numbers", 1, (2, 1))
    torch.testing.assert_close(forest(batch_of(GRAPHS)), forest.outputs(counts), rtol=0, atol=0)


def test_fragments_of_numbers_loops_and_directions() -> None:
    """Counts are those of training; two directions of one edge must have one category."""
    model = model_of(node_cardinalities=[1], edge_cardinalities=[3], in_channels=2, fingerprint=16)
    edges = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    data = Data(torch.rand(3, 2).double(), edges, edge_attr=torch.tensor([0, 0, 2, 2, 1]))
    counts = torch.from_numpy(fragment_counts(graph_set_from_pyg([data]), 16))
    given = batch_of([data.clone().update({"fingerprints": counts})])
    torch.testing.assert_close(model(batch_of([data])), model(given), rtol=0, atol=0)
    data.edge_attr[0] = 1
    with pytest.raises(GraphError, match="between nodes 0 and 1 is given more than once"):
        model(batch_of([data]))


def test_packing_keeps_the_stored_spectra() -> None:
    """Also where rings are asked for, which needed a decomposition of its own before."""
    batch = batch_of(GRAPHS, sf.AddSpectrum(dtype=torch.float64, k=2))
    packed = pack(batch, max_ring=6)
    assert packed.num_eigenpairs is not None
    model = model_of(form="pairs", max_ring=6)
    torch.testing.assert_close(model(packed), model(batch), rtol=0, atol=0)


def test_rings_of_a_batch_are_found() -> None:
    model = model_of(form="pairs", max_ring=6)
    expected = graph_specformer(model.state_dict(), model.config, MOLECULES)
    torch.testing.assert_close(model(batch_of(GRAPHS)), expected, rtol=0, atol=1e-10)


def test_no_eigenproblem_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, model = batch_of(GRAPHS), model_of()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an eigenproblem was solved")

    monkeypatch.setattr(torch.linalg, "eigh", refuse)
    monkeypatch.setattr(np.linalg, "eigh", refuse)
    monkeypatch.setattr("scipy.linalg.eigh", refuse)
    assert model(batch).shape == (len(GRAPHS), 3)


def test_one_graph_is_a_batch_of_one() -> None:
    model, batch = model_of(), batch_of(GRAPHS)
    for number, data in enumerate(GRAPHS):
        alone = model(SPECTRUM(data))
        torch.testing.assert_close(alone[0], model(batch)[number], rtol=0, atol=1e-10)


def test_a_batch_taken_apart_and_joined_again_is_the_same() -> None:
    model, batch = model_of(), batch_of(GRAPHS)
    apart = batch.to_data_list()
    for one, data in zip(apart, GRAPHS, strict=True):
        spectrum = SPECTRUM(data).spectrum
        assert torch.equal(one.spectrum.eigenvectors, spectrum.eigenvectors)
        assert torch.equal(one.spectrum.eigenvalues, spectrum.eigenvalues)
    again = Batch.from_data_list(apart[::-1])
    torch.testing.assert_close(model(again), model(batch).flip(0), rtol=0, atol=1e-10)
    some = Batch.from_data_list(batch[[2, 0]])
    torch.testing.assert_close(model(some), model(batch)[[2, 0]], rtol=0, atol=1e-10)


def test_followed_keys_and_other_fields_survive() -> None:
    graphs = [Data(**data.to_dict(), y=torch.tensor([[1.0]]), pos=torch.rand(data.num_nodes, 3),
                   name=f"m{i}") for i, data in enumerate(GRAPHS)]  # fmt: skip
    loader = DataLoader([SPECTRUM(data) for data in graphs], 6, follow_batch=["eigenvalues"])
    batch = next(iter(loader))
    assert batch.name == [f"m{i}" for i in range(6)]
    assert batch.pos.shape == (batch.num_nodes, 3)
    assert torch.equal(batch.eigenvalues_batch, batch.batch)  # complete spectra
    assert model_of()(batch).shape == (6, 3)


def test_gradients_are_those_of_packed_graphs() -> None:
    model, batch = model_of().train(), batch_of(GRAPHS)
    graphs = graph_set_from_pyg(GRAPHS)
    packed = replace(pack(graphs), eigenvalues=batch.eigenvalues, eigenvectors=batch.eigenvectors)
    found = []
    for given in (batch, packed):
        model.zero_grad()
        model(given).square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


class Molecules(InMemoryDataset):
    """What a user writes: a data set of PyG that keeps what it has processed."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(str(root), **options)
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self) -> str:
        return "molecules.pt"

    def process(self) -> None:
        assert self.pre_transform is not None
        self.save([self.pre_transform(data) for data in GRAPHS], self.processed_paths[0])


def test_processed_files_hold_plain_tensors(tmp_path: Path) -> None:
    dataset = Molecules(tmp_path, pre_transform=SPECTRUM)
    torch.load(dataset.processed_paths[0], weights_only=True)  # raises on anything else
    again = Molecules(tmp_path, pre_transform=SPECTRUM)
    assert again[1].spectrum.num_nodes == 6
    batch = next(iter(DataLoader(again, batch_size=len(GRAPHS))))
    expected = model_of()(batch_of(GRAPHS))
    torch.testing.assert_close(model_of()(batch), expected, rtol=0, atol=1e-10)
    by_transform = Batch.from_data_list(list(Molecules(tmp_path, pre_transform=SPECTRUM)))
    assert torch.equal(by_transform.eigenvectors, batch.eigenvectors)


def test_samplers_of_batches_work() -> None:
    graphs = [SPECTRUM(data) for data in GRAPHS]
    loader = DataLoader(graphs, batch_sampler=DynamicBatchSampler(graphs, 12, mode="node"))
    assert sum(len(model_of()(batch)) for batch in loader) >= 5


def test_truncated_spectra_in_one_batch() -> None:
    """As the equations with eigenvectors of some pairs alone; groups are never cut."""
    model, cut = model_of(), sf.AddSpectrum(dtype=torch.float64, k=2)
    truncated = []
    for one, data in zip(MOLECULES, GRAPHS, strict=True):
        spectrum = cut(data).spectrum
        truncated.append(one._replace(
            eigenvalues=spectrum.eigenvalues, vectors=spectrum.eigenvectors))  # fmt: skip
    batch = batch_of(GRAPHS, cut)
    assert len(batch.eigenvalues) < batch.num_nodes
    expected = graph_specformer(model.state_dict(), model.config, truncated)
    torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-10)


def test_an_edge_in_one_direction_counts_in_both() -> None:
    one_way = []
    for data in GRAPHS:
        keep = data.edge_index[0] < data.edge_index[1]
        one_way.append(Data(data.x, data.edge_index[:, keep], edge_attr=data.edge_attr[keep]))
    out = model_of()(batch_of(one_way))
    torch.testing.assert_close(out, model_of()(batch_of(GRAPHS)), rtol=0, atol=1e-10)


def test_numbers_of_edges_as_categories_would_be() -> None:
    """One-hot numbers through a linear map are an embedding, and "no edge" keeps its vector."""
    model = model_of(edge_cardinalities=[3], node_cardinalities=NODE_CARDINALITIES)
    by_numbers = model_of(edge_cardinalities=[1], edge_dim=3)
    state = model.state_dict()
    table = state.pop("bonds.weight")
    state["bonds.weight"] = torch.stack([table[0], torch.zeros(8, dtype=torch.float64)])
    state["bonds.numbers.weight"], state["bonds.numbers.bias"] = table[1:].T, torch.zeros(8)
    state["bonds.mean"], state["bonds.std"] = torch.zeros(3), torch.ones(3)
    by_numbers.load_state_dict(state)
    kinds, numbers = [], []
    for data in GRAPHS:
        kind = data.edge_attr[:, 0]
        kinds.append(Data(data.x, data.edge_index, edge_attr=kind))
        hot = torch.nn.functional.one_hot(kind, 3).double()
        numbers.append(Data(data.x, data.edge_index, edge_attr=hot))
    assert batch_of(numbers).edge_attr.is_floating_point()
    torch.testing.assert_close(
        by_numbers(batch_of(numbers)), model(batch_of(kinds)), rtol=0, atol=1e-10
    )


def test_numbers_beside_categories_of_nodes_and_edges() -> None:
    graphs = [
        Data(
            x=torch.rand(data.num_nodes, 4),
            z=data.x,
            edge_index=data.edge_index,
            edge_type=data.edge_attr,
            edge_attr=torch.rand(data.num_edges, 2),
        )
        for data in GRAPHS
    ]
    model, batch = model_of(in_channels=4, edge_dim=2).train(), batch_of(graphs)
    batch.x.requires_grad_(), batch.edge_attr.requires_grad_()
    model(batch).square().sum().backward()
    assert batch.x.grad.abs().sum() > 0
    assert batch.edge_attr.grad.abs().amin(dim=1).max() > 0
    order = torch.randperm(batch.num_edges)
    shuffled = batch.clone()
    shuffled.edge_index = batch.edge_index[:, order]
    shuffled.edge_attr, shuffled.edge_type = batch.edge_attr[order], batch.edge_type[order]
    torch.testing.assert_close(model(shuffled), model(batch), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.long, {"edge_cardinalities": [3]}),
        (torch.double, {"edge_cardinalities": [1], "edge_dim": 1}),
    ],
    ids=["categories", "numbers"],
)
def test_parallel_edges_count_once_and_must_be_alike(kind: torch.dtype, options: Any) -> None:
    model = model_of(node_cardinalities=[1], **options)
    ends, features = torch.tensor([[1, 0, 2], [0, 1, 1]]), torch.tensor([[1], [2], [0]]).to(kind)

    def graph(*order: int, change: int = 0) -> Data:
        chosen = features[list(order)]
        chosen[-1] += change
        return Data(edge_index=ends[:, list(order)], edge_attr=chosen, num_nodes=3)

    once, twice = graph(0, 1, 2), graph(0, 1, 2, 0)
    torch.testing.assert_close(
        model(batch_of([once, twice])), model(batch_of([once, once])), rtol=0, atol=1e-10
    )
    with pytest.raises(GraphError, match="edge from node 4 to node 3 of the batch is given more"):
        model(batch_of([once, graph(0, 1, 2, 0, change=1)]))


def measured_graphs() -> list[Data]:
    """Numbers beside the categories of nodes and edges, the same in both directions."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for data in GRAPHS:
        place = torch.rand(data.num_nodes, 3, generator=generator)
        one, other = place[data.edge_index]
        numbers = torch.stack([(one - other).norm(dim=1), (one * other).sum(dim=1)], dim=1)
        kinds = {"z": data.x, "edge_type": data.edge_attr}
        graphs.append(Data(place, data.edge_index, edge_attr=numbers, **kinds))
    return graphs


@pytest.mark.parametrize("room", [0, 5])
def test_the_packed_store_has_the_numbers_of_edges(room: int) -> None:
    """Graphs in another order, and one of them twice, without padding and with it."""
    graphs, order = measured_graphs(), [4, 1, 0, 5, 1, 3, 2]
    model = model_of(in_channels=3, edge_dim=2).train()
    data = [SPECTRUM(each) for each in graphs]
    store = stored(graph_set_from_pyg(graphs), data)
    shape = store.exact_shape(np.array(order))
    wider = {key: getattr(shape, key) + room for key in ("num_nodes", "num_pairs", "num_bonds")}
    found = []
    for batch in (
        Batch.from_data_list([data[number] for number in order]),
        store.batch(torch.tensor(order), replace(shape, **wider)),
    ):
        model.zero_grad()
        out = model(batch)
        out.square().sum().backward()
        found.append([out, *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_graphs_without_features() -> None:
    graphs = [Data(edge_index=data.edge_index, num_nodes=data.num_nodes) for data in GRAPHS]
    model = model_of(node_cardinalities=[1], edge_cardinalities=[1])
    packed = model(pack(graphs))
    torch.testing.assert_close(model(batch_of(graphs)), packed, rtol=0, atol=1e-5)


def test_baselines_take_batches_too() -> None:
    torch.manual_seed(0)
    model = GIN(NODE_CARDINALITIES, EDGE_CARDINALITIES, 8, 3).eval()
    torch.testing.assert_close(model(batch_of(GRAPHS)), model(pack(GRAPHS)))
    with pytest.raises(ConfigError, match="GIN needs categorical edge features and complete"):
        model(batch_of(GRAPHS, sf.AddSpectrum(k=1)))


def test_what_is_wrong_with_a_batch_is_said() -> None:
    model = model_of()
    with pytest.raises(SpectrumError, match=r"no spectra.*pre_transform=sf.AddSpectrum\(\)"):
        model(Batch.from_data_list(GRAPHS))
    batch = batch_of(GRAPHS)
    part = batch.subgraph(torch.arange(4))
    with pytest.raises(SpectrumError, match="do not belong to its graphs"):
        model(part)
    reordered = batch.get_example(1).subgraph(torch.tensor([4, 2, 0, 1, 3, 5]))
    with pytest.raises(SpectrumError, match="eigenvalues do not ascend"):
        model(Batch.from_data_list([batch.get_example(0), reordered]))
    mixed = batch.get_example(1)
    mixed.eigenvectors = mixed.eigenvectors.flip(0)
    mixed.eigenvectors[0] += 0.1
    with pytest.raises(SpectrumError, match="no longer orthonormal"):
        model(Batch.from_data_list([batch.get_example(0), mixed]))
    with pytest.raises(ConfigError, match="batch is a list; call the model with a PyG Batch"):
        model(GRAPHS)
    with pytest.raises(ConfigError, match=r"the edges have 0 numbers each.*edge_dim=2"):
        model_of(edge_dim=2)(batch)
    with pytest.raises(SpectrumError, match="holds 6 graphs, each with its own spectrum"):
        batch.spectrum  # noqa: B018
    for name, whose in (("x", "node"), ("edge_attr", "edge")):
        without = batch.clone()
        del without[name]
        with pytest.raises(ConfigError, match=f"the {whose}s have no categories, but .*{whose}_c"):
            model(without)
    with pytest.raises(SpectrumError, match="takes one graph, not a batch"):
        SPECTRUM(batch)


@pytest.mark.parametrize(
    ("x", "edge_attr", "told"),
    [
        # Column 0 would have taken the first vector of column 1, without a word.
        ([[4, 0], [0, 1]], [[0], [0]], r"column 0 .* category 4, but.*node_cardinalities=\[4, 2\]"),
        ([[0, 0], [0, 2]], [[0], [0]], "column 1 of the nodes has a category 2"),
        ([[-1, 0], [0, 0]], [[0], [0]], "column 0 of the nodes has a category -1"),
        ([[0, 0], [0, 0]], [[0], [3]], r"column 0 of the edges.*3, but.*edge_cardinalities=\[3\]"),
    ],
)
def test_categories_that_a_model_does_not_know_are_named(x: Any, edge_attr: Any, told: str) -> None:
    pair = Data(torch.tensor(x), torch.tensor([[0, 1], [1, 0]]), torch.tensor(edge_attr))
    batch = batch_of([pair])
    for kind, given in product((sf.GraphSpecformer, GIN), (batch, pack(batch))):
        with pytest.raises(ConfigError, match=told):
            kind([4, 2], [3], 8, 1)(given)


def stored(graphs: GraphSet, loaded: list[Data]) -> GraphStore:
    """The packed store of the same graphs with the same spectra, in float64."""
    store = GraphStore.build(graphs, decompose_many(graphs))
    return replace(
        store,
        eigenvalues=torch.cat([data.eigenvalues for data in loaded]),
        eigenvectors=torch.cat([data.eigenvectors for data in loaded]),
    )


def losses(batches: list[tuple[Any, Tensor]], dtype: torch.dtype) -> Tensor:
    """The loop of DESIGN.md §3."""
    torch.manual_seed(0)
    model = sf.GraphSpecformer([28], [4], 16, 1, num_layers=2, num_heads=4).to(dtype)
    optimiser, curve = torch.optim.Adam(model.parameters(), 0.001), []
    for batch, y in batches:
        loss = torch.nn.functional.l1_loss(model(batch), y.to(dtype))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        curve.append(loss.detach())
    return torch.stack(curve)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_zinc_trains_as_the_packed_store_does(
    shared_data: Path, dtype: torch.dtype, most: float
) -> None:
    graphs = graph_set("zinc", shared_data).subset(range(192))
    transform = sf.AddSpectrum(dtype=dtype)
    data = [transform(each) for each in graph_set_to_pyg(graphs)]
    store = stored(graphs, data)
    loaded = [(batch, batch.y) for batch in DataLoader(data, 32, num_workers=2)]
    packed = [
        (store.exact(part), store.labels(torch.as_tensor(part)))
        for part in np.split(np.arange(len(graphs)), 6)
    ]
    ours, theirs = losses(loaded * 2, dtype), losses(packed * 2, dtype)
    assert ours[-6:].mean() < ours[:6].mean()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=most)
