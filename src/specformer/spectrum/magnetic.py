r"""Spectra of directed graphs: the magnetic Laplacian, which is Hermitian.

Its eigenvectors are complex, but models are real. So a real signal represents a complex one: the
first half of its channels are real parts, the second half imaginary parts. A filter turns
:math:`z = a + i b` into :math:`U g(\Lambda) U^* z` and returns real and imaginary parts in the same
way. Phases of eigenvectors do not matter, as signs do not matter to a real spectrum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum.eigenpairs import canonical_signs, check_eigenpairs, distinct, snap
from specformer.spectrum.products import as_columns, check_signal
from specformer.spectrum.solvers import dense
from specformer.spectrum.spectrum import REAL, SolveReport, Spectrum

_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True, eq=False, repr=False)
class MagneticSpectrum(Spectrum):
    r"""Eigenvalues λ in [0, 2] and unitary eigenvectors U of a magnetic Laplacian.

    Shapes: eigenvalues ``[q]``, real; eigenvectors ``[n, q]``, complex.

    Example:
        >>> import specformer as sf
        >>> spectrum = sf.decompose(torch.tensor([[0, 1, 2], [1, 2, 0]]), charge=0.25)
        >>> spectrum.eigenvalues  # 1 − cos(2π(k/3 + 1/4))
        tensor([0.1340, 1.0000, 1.8660])
        >>> spectrum.filter(torch.eye(3, 2), torch.ones(3)).round(decimals=3) + 0.0
        tensor([[1., 0.],
                [0., 1.],
                [0., 0.]])
    """

    def __post_init__(self) -> None:
        values, vectors = self.eigenvalues, self.eigenvectors
        fits = values.dim() == 1 and vectors.dim() == 2 and vectors.shape[1] == len(values)
        if not (fits and _COMPLEX.get(values.dtype) == vectors.dtype):
            raise SpectrumError(
                f"eigenvalues {values.dtype} {list(values.shape)} and eigenvectors {vectors.dtype} "
                f"{list(vectors.shape)} do not match: expected real [q] and complex [n, q]."
            )
        object.__setattr__(self, "distinct", distinct(values))

    def gft(self, x: Tensor) -> Tensor:
        r"""Coefficients :math:`U^* x` of ``[n]`` or ``[..., n, channels]``, real or complex."""
        columns = as_columns(x)
        check_signal(columns, self.num_nodes, None)
        out: Tensor = self.eigenvectors.mH @ columns.to(self.eigenvectors.dtype)
        return out if x.dim() > 1 else out.squeeze(-1)

    def igft(self, coefficients: Tensor) -> Tensor:
        r"""The complex signal :math:`U \hat x` of ``[q]`` or ``[..., q, channels]``."""
        columns = as_columns(coefficients)
        check_signal(columns, self.num_eigenpairs, None, "coefficients", "eigenpairs")
        out: Tensor = self.eigenvectors @ columns.to(self.eigenvectors.dtype)
        return out if coefficients.dim() > 1 else out.squeeze(-1)

    def _filtered(self, x: Tensor, gains: Tensor) -> Tensor:
        """Filter complex signals :math:`a + i b` given as ``[a, b]``, half of the channels each.

        If the number of channels is odd, the middle one has no imaginary part, and that of its
        output is left out. Gains are real.
        """
        coefficients = self.gft(x).unsqueeze(-2) * gains
        half = (coefficients.shape[-1] + 1) // 2
        real, imaginary = coefficients[..., :half], coefficients[..., half:]
        padded = torch.nn.functional.pad(imaginary, (0, half - imaginary.shape[-1]))
        paired = real + 1j * padded
        filtered = self.igft(paired.flatten(-2)).unflatten(-1, paired.shape[-2:])
        return torch.cat([filtered.real, filtered.imag], dim=-1)[..., : x.shape[-1]]

    def streamed(self, *_: Any, **__: Any) -> NoReturn:
        raise SpectrumError(f"streaming {REAL}")

    def save(self, path: Any) -> NoReturn:  # noqa: ARG002
        raise SpectrumError(f"saving {REAL}")


def solve_magnetic(
    laplacian: sp.csr_array,
    kept: Callable[[np.ndarray], np.ndarray],
    device: torch.device,
    dtype: torch.dtype,
) -> MagneticSpectrum:
    """Solve densely in double precision, keep the pairs at the positions ``kept``, and check."""
    reason = dense.refusal(laplacian.shape[0], device, torch.complex128)
    if reason:
        raise SpectrumError(f"{reason}; a directed graph is decomposed densely.")
    started = time.perf_counter()
    matrix = torch.as_tensor(laplacian.toarray()).to(device)
    values, vectors = torch.linalg.eigh(matrix)
    keep = kept(values.cpu().numpy())
    vectors = canonical_signs(vectors)[:, torch.as_tensor(keep, device=device)]
    components, _ = connected_components(abs(laplacian), directed=False)
    seconds = time.perf_counter() - started
    snapped = torch.as_tensor(snap(values.cpu().numpy()[keep])).to(device)
    residual = float((matrix @ vectors - vectors * snapped).norm(dim=0).max())
    gram = vectors.mH @ vectors
    orthogonality = float((gram - torch.eye(len(gram), device=gram.device)).abs().max())
    check_eigenpairs("the dense solver", residual, orthogonality)
    errors = residual, orthogonality
    report = SolveReport("dense", "a Hermitian matrix", seconds, *errors, components)
    return MagneticSpectrum(snapped.to(dtype), vectors.to(_COMPLEX[dtype]), report)
