"""decompose(): textbook spectra, whole eigenspaces, choice of solver, refusals."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pygsp.graphs
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spectrum.known_graphs import (
    CLOSED_FORMS,
    SMALL,
    adjacency,
    closed_form,
    graphs,
    hypercube,
    union,
)
from torch_geometric.data import Data

from specformer import approximate, decompose
from specformer.errors import ConfigError, GraphError, SpectrumError
from specformer.graphs import normalised_laplacian
from specformer.spectrum import devices
from specformer.spectrum.solvers import choice, dense, lanczos
from specformer.spectrum.solvers.chebyshev import chebyshev, subspace
from specformer.spectrum.solvers.problem import Problem
from specformer.testing import assert_eigenpairs

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@both_dtypes
@pytest.mark.parametrize("name", SMALL)
def test_eigenpairs_of_small_graphs(name: str, dtype: torch.dtype) -> None:
    spectrum = decompose(SMALL[name], dtype=dtype)
    assert spectrum.is_complete
    assert spectrum.eigenvalues.dtype == spectrum.eigenvectors.dtype == dtype
    assert_eigenpairs(SMALL[name], spectrum, atol=1e-6 if dtype == torch.float32 else 1e-12)
    exact = np.linalg.eigvalsh(normalised_laplacian(SMALL[name]).toarray())
    np.testing.assert_allclose(spectrum.eigenvalues, exact, atol=1e-6)


@both_dtypes
@pytest.mark.parametrize("kind", CLOSED_FORMS)
def test_closed_forms(kind: str, dtype: torch.dtype) -> None:
    graph, exact = closed_form(kind, 10)
    atol = 1e-6 if dtype == torch.float32 else 1e-13
    np.testing.assert_allclose(decompose(graph, dtype=dtype).eigenvalues, exact, atol=atol)


def test_hypercube_has_binomial_multiplicities() -> None:
    graph, exact = hypercube(5)
    spectrum = decompose(graph, dtype=torch.float64)
    np.testing.assert_allclose(spectrum.eigenvalues, exact, atol=1e-14)
    assert spectrum.distinct.counts.tolist() == [1, 5, 10, 10, 5, 1]


def test_zero_one_and_two_are_exact() -> None:
    spectrum = decompose(closed_form("star", 30)[0], dtype=torch.float64)
    assert spectrum.eigenvalues.tolist() == [0.0] + [1.0] * 28 + [2.0]


@pytest.mark.parametrize("kind", ["Ring", "Grid2d", "Community", "Sensor", "ErdosRenyi"])
@pytest.mark.filterwarnings("ignore::FutureWarning:scipy", "ignore::DeprecationWarning:pygsp")
def test_eigenvalues_agree_with_pygsp(kind: str) -> None:
    peer = getattr(pygsp.graphs, kind)(
        **({} if kind in ("Ring", "Grid2d") else {"seed": 4, "N": 60})
    )
    peer.compute_laplacian("normalized")
    peer.compute_fourier_basis()
    ours = decompose(peer.W, isolated="zero", dtype=torch.float64)
    np.testing.assert_allclose(ours.eigenvalues, peer.e, atol=1e-12)


def test_every_kind_of_source_gives_the_same() -> None:
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    sources = [
        edge_index,
        edge_index.numpy(),
        Data(edge_index=edge_index, num_nodes=4),
        nx.cycle_graph(4),
        sp.coo_matrix(nx.to_scipy_sparse_array(nx.cycle_graph(4))),
    ]
    for source in sources:
        assert decompose(source).eigenvalues.tolist() == [0.0, 1.0, 1.0, 2.0]


def test_weights_and_num_nodes() -> None:
    spectrum = decompose([[0, 1], [1, 2]], num_nodes=4, edge_weight=[3.0, 1.0])
    assert spectrum.num_nodes == 4
    assert spectrum.eigenvalues.tolist() == [0.0, 1.0, 1.0, 2.0]
    assert decompose([[0], [1]], num_nodes=3, isolated="zero").eigenvalues.tolist() == [0, 0, 2]


def test_a_bad_graph_is_a_graph_error() -> None:
    with pytest.raises(GraphError, match="outside"):
        decompose([[0], [5]], num_nodes=3)
    with pytest.raises(GraphError, match=r"edge_weight\[1\] is nan, but weights must be finite$"):
        decompose([[0, 1], [1, 2]], edge_weight=[-1.0, math.nan])
    with pytest.raises(ConfigError, match="isolated"):
        decompose([[0], [1]], isolated="two")  # type: ignore[arg-type]


def test_equal_signs_whatever_the_solver() -> None:
    vectors = decompose(SMALL["weighted"], dtype=torch.float64).eigenvectors
    peak = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    assert bool((peak > 0).all())
    graph = adjacency(nx.random_geometric_graph(150, 0.15, seed=2))
    one, other = (
        decompose(graph, k=10, solver=solver, dtype=torch.float64)
        for solver in ("dense", "lanczos")
    )
    assert one.report.solver == "dense"
    assert other.report.solver == "lanczos"
    torch.testing.assert_close(one.eigenvalues, other.eigenvalues, rtol=0, atol=1e-9)
    single = one.distinct.counts[one.distinct.index] == 1
    gap = torch.diff(one.distinct.values).min()
    assert gap > 1e-5
    torch.testing.assert_close(
        one.eigenvectors[:, single], other.eigenvectors[:, single], rtol=0, atol=1e-6
    )


# --- k: whole eigenspaces -----------------------------------------------------------------------

# Multiplicities 1, 5, 10, 10, 5, 1 at 0, 0.4, 0.8, 1.2, 1.6, 2.
CUBE = hypercube(5)[0]


@pytest.mark.parametrize(
    ("k", "included", "excluded"),
    [
        (1, [1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]),
        (2, [1, 5, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]),
        (5, [1, 5, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]),
        (6, [1, 5, 0, 0, 0, 0], [1, 5, 0, 0, 0, 0]),
        (7, [1, 5, 10, 0, 0, 0], [1, 5, 0, 0, 0, 0]),
        (31, [1, 5, 10, 10, 5, 0], [1, 5, 10, 10, 5, 0]),
        (32, [1, 5, 10, 10, 5, 1], [1, 5, 10, 10, 5, 1]),
        (1000, [1, 5, 10, 10, 5, 1], [1, 5, 10, 10, 5, 1]),
        (None, [1, 5, 10, 10, 5, 1], [1, 5, 10, 10, 5, 1]),
        ((0, 1), [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1]),
        ((0, 3), [0, 0, 0, 0, 5, 1], [0, 0, 0, 0, 0, 1]),
        ((2, 1), [1, 5, 0, 0, 0, 1], [1, 0, 0, 0, 0, 1]),
        ((1, 7), [1, 0, 0, 10, 5, 1], [1, 0, 0, 0, 5, 1]),
        ((12, 12), [1, 5, 10, 10, 5, 1], [1, 5, 0, 0, 5, 1]),
        ((16, 15), [1, 5, 10, 10, 5, 1], [1, 5, 10, 0, 5, 1]),
        ((20, 12), [1, 5, 10, 10, 5, 1], [1, 5, 10, 10, 5, 1]),
    ],
)
def test_k_never_cuts_through_a_repeated_eigenvalue(k: Any, included: Any, excluded: Any) -> None:
    levels = np.array([0, 0.4, 0.8, 1.2, 1.6, 2])
    for at_cut, counts in (("include", included), ("exclude", excluded)):
        spectrum = decompose(CUBE, k=k, at_cut=at_cut, dtype=torch.float64)
        np.testing.assert_allclose(spectrum.eigenvalues, np.repeat(levels, counts), atol=1e-14)
        assert_eigenpairs(CUBE, spectrum, atol=1e-12)


@pytest.mark.parametrize("solver", ["dense", "lanczos", "chebyshev"])
def test_k_of_one_brings_every_component(solver: str) -> None:
    graph = adjacency(union(*[nx.path_graph(4)] * 30))
    spectrum = decompose(graph, k=1, solver=solver)  # type: ignore[arg-type]
    assert spectrum.report.solver == solver
    assert spectrum.report.components == 30
    assert spectrum.eigenvalues.tolist() == [0.0] * 30
    assert not spectrum.is_complete


@pytest.mark.parametrize("solver", ["lanczos", "chebyshev"])
@pytest.mark.parametrize("k", [1, 3, 6, (1, 1), (2, 5)])
@pytest.mark.parametrize("at_cut", ["include", "exclude"])
def test_solvers_agree_on_the_cut(k: Any, at_cut: Any, solver: Any) -> None:
    graph = adjacency(nx.grid_2d_graph(9, 9, periodic=True))
    one = decompose(graph, k=k, at_cut=at_cut, solver="dense", dtype=torch.float64)
    other = decompose(graph, k=k, at_cut=at_cut, solver=solver, dtype=torch.float64)
    assert other.report.solver == solver
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, atol=1e-10)


def test_everything_excluded_is_refused() -> None:
    with pytest.raises(SpectrumError, match="first eigenvalue is repeated more than k=1 times"):
        decompose(SMALL["two triangles"], k=1, at_cut="exclude")


@given(graphs(), st.integers(1, 6), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_k_is_a_least_count_of_whole_groups(graph: Any, lowest: int, highest: int) -> None:
    everything = decompose(graph, dtype=torch.float64)
    some = decompose(graph, k=(lowest, highest), dtype=torch.float64)
    n = everything.num_nodes
    assert some.num_eigenpairs >= min(lowest + highest, n)
    assert torch.equal(some.eigenvalues[: min(lowest, n)], everything.eigenvalues[:lowest])
    counts = dict(zip(everything.distinct.values.tolist(), everything.distinct.counts, strict=True))
    for value, count in zip(some.distinct.values.tolist(), some.distinct.counts, strict=True):
        assert counts[value] == count


@pytest.mark.parametrize("k", [-1, 2.5, "many", (1,), (1, 2, 3), (1, -1), (2.0, 1), [1, None]])
def test_a_bad_k_is_named(k: Any) -> None:
    with pytest.raises(SpectrumError, match=r"k=.*: expected None, a positive int or a pair"):
        decompose(CUBE, k=k)


@pytest.mark.parametrize("k", [0, (0, 0)])
def test_a_k_of_nothing_is_refused(k: Any) -> None:
    with pytest.raises(SpectrumError, match="asks for no eigenpairs"):
        decompose(CUBE, k=k)


@pytest.mark.parametrize("k", [np.int64(6), [6, 0], (np.int32(6), 0)])
def test_any_integer_will_do_for_k(k: Any) -> None:
    assert decompose(CUBE, k=k).num_eigenpairs == 6


def test_a_bad_at_cut_is_named() -> None:
    with pytest.raises(SpectrumError, match="at_cut='half': choose 'include' or 'exclude'"):
        decompose(CUBE, k=3, at_cut="half")  # type: ignore[arg-type]


# --- choice of solver, checks, report -----------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, "float64"])
def test_a_precision_that_will_not_do_is_named(dtype: Any) -> None:
    for make in (decompose, approximate):
        with pytest.raises(SpectrumError, match=f"dtype={dtype}: choose torch.float32"):
            make(SMALL["star"], dtype=dtype)


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("gpu", "device='gpu': choose 'cpu' or 'cuda'."),
        (1.5, "device=1.5: choose 'cpu' or 'cuda'."),
        ("meta", "device='meta': choose 'cpu' or 'cuda'."),
        ("mps", "device='mps': choose 'cpu' or 'cuda'."),
        ("cuda:99", "device='cuda:99': PyTorch sees "),
    ],
)
def test_a_device_that_is_not_there_is_named(device: Any, told: str) -> None:
    for make in (decompose, approximate):
        with pytest.raises(SpectrumError, match=f"^{re.escape(told)}"):
            make(SMALL["star"], device=device)


def test_without_a_gpu_the_first_one_is_not_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for device in ("cuda", torch.device("cuda", 0)):
        with pytest.raises(SpectrumError, match="PyTorch sees no CUDA device here"):
            decompose(SMALL["star"], device=device)


@pytest.mark.parametrize("options", [{"ranks": 2}, {"hostfile": "hosts.txt"}])
@pytest.mark.parametrize("solver", ["auto", "dense", "chebyshev"])
def test_options_of_slepc_are_refused_elsewhere(solver: Any, options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    told = f"{name}={value} needs solver='slepc', not '{solver}'"
    with pytest.raises(SpectrumError, match=re.escape(told)):
        decompose(SMALL["ring"], solver=solver, **options)


def test_an_unknown_solver_is_named() -> None:
    with pytest.raises(
        SpectrumError, match="unknown solver 'magic'; choose auto, dense, lanczos, chebyshev"
    ):
        decompose(CUBE, solver="magic")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("solver", "n", "wanted", "chosen"),
    [
        ("auto", 2_500, 10, "dense"),
        ("auto", 10_000, 10, "chebyshev"),
        ("auto", 10_000, 2_500, "chebyshev"),
        ("auto", 10_000, 2_501, "dense"),
        ("auto", 40_000, 15_000, "chebyshev"),  # more nodes than LAPACK takes
        ("chebyshev", 1_000, 499, "chebyshev"),
        ("chebyshev", 1_000, 500, "dense"),
        ("lanczos", 1_000, 499, "lanczos"),
        ("lanczos", 1_000, 500, "dense"),
        ("lanczos", 64, 1, "dense"),
        ("dense", 10_000, 1, "dense"),
    ],
)
def test_solver_is_chosen_by_size(
    monkeypatch: pytest.MonkeyPatch, solver: str, n: int, wanted: int, chosen: str
) -> None:
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**50)
    name, reason = choice.choose(solver, Problem(sp.csr_array((n, n)), wanted, 0), wanted)
    assert name == chosen
    assert reason


@pytest.mark.parametrize(("wanted", "chosen"), [(3_333, "chebyshev"), (3_334, "dense")])
def test_a_gpu_takes_the_iterative_solver_for_more_pairs(
    monkeypatch: pytest.MonkeyPatch, wanted: int, chosen: str
) -> None:
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**50)
    empty = sp.csr_array((10_000, 10_000))
    problem = Problem(empty, wanted, 0, device=torch.device("cuda"))
    assert choice.choose("auto", problem, wanted)[0] == chosen


@pytest.mark.parametrize(
    ("dtype", "chosen"), [(torch.float32, "dense"), (torch.float64, "chebyshev")], ids=str
)
def test_memory_is_that_of_the_precision_a_gpu_would_solve_in(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, chosen: str
) -> None:
    gpu, size = torch.device("cuda"), 30_000
    room = dense.required_bytes(size, gpu, torch.float32)
    monkeypatch.setattr(devices, "available_bytes", lambda device: room)
    ring = normalised_laplacian(closed_form("ring", size)[0])
    problem = Problem(ring, 12_000, 0, device=gpu, dtype=dtype)
    for module in (dense, chebyshev):
        monkeypatch.setattr(module, "solve", lambda problem: (None, None))
    assert choice.solve(problem, "auto")[0] == chosen


@pytest.mark.parametrize("solver", ["dense", "chebyshev", "lanczos"])
def test_much_memory_is_told_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, solver: Any
) -> None:
    graph = nx.grid_2d_graph(12, 12)
    decompose(graph, k=5, solver=solver)
    assert not caplog.records
    monkeypatch.setattr(choice, "_MUCH", 2**15)
    decompose(graph, k=5, solver=solver)
    (told,) = caplog.messages
    assert re.fullmatch(rf"solver {solver}: as asked for; about 0\.\d GiB on cpu", told)


def test_memory_is_refused_with_the_figure_and_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**30)
    ring = closed_form("ring", 12_000)[0]
    message = r"12,000 nodes needs about 4\.3 GiB on cpu, 1\.0 GiB are free; ask for fewer .* k="
    with pytest.raises(SpectrumError, match=message):
        decompose(ring)
    with pytest.raises(SpectrumError, match=message):
        decompose(ring, solver="dense", k=3)


def test_lanczos_giving_up_falls_back_to_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = nx.complete_graph(100)
    spectrum = decompose(complete, k=2, solver="lanczos")
    assert spectrum.report.solver == "dense"
    assert "lanczos gave up: the eigenvalue at the cut is repeated" in spectrum.report.reason
    assert spectrum.num_eigenpairs == 100
    monkeypatch.setattr(dense, "_LITTLE", 0)
    monkeypatch.setattr(devices, "available_bytes", lambda device: 0)
    with pytest.raises(SpectrumError, match=r"No other solver can take over: .* 0\.0 GiB are free"):
        decompose(complete, k=2, solver="lanczos")


def test_chebyshev_giving_up_falls_back_to_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subspace, "_MAX_STEPS", 1)
    ring = closed_form("ring", 200)[0]
    spectrum = decompose(ring, k=5, solver="chebyshev")
    assert spectrum.report.solver == "dense"
    assert "chebyshev gave up: " in spectrum.report.reason
    assert spectrum.num_eigenpairs == 5


def test_lanczos_giving_up_falls_back_to_chebyshev_where_dense_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dense, "refusal", lambda *_: "no room")
    spectrum = decompose(nx.complete_graph(100), k=2, solver="lanczos")
    assert spectrum.report.solver == "chebyshev"
    assert spectrum.num_eigenpairs == 100


@pytest.mark.parametrize("solver", ["auto", "lanczos", "chebyshev"])
def test_stars_are_answered_or_refused_without_a_search(solver: Any) -> None:
    spectrum = decompose(closed_form("star", 801)[0], k=50, solver=solver)
    assert (spectrum.report.solver, spectrum.num_eigenpairs) == ("dense", 800)
    star = closed_form("star", 100_001)[0]
    for k in (2, (1, 2)):
        with pytest.raises(
            SpectrumError, match=r"100,000 pairs at least, .*at most k=1 to avoid them"
        ):
            decompose(star, k=k, solver=solver)
    assert decompose(star, k=1, solver=solver).eigenvalues.tolist() == [0.0]


def test_pairs_that_come_along_are_never_counted_too_high() -> None:
    every = [*SMALL.values(), adjacency(nx.random_labeled_tree(60, seed=0))]
    for matrix in every:
        laplacian = normalised_laplacian(matrix)
        values = np.linalg.eigvalsh(laplacian.toarray())
        for end in (values, 2.0 - values[::-1]):
            for count in range(1, len(values) + 1):
                came = (end <= end[count - 1] + 1e-9).sum()
                assert choice.least_pairs(laplacian, count) <= came


def test_an_old_spectrum_is_refreshed(caplog: pytest.LogCaptureFixture) -> None:
    old, new = nx.grid_2d_graph(9, 9), nx.grid_2d_graph(9, 9)
    new.remove_edge((3, 3), (3, 4))
    new.add_edges_from([((0, 0), (8, 8)), ((0, 0), "added"), ("alone", "pair")])
    start = decompose(adjacency(old), k=12, dtype=torch.float64)
    options: dict[str, Any] = {"k": (12, 4), "solver": "chebyshev", "dtype": torch.float64}
    told: list[tuple[int, int]] = []
    refreshed = decompose(
        adjacency(new), start=start, progress=lambda *done: told.append(done), **options
    )
    scratch = decompose(adjacency(new), **options)
    torch.testing.assert_close(refreshed.eigenvalues, scratch.eigenvalues, rtol=0, atol=1e-12)
    assert_eigenpairs(adjacency(new), refreshed, atol=1e-9)
    assert told[-1] == (16, 16)
    assert "ignores the earlier" not in caplog.text
    decompose(adjacency(new), start=start)
    assert "solver dense ignores the earlier spectrum: only chebyshev uses it" in caplog.text
    with pytest.raises(SpectrumError, match="start has 84 nodes, the graph 81: a spectrum can be"):
        decompose(adjacency(old), start=refreshed, **options)
    with pytest.raises(SpectrumError, match="start must be a Spectrum, not ImplicitSpectrum"):
        decompose(adjacency(old), start=approximate(adjacency(old)), **options)


def test_a_solve_cut_short_goes_on_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(done: int, wanted: int) -> None:
        if done:
            raise KeyboardInterrupt

    monkeypatch.setattr(subspace, "SAVE_EVERY", 0.0)
    graph = adjacency(nx.random_geometric_graph(400, 0.1, seed=1))
    options: dict[str, Any] = {"k": 40, "solver": "chebyshev", "cache": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        decompose(graph, progress=stop, **options)
    spectrum = decompose(graph, **options)
    assert_eigenpairs(graph, spectrum, atol=1e-5)
    assert [file.suffixes for file in tmp_path.iterdir()] == [[".safetensors"]]


def test_a_wrong_solver_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> tuple[np.ndarray, torch.Tensor]:
        return np.linspace(0, 2, 32), torch.eye(32, dtype=torch.float64)

    monkeypatch.setattr(dense, "solve", wrong)
    with pytest.raises(SpectrumError, match=r"'dense' failed its checks: residual 1\.\de\+00"):
        decompose(CUBE)


def test_not_a_number_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> tuple[np.ndarray, torch.Tensor]:
        return np.zeros(1), torch.full((100, 1), np.nan)

    monkeypatch.setattr(lanczos, "solve", broken)
    with pytest.raises(SpectrumError, match="residual nan"):
        decompose(closed_form("ring", 100)[0], k=1, solver="lanczos")


def test_the_report_says_what_happened() -> None:
    report = decompose(SMALL["isolated"]).report
    assert (report.solver, report.components) == ("dense", 4)
    assert report.reason == "7 nodes are few"
    assert report.seconds > 0
    assert report.max_residual < 1e-6
    assert report.max_orthogonality_error < 1e-6


def test_a_file_will_do(shared_data: Path) -> None:
    spectrum = decompose(shared_data / "chameleon-filtered.npz", k=(20, 20))
    assert spectrum.num_nodes == 890
    assert spectrum.num_eigenpairs >= 40
    assert_eigenpairs(shared_data / "chameleon-filtered.npz", spectrum, atol=1e-5)
