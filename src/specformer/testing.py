r"""Assertions about symmetries and eigenpairs, for the tests of this library and of your models.

A model here is anything that is called as ``model(x, spectrum)``. A ``torch.nn.Module`` is in
evaluation mode during a check; its modes are restored afterwards. Models that draw numbers, such as
one in training mode inside a function, are refused: nothing could be said about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.graphs.checks import as_scipy
from specformer.graphs.convert import directed_adjacency, signed_adjacency
from specformer.graphs.laplacian import laplacian_of
from specformer.spectrum import Spectrum, decompose
from specformer.spectrum.eigenpairs import max_orthogonality_error, max_residual
from specformer.spectrum.magnetic import MagneticSpectrum

__all__ = ["assert_basis_invariant", "assert_eigenpairs", "assert_permutation_equivariant"]

Model = Callable[[Tensor, Spectrum], Tensor]


def assert_permutation_equivariant(
    model: Model,
    x: Tensor,
    graph: Any,
    *,
    atol: float = 1e-5,
    seed: int = 0,
    **decompose_options: Any,
) -> None:
    r"""Assert that relabelling nodes permutes the output: :math:`f(Px, PAP^\top) = P f(x, A)`.

    The relabelled graph is decomposed again, so that the signs and bases of eigenvectors may
    differ.

    Args:
        model: called as ``model(x, spectrum)``, returns ``[..., n, out]``.
        x: signal ``[..., n, in]``.
        graph: any graph that :func:`specformer.decompose` takes; the number of nodes of an
            ``edge_index`` is that of ``x``.
        atol: largest accepted difference of two entries.
        seed: random seed of the permutation.
        decompose_options: options of :func:`specformer.decompose`, such as ``k``; by default dtype
            and device are those of ``x``.

    Raises:
        AssertionError: with the largest difference.

    Example:
        >>> from specformer import Specformer
        >>> triangle_with_tail = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]])
        >>> assert_permutation_equivariant(Specformer(2, 8, 3), torch.eye(4, 2), triangle_with_tail)
        >>> by_position = lambda x, spectrum: x.cumsum(dim=0)
        >>> assert_permutation_equivariant(by_position, torch.eye(4, 2), triangle_with_tail)
        Traceback (most recent call last):
        AssertionError: not permutation equivariant: outputs differ by 1.0e+00, more than atol=1e-05
    """
    if x.dim() < 2:
        raise ConfigError(f"x has shape {list(x.shape)}, but [..., n, in] is needed.")
    options = {"dtype": x.dtype, "device": x.device, **decompose_options}
    weight = options.pop("edge_weight", None)
    read = signed_adjacency if options.get("charge") is None else directed_adjacency
    adjacency = read(graph, num_nodes=x.shape[-2], edge_weight=weight)
    order = np.random.default_rng(seed).permutation(x.shape[-2])
    index = torch.as_tensor(order, device=x.device)
    relabelled = adjacency[order][:, order]
    with _evaluating(model):
        before = _repeatable(model, x, decompose(adjacency, **options))
        if before.dim() < 2 or before.shape[-2] != len(order):
            shape, nodes = list(before.shape), len(order)
            raise AssertionError(f"not one row per node: the output is {shape} for {nodes} nodes")
        after = model(x.index_select(-2, index), decompose(relabelled, **options))
    _assert_equal(after, before.index_select(-2, index), atol, "not permutation equivariant")


def assert_basis_invariant(
    model: Model, x: Tensor, spectrum: Spectrum, *, atol: float = 1e-5, seed: int = 0
) -> None:
    r"""Assert that the output does not depend on the basis or the order of eigenvectors.

    Three changes are tried: random signs of eigenvectors (phases, if they are complex), random
    rotations of the eigenvectors of repeated eigenvalues, and a random order of all (eigenvalue,
    eigenvector) pairs.

    Args:
        model: called as ``model(x, spectrum)``.
        x: signal ``[..., n, in]``.
        spectrum: the spectrum of any graph; repeated eigenvalues make the test stricter.
        atol: largest accepted difference of two entries.
        seed: random seed of signs, rotations and order.

    Raises:
        AssertionError: names the change that changed the output, and by how much.

    Example:
        >>> from specformer import Specformer
        >>> star = decompose(torch.tensor([[0, 0, 0], [1, 2, 3]]))  # the eigenvalue 1 is repeated
        >>> assert_basis_invariant(Specformer(2, 8, 3), torch.eye(4, 2), star)
        >>> by_sign = lambda x, spectrum: spectrum.eigenvectors
        >>> assert_basis_invariant(by_sign, torch.eye(4, 2), star)
        Traceback (most recent call last):
        AssertionError: sign flips change the output: ... more than atol=1e-05
    """
    generator = torch.Generator().manual_seed(seed)
    _check_spectrum(spectrum)
    values, vectors = spectrum.eigenvalues, spectrum.eigenvectors
    order = torch.randperm(len(values), generator=generator).to(values.device)
    kind = MagneticSpectrum if vectors.is_complex() else Spectrum
    variants = {
        "sign flips change": kind(values, vectors * _signs(vectors, generator)),
        "rotations inside eigenspaces change": kind(values, _rotated(spectrum, generator)),
        "the order of eigenpairs changes": kind(values[order], vectors[:, order]),
    }
    with _evaluating(model):
        before = _repeatable(model, x, spectrum)
        for what, variant in variants.items():
            _assert_equal(model(x, variant), before, atol, f"{what} the output")


def assert_eigenpairs(graph_or_laplacian: Any, spectrum: Spectrum, *, atol: float = 1e-4) -> None:
    r"""Assert that a spectrum has orthonormal eigenpairs of a Laplacian, ascending and in [0, 2].

    Checks :math:`\lVert L u_i - \lambda_i u_i\rVert_2` and :math:`|U^\top U - I|`, and for a
    complete spectrum also that the mean eigenvalue is the mean of L's diagonal.

    Args:
        graph_or_laplacian: any graph that :func:`specformer.decompose` takes, or the Laplacian
            itself: a sparse matrix with negative entries, or a dense floating-point matrix
            ``[n, n]``. An isolated node of a graph has the eigenvalue 1. A graph with negative
            weights must be given in another way than as a sparse matrix.
        spectrum: complete or truncated.
        atol: largest accepted residual, orthogonality error and difference of the means.

    Raises:
        AssertionError: names the property that fails, with the measured value.

    Example:
        >>> edge = torch.tensor([[0], [1]])
        >>> assert_eigenpairs(edge, decompose(edge))
        >>> assert_eigenpairs(edge, Spectrum(torch.tensor([0.0, 1.0]), torch.eye(2)))
        Traceback (most recent call last):
        AssertionError: not eigenpairs: the largest residual is 1.4e+00, more than atol=0.0001
    """
    _check_spectrum(spectrum)
    if spectrum.eigenvectors.is_complex():
        raise ConfigError("assert_eigenpairs takes real eigenvectors, not those of charge=….")
    laplacian = _as_laplacian(graph_or_laplacian, spectrum.num_nodes)
    if laplacian.shape[0] != spectrum.num_nodes:
        raise AssertionError(
            f"the Laplacian has {laplacian.shape[0]} rows, eigenvectors {spectrum.num_nodes}"
        )
    values = spectrum.eigenvalues.detach().to("cpu", torch.float64)
    vectors = spectrum.eigenvectors.detach().to("cpu", torch.float64)
    if not (torch.isfinite(values).all() and torch.isfinite(vectors).all()):
        raise AssertionError("not eigenpairs: some numbers are not finite")
    drop = float(-values.diff().min()) if len(values) > 1 else 0.0
    if drop > 0:
        raise AssertionError(f"eigenvalues are not ascending: one falls by {drop:.1e}")
    if len(values) and not (values[0] >= 0 and values[-1] <= 2):
        raise AssertionError(
            f"eigenvalues leave [0, 2]: they span [{values[0]:.9g}, {values[-1]:.9g}]"
        )
    measured = {
        "not eigenpairs: the largest residual": max_residual(laplacian, values, vectors),
        "not orthonormal: the largest entry of |UᵀU − I|": max_orthogonality_error(vectors),
    }
    if spectrum.is_complete:
        trace = float(laplacian.diagonal().mean())
        measured["not all eigenvalues: the error of their mean"] = abs(float(values.mean()) - trace)
    for what, figure in measured.items():
        if not figure <= atol:
            raise AssertionError(f"{what} is {figure:.1e}, more than atol={atol}")


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """A context with evaluation mode and without gradients; restores the mode of every module."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _check_spectrum(spectrum: Any) -> None:
    if not isinstance(spectrum, Spectrum):
        kind = type(spectrum).__name__
        raise ConfigError(f"spectrum must come from sf.decompose, not be a {kind}.")


def _repeatable(model: Model, x: Tensor, spectrum: Spectrum) -> Tensor:
    """The output of the model, which has to be the same at the next call."""
    first, second = model(x, spectrum), model(x, spectrum)
    if not isinstance(first, Tensor):
        raise ConfigError(f"the model returns a {type(first).__name__}, but one tensor is needed.")
    if first.shape == second.shape and not torch.allclose(
        first, second, rtol=1e-5, atol=1e-8, equal_nan=True
    ):
        raise AssertionError(
            "two calls with the same input give different outputs: call eval() on the model if it "
            "has dropout"
        )
    return first


def _assert_equal(one: Tensor, other: Tensor, atol: float, what: str) -> None:
    if one.shape != other.shape:
        raise AssertionError(f"{what}: shapes {tuple(one.shape)} and {tuple(other.shape)} differ")
    difference = float((one - other).abs().max()) if one.numel() else 0.0
    if not difference <= atol:
        raise AssertionError(f"{what}: outputs differ by {difference:.1e}, more than atol={atol}")


def _signs(vectors: Tensor, generator: torch.Generator) -> Tensor:
    """A random sign for every eigenvector, or a random phase if they are complex."""
    if vectors.is_complex():
        return _gaussian(vectors, vectors.shape[1], generator=generator).sgn().to(vectors)
    signs = torch.randint(2, (vectors.shape[1],), generator=generator) * 2 - 1
    return signs.to(vectors)


def _rotated(spectrum: Spectrum, generator: torch.Generator) -> Tensor:
    """Eigenvectors with a random orthonormal basis of every eigenspace."""
    rotated = spectrum.eigenvectors.clone()
    for group in range(len(spectrum.distinct.values)):
        columns = torch.nonzero(spectrum.distinct.index == group).squeeze(-1)
        gaussian = _gaussian(rotated, len(columns), len(columns), generator=generator)
        rotation = torch.linalg.qr(gaussian).Q.to(rotated)
        rotated[:, columns] = rotated[:, columns] @ rotation
    return rotated


def _gaussian(like: Tensor, *shape: int, generator: torch.Generator) -> Tensor:
    dtype = torch.complex128 if like.is_complex() else torch.float64
    return torch.randn(*shape, generator=generator, dtype=dtype)


def _as_laplacian(source: Any, num_nodes: int) -> sp.csr_array[np.float64]:
    source = as_scipy(source)
    if isinstance(source, Tensor) and source.is_floating_point():
        source = source.detach().cpu().numpy()
    dense = isinstance(source, np.ndarray) and np.issubdtype(source.dtype, np.floating)
    sparse = bool(sp.issparse(source))  # as a variable, so that mypy does not narrow to no type
    if dense or (sparse and source.nnz and source.min() < 0):
        return sp.csr_array(source, dtype=np.float64)
    return laplacian_of(signed_adjacency(source, num_nodes=num_nodes), "one")
