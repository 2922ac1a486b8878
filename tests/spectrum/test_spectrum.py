"""Spectrum: transforms, filtering against dense products and PyGSP, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pygsp.filters
import pygsp.graphs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tests.spectrum.known_graphs import SMALL, graphs

from specformer import Spectrum, decompose
from specformer.errors import SpectrumError
from specformer.files.checked_tensors import write_tensors
from specformer.graphs import normalised_laplacian
from specformer.spectrum.spectrum import FORMAT

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def signal(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@both_dtypes
@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("name", ["grid", "star", "two triangles", "weighted"])
def test_filter_is_the_dense_product(name: str, k: int | None, dtype: torch.dtype) -> None:
    spectrum = decompose(SMALL[name], k=k, dtype=dtype)
    U, n = spectrum.eigenvectors, spectrum.num_nodes
    x, g = signal(n, 4, dtype=dtype), torch.exp(-3 * spectrum.eigenvalues)
    close = {"rtol": 0, "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(spectrum.filter(x, g), U @ torch.diag(g) @ U.T @ x, **close)
    torch.testing.assert_close(
        spectrum.filter(x[:, 0], g), U @ torch.diag(g) @ U.T @ x[:, 0], **close
    )
    gains = torch.stack([g, g**2, 1 - g, g * 0], dim=1)
    columns = [U @ torch.diag(gains[:, c]) @ U.T @ x[:, c] for c in range(4)]
    torch.testing.assert_close(spectrum.filter(x, gains), torch.stack(columns, dim=1), **close)
    of_one = [U @ torch.diag(gains[:, c]) @ U.T @ x[:, 0] for c in range(4)]
    torch.testing.assert_close(spectrum.filter(x[:, 0], gains), torch.stack(of_one, dim=1), **close)


def test_eigenvectors_are_kept_by_rows(tmp_path: Path) -> None:
    rows = decompose(SMALL["grid"])
    columns = Spectrum(rows.eigenvalues, rows.eigenvectors.mT.contiguous().mT)
    assert columns.eigenvectors.is_contiguous()
    assert Spectrum(rows.eigenvalues, rows.eigenvectors).eigenvectors is rows.eigenvectors
    rows.save(tmp_path / "spectrum")
    mapped = Spectrum.load(tmp_path / "spectrum")
    assert mapped.streamed().eigenvectors.data_ptr() == mapped.eigenvectors.data_ptr()  # no copy


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Ring", {"N": 30}),
        ("Path", {"N": 20}),
        ("Grid2d", {"N1": 6, "N2": 7}),
        ("Community", {"N": 60, "seed": 1}),
        ("Sensor", {"N": 50, "seed": 1}),
        ("Torus", {"Nv": 6, "Mv": 5}),
        ("BarabasiAlbert", {"N": 40, "seed": 1}),
        ("Comet", {"N": 20, "k": 8}),
    ],
)
@pytest.mark.parametrize("method", ["exact", "chebyshev"])
@pytest.mark.filterwarnings("ignore::FutureWarning:scipy", "ignore::DeprecationWarning:pygsp")
def test_filter_agrees_with_pygsp(kind: str, options: dict[str, Any], method: str) -> None:
    peer = getattr(pygsp.graphs, kind)(**options, lap_type="normalized")
    peer.compute_fourier_basis()
    x = np.random.default_rng(0).standard_normal((peer.N, 3))
    spectrum = decompose(peer.W, isolated="zero", dtype=torch.float64)
    for kernel in (lambda e: np.exp(-5 * e), lambda e: e * (2 - e), lambda e: np.cos(3 * e)):
        theirs = pygsp.filters.Filter(peer, kernel).filter(x, method=method, order=40)
        gains = torch.as_tensor(kernel(spectrum.eigenvalues.numpy()))
        ours = spectrum.filter(torch.as_tensor(x), gains)
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


@given(graphs(), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_polynomial_responses_need_no_eigenvectors(graph: Any, seed: int) -> None:
    spectrum = decompose(graph, dtype=torch.float64)
    L = torch.as_tensor(normalised_laplacian(graph).toarray())
    x = torch.randn(len(L), 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    e = spectrum.eigenvalues
    plain = 2 * x - L @ x + 0.5 * (L @ (L @ x))
    torch.testing.assert_close(spectrum.filter(x, 2 - e + 0.5 * e**2), plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0)])
def test_transforms_fold_leading_axes(lead: tuple[int, ...]) -> None:
    spectrum = decompose(SMALL["weighted"], k=5, dtype=torch.float64)
    U = spectrum.eigenvectors
    x, c = signal(*lead, spectrum.num_nodes, 2), signal(*lead, spectrum.num_eigenpairs, 2)
    torch.testing.assert_close(spectrum.gft(x), U.T @ x)
    torch.testing.assert_close(spectrum.igft(c), U @ c)


def test_parseval_and_inverse() -> None:
    spectrum = decompose(SMALL["grid"], dtype=torch.float64)
    x = signal(16, 3)
    torch.testing.assert_close(spectrum.igft(spectrum.gft(x)), x)
    torch.testing.assert_close(spectrum.gft(x).norm(), x.norm())


def test_filter_is_differentiable() -> None:
    spectrum = decompose(SMALL["ring"], dtype=torch.float64)
    x, g = signal(8, 2).requires_grad_(), signal(8).requires_grad_()
    assert torch.autograd.gradcheck(spectrum.filter, (x, g))


def test_repr() -> None:
    assert repr(decompose(SMALL["star"])) == (
        "Spectrum(num_nodes=7, eigenpairs=7 (complete), distinct=3, "
        "dtype=torch.float32, device=cpu)"
    )
    assert "eigenpairs=1 (truncated)" in repr(decompose(SMALL["star"], k=1))
    magnetic = decompose(torch.tensor([[0, 1, 2], [1, 2, 0]]), charge=0.25)
    assert repr(magnetic).startswith("MagneticSpectrum(num_nodes=3, eigenpairs=3 (complete), ")


def test_to_another_precision() -> None:
    spectrum = decompose(SMALL["star"])
    double = spectrum.to(dtype=torch.float64)
    assert double.dtype == double.distinct.values.dtype == torch.float64
    assert double.report == spectrum.report
    positional = spectrum.to(torch.float64)
    assert torch.equal(positional.eigenvectors, double.eigenvectors)
    assert positional.to("cpu", torch.float32).dtype == torch.float32
    assert spectrum.to("cpu").device == torch.device("cpu")


def test_shapes_that_do_not_match_are_refused() -> None:
    with pytest.raises(SpectrumError, match=r"\(3,\) and eigenvectors \(4, 2\) do not match"):
        Spectrum(torch.zeros(3), torch.zeros(4, 2))
    with pytest.raises(SpectrumError, match="do not match"):
        Spectrum(torch.zeros(3, 1), torch.zeros(4, 3))


@pytest.mark.parametrize(
    ("values", "vectors", "culprit"),
    [
        (np.zeros(2), torch.eye(2), "eigenvalues .* not ndarray"),
        (torch.zeros(2), [[1.0, 0.0], [0.0, 1.0]], "eigenvectors .* not list"),
        (torch.tensor([0, 1]), torch.eye(2), r"eigenvalues .* not torch\.int64"),
        (torch.zeros(2), torch.eye(2, dtype=torch.complex64), r"eigenvectors .* torch\.complex64"),
    ],
    ids=["array", "list", "whole numbers", "complex"],
)
def test_what_is_no_tensor_of_floating_point_is_refused(values, vectors, culprit: str) -> None:
    with pytest.raises(SpectrumError, match=culprit):
        Spectrum(values, vectors)


def test_a_spectrum_is_not_brought_to_whole_numbers() -> None:
    with pytest.raises(SpectrumError, match=r"eigenvalues .* not torch\.int32"):
        decompose(SMALL["star"]).to(torch.int32)


def test_eigenvectors_that_would_get_no_gradient_are_refused() -> None:
    values, vectors = torch.linalg.eigh(torch.ones(2, 2, requires_grad=True))
    with pytest.raises(SpectrumError, match=r"without a gradient: pass eigenvectors\.detach\(\)"):
        Spectrum(values, vectors)
    assert Spectrum(values, vectors.detach()).eigenvalues.requires_grad


# --- files --------------------------------------------------------------------------------------


@both_dtypes
@pytest.mark.parametrize("k", [None, 1, 4])
def test_round_trip(tmp_path: Path, dtype: torch.dtype, k: int | None) -> None:
    spectrum = decompose(SMALL["weighted"], k=k, dtype=dtype)
    spectrum.save(tmp_path / "new folder" / "s.safetensors")
    again = Spectrum.load(tmp_path / "new folder" / "s.safetensors")
    assert torch.equal(again.eigenvalues, spectrum.eigenvalues)
    assert torch.equal(again.eigenvectors, spectrum.eigenvectors)
    assert again.dtype == dtype
    assert again.report == spectrum.report
    assert [path.name for path in (tmp_path / "new folder").iterdir()] == ["s.safetensors"]


def test_round_trip_of_a_hand_made_spectrum(tmp_path: Path) -> None:
    spectrum = Spectrum(torch.tensor([2.0, 0.0]), torch.tensor([[1.0, 1], [1, -1]]).T / 2**0.5)
    spectrum.save(tmp_path / "s")
    again = Spectrum.load(str(tmp_path / "s"))
    assert again.report is None
    assert torch.equal(again.eigenvectors, spectrum.eigenvectors)
    column = Spectrum(torch.zeros(1), torch.arange(6.0).reshape(2, 3).mT[:, :1])
    column.save(tmp_path / "s")
    assert torch.equal(Spectrum.load(tmp_path / "s").eigenvectors, column.eigenvectors)


def test_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpectrumError, match="no such spectrum file"):
        Spectrum.load(tmp_path / "absent")
    (tmp_path / "text").write_text("not a spectrum")
    with pytest.raises(SpectrumError, match="damaged spectrum file"):
        Spectrum.load(tmp_path / "text")
    save_file({"eigenvalues": torch.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(SpectrumError, match="not a spectrum file saved by specformer"):
        Spectrum.load(tmp_path / "foreign")
    metadata = {"format": "specformer.spectrum/1"}
    save_file({"eigenvalues": torch.zeros(1)}, tmp_path / "half", metadata=metadata)
    with pytest.raises(SpectrumError, match="damaged"):
        Spectrum.load(tmp_path / "half")


def test_truncated_at_any_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    decompose(SMALL["star"], k=1).save(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(SpectrumError):
            Spectrum.load(path)


def test_any_altered_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    decompose(SMALL["star"], k=1).save(path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        altered = bytearray(whole)
        altered[position] ^= 1
        path.write_bytes(bytes(altered))
        with pytest.raises(SpectrumError):
            Spectrum.load(path)


def test_the_header_is_json_anyone_can_read(tmp_path: Path) -> None:
    decompose(SMALL["star"]).save(tmp_path / "s")
    content = (tmp_path / "s").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["eigenvectors"]["shape"] == [7, 7]
    assert json.loads(header["__metadata__"]["report"])["solver"] == "dense"


# --- landmarks ----------------------------------------------------------------------------------


def test_landmarks_integrate_polynomials_like_the_spectrum() -> None:
    spectrum = decompose(SMALL["weighted"], dtype=torch.float64)
    tokens = spectrum.landmarks(4)
    assert tokens.values.shape == tokens.weights.shape == (4,)
    for degree in range(8):
        whole = (spectrum.eigenvalues**degree).sum()
        torch.testing.assert_close((tokens.weights * tokens.values**degree).sum(), whole)


def test_as_many_landmarks_as_eigenvalues_are_the_eigenvalues() -> None:
    spectrum = decompose(SMALL["star"])
    tokens = spectrum.landmarks(3)
    assert tokens.values.tolist() == [0.0, 1.0, 2.0]
    assert tokens.weights.tolist() == [1.0, 5.0, 1.0]


@pytest.mark.parametrize("count", [0, -3])
def test_no_landmarks_are_refused(count: int) -> None:
    with pytest.raises(SpectrumError, match=f"count={count}"):
        decompose(SMALL["star"]).landmarks(count)


# --- what does not fit --------------------------------------------------------------------------


def test_a_row_of_numbers_is_transformed_and_back() -> None:
    spectrum = decompose(SMALL["weighted"], dtype=torch.float64)
    row = signal(spectrum.num_nodes)
    vectors = spectrum.eigenvectors.numpy()
    np.testing.assert_allclose(spectrum.gft(row), vectors.T @ row.numpy(), atol=1e-12)
    np.testing.assert_allclose(spectrum.igft(row), vectors @ row.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("x", "response", "message"),
    [
        (torch.ones(6, 2), torch.ones(7), r"x has shape \[6, 2\], but the spectrum has 7 nodes"),
        (torch.ones(6), torch.ones(7), r"x has shape \[6, 1\], but the spectrum has 7 nodes"),
        (torch.ones(7, 2), torch.ones(6), "response has 6 values, .* 7 eigenvalues"),
        (torch.ones(7, 2), torch.ones(1), "response has 1 values, .* 7 eigenvalues"),
        (torch.ones(7, 2), torch.ones(7, 3), "response has 3 channels, but x has 2"),
        (torch.ones(7).double(), torch.ones(7), r"x is torch.float64, .* x.to\(spectrum.dtype\)"),
        (torch.ones(7), torch.ones(7).double(), "response is torch.float64, but the spectrum"),
        (np.ones(7), torch.ones(7), "x must be a tensor, not ndarray"),
        (torch.eye(7).to_sparse(), torch.ones(7), r"x is sparse; pass x\.to_dense\(\)"),
        (torch.ones(7), torch.exp, "response must be a tensor, not builtin"),
        (torch.ones(7), torch.tensor(1.0), r"response has shape \[\], but \[..., 7, channels\]"),
    ],
)
def test_signals_and_responses_that_do_not_fit_are_named(
    x: Any, response: Any, message: str
) -> None:
    with pytest.raises(SpectrumError, match=message):
        decompose(SMALL["star"]).filter(x, response)


@pytest.mark.parametrize(
    ("x", "responses", "message"),
    [
        (torch.ones(7), torch.ones(7, 2), r"x has shape \[7\], but \[..., 7, channels\]"),
        (torch.ones(7, 3), torch.ones(7), r"response has shape \[7\], but \[..., 7, channels\]"),
        (torch.ones(7, 3), torch.ones(1, 2), "response has 1 values, .* 7 eigenvalues"),
        (torch.ones(7, 3), torch.ones(7, 2).double(), "response is torch.float64"),
    ],
)
def test_a_bank_that_does_not_fit_is_named(x: Any, responses: Any, message: str) -> None:
    with pytest.raises(SpectrumError, match=message):
        decompose(SMALL["star"]).filter_bank(x, responses)


def test_coefficients_that_do_not_fit_are_named() -> None:
    spectrum = decompose(SMALL["star"], k=1)
    with pytest.raises(SpectrumError, match=r"shape \[7, 1\], but the spectrum has 1 eigenpairs"):
        spectrum.igft(torch.ones(7))


def test_autocast_may_mix_precisions() -> None:
    spectrum = decompose(SMALL["star"])
    with torch.autocast("cpu", torch.bfloat16):
        out = spectrum.filter(torch.ones(7, 1, dtype=torch.bfloat16), torch.ones(7))
    torch.testing.assert_close(out.float(), torch.ones(7, 1), rtol=0, atol=0.05)


@pytest.mark.parametrize(
    "report",
    ["[1]", "3", '{"solver": "dense"}', '{"solver": 5}', '{"colour": "red"}', "[" * 10_000, "{"],
)
def test_a_foreign_report_is_refused(report, tmp_path):
    """Its checksum is right: another program wrote it."""
    tensors = {"eigenvalues": torch.zeros(1), "eigenvectors": torch.ones(1, 1)}
    write_tensors(tmp_path / "a.safetensors", tensors, FORMAT, {"report": report})
    with pytest.raises(SpectrumError, match=r"damaged spectrum file \(its report: "):
        Spectrum.load(tmp_path / "a.safetensors")
