r"""The eigenpairs of a graph's normalised Laplacian, complete or truncated."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.files.checked_tensors import read_tensors, write_tensors
from specformer.files.documents import parse_record
from specformer.spectrum.eigenpairs import Distinct, Tokens, check_finite, distinct
from specformer.spectrum.landmarks import (
    ALIGNED,
    Landmarks,
    gauss_quadrature,
    pieced_interpolation,
)
from specformer.spectrum.notebook import Shown
from specformer.spectrum.products import (
    Filtering,
    Product,
    ResidentProduct,
    RowStream,
    aligned,
    as_columns,
    check_signal,
    rows_at_once,
    streamed_product,
    transformed,
)
from specformer.spectrum.shards import chosen_rows, is_folder, read_shards, write_shards

FORMAT = "specformer.spectrum/1"
#: The end of an error about what complex spectra cannot do.
REAL = "is for real spectra only; this one is complex (charge=…)."


@dataclass(frozen=True)
class SolveReport:
    """How a spectrum was computed and how well it passed its checks."""

    solver: str
    reason: str
    seconds: float
    max_residual: float
    max_orthogonality_error: float
    components: int
    #: Hash of the graph's edges and weights, see :func:`specformer.spectrum.cache.content`.
    graph: str = ""


@dataclass(frozen=True, eq=False)
class Spectrum(Filtering, Shown):
    r"""Eigenvalues λ in [0, 2] and orthonormal eigenvectors U of a normalised Laplacian.

    Shapes:
        - eigenvalues: ``[q]``, ascending as solvers give them; any order works
        - eigenvectors: ``[n, q]``, stored by rows; a matrix stored by columns is copied

    Example:
        >>> path = Spectrum(torch.tensor([0.0, 2.0]), torch.tensor([[1.0, 1], [1, -1]]) / 2**0.5)
        >>> path.filter(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]))
        tensor([0.5000, 0.5000])
    """

    eigenvalues: Tensor
    eigenvectors: Tensor
    report: SolveReport | None = None
    #: How many rows of the eigenvectors are copied to the eigenvalues' device at once; None if all
    #: of them are there. See :meth:`streamed`.
    rows: int | None = None
    #: Number of nodes of the graph, if the eigenvectors may have rows of some of them only.
    all_nodes: int | None = field(default=None, kw_only=True)
    #: The different eigenvalues and their multiplicities.
    distinct: Distinct = field(init=False)
    _product: Product = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("eigenvalues", "eigenvectors"):
            given = getattr(self, name)
            if not (isinstance(given, Tensor) and given.is_floating_point()):
                kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
                raise SpectrumError(f"{name} must be a floating-point tensor, not {kind}.")
        shape = tuple(self.eigenvectors.shape)
        if self.eigenvalues.dim() != 1 or len(shape) != 2 or shape[1] != len(self.eigenvalues):
            raise SpectrumError(
                f"eigenvalues {tuple(self.eigenvalues.shape)} and eigenvectors {shape} do not "
                "match: expected shapes [q] and [n, q]."
            )
        if self.eigenvectors.requires_grad:
            raise SpectrumError(
                "eigenvectors are constants without a gradient: pass eigenvectors.detach()."
            )
        object.__setattr__(self, "distinct", distinct(self.eigenvalues))
        # Solvers return columns and files hold rows, and products with the two round differently.
        # Rows may be padded.
        values, vectors, rows = self.eigenvalues, self.eigenvectors, self.rows
        vectors = vectors if vectors.stride(1) == 1 else vectors.contiguous()
        if rows is None and values.device != vectors.device:
            rows = rows_at_once(vectors)
        product: Product
        if rows is None:
            product = ResidentProduct(vectors, values.dtype)
        elif rows < 1:
            raise SpectrumError(f"rows={rows} must be at least 1.")
        else:
            stream = RowStream(vectors, values.device, values.dtype, rows)
            product = partial(streamed_product, stream)
        made = {"eigenvectors": vectors, "rows": rows, "_product": product}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        part = "complete" if self.is_complete else "truncated"
        vectors = self.eigenvectors
        kept = ""
        if self.is_streamed:
            kept = f", streamed from {vectors.device} in {vectors.dtype}"
        elif vectors.dtype != self.dtype and not vectors.is_complex():
            kept = f", kept in {vectors.dtype}"
        return (
            f"{type(self).__name__}(num_nodes={self.num_nodes}, "
            f"eigenpairs={self.num_eigenpairs} ({part}), "
            f"distinct={len(self.distinct.values)}, dtype={self.dtype}, device={self.device}{kept})"
        )

    @property
    def num_nodes(self) -> int:
        return self.eigenvectors.shape[0]

    @property
    def num_eigenpairs(self) -> int:
        return self.eigenvectors.shape[1]

    @property
    def is_complete(self) -> bool:
        """Whether this has every eigenpair of the graph."""
        nodes = self.num_nodes if self.all_nodes is None else self.all_nodes
        return self.num_eigenpairs == nodes

    @property
    def is_streamed(self) -> bool:
        """Whether eigenvectors are copied to the device a few rows at a time."""
        return self.rows is not None

    @property
    def device(self) -> torch.device:
        """Where signals are filtered."""
        return self.eigenvalues.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision signals are filtered in."""
        return self.eigenvalues.dtype

    @property
    def _density(self) -> Tokens:
        return self.distinct.tokens

    @property
    def _takes(self) -> tuple[int, torch.dtype, int, str]:
        return self.num_nodes, self.dtype, self.num_eigenpairs, "eigenvalues"

    def to(
        self,
        device: torch.device | str | torch.dtype | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
        *,
        storage: torch.dtype | None = None,
    ) -> Spectrum:
        """The same spectrum, all of it, on another device or in another precision.

        Args:
            device: where everything goes; a dtype in its place is ``dtype``, as in PyTorch.
            dtype: precision of eigenvalues and eigenvectors, and of the signals to filter.
            non_blocking: see :meth:`torch.Tensor.to`.
            storage: precision to store eigenvectors in, if it is another.

        Example:
            >>> path = Spectrum(torch.tensor([0.0, 2.0]), torch.tensor([[1.0, 1], [1, -1]]) / 2)
            >>> path.to(storage=torch.bfloat16).gft(torch.tensor([[1.0], [3.0]]))
            tensor([[ 2.],
                    [-1.]])
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        vectors, work = self.eigenvectors, dtype or self.dtype
        kept = _stored(storage) if storage else dtype or vectors.dtype
        if vectors.is_complex():
            if storage or not (work.is_floating_point and work.itemsize >= 4):
                raise SpectrumError(f"{storage or work} {REAL}")
            kept = work.to_complex()
        if kept == work or vectors.is_complex():
            moved = vectors.to(device, kept, non_blocking=non_blocking)
        else:
            moved = aligned(vectors, kept, device)
        values = self.eigenvalues.to(device, work, non_blocking=non_blocking)
        other = replace(self, eigenvalues=values, eigenvectors=moved, rows=None)
        return self._regrouped(other)

    def _regrouped(self, other: Spectrum) -> Spectrum:
        """The other spectrum with the groups of this one, if its own eigenvalues are rounded."""
        # The encoding multiplies eigenvalues by 100, so it needs all their bits.
        if other.dtype.itemsize < 4:
            groups = Distinct(*(part.to(other.device) for part in self.distinct))
            object.__setattr__(other, "distinct", groups)
        return other

    def streamed(
        self,
        device: torch.device | str | None = None,
        *,
        storage: torch.dtype | None = None,
        rows: int | None = None,
    ) -> Spectrum:
        r"""The same spectrum for a device that cannot hold its eigenvectors.

        They stay in the host's memory, or in the file they were loaded from. Every transform,
        forward and backward, copies them to ``device`` in chunks of rows:
        :math:`U^\top x = \sum_c U_c^\top x_c`. On a GPU, the next chunk is copied while one is in
        use.

        Args:
            device: where signals are filtered.
            storage: precision to store eigenvectors in. ``torch.bfloat16`` needs half the memory
                and transfer; products stay in the eigenvalues' precision.
            rows: rows of a chunk; by default as many as make 128 MiB.

        Example:
            >>> whole = Spectrum(torch.tensor([0.0, 2.0]), torch.tensor([[1.0, 1], [1, -1]]) / 2)
            >>> whole.streamed(rows=1).gft(torch.tensor([[1.0], [3.0]]))
            tensor([[ 2.],
                    [-1.]])
        """
        vectors = self.eigenvectors if storage is None else self.eigenvectors.to(_stored(storage))
        other = replace(
            self,
            eigenvalues=self.eigenvalues.to(device),
            eigenvectors=vectors,
            rows=rows_at_once(vectors) if rows is None else rows,
        )
        return self._regrouped(other)

    def cpu(self) -> Spectrum:
        """The same spectrum in the host's memory."""
        return self.to("cpu")

    def cuda(
        self, device: torch.device | str | None = None, non_blocking: bool = False
    ) -> Spectrum:
        """The same spectrum on a GPU."""
        return self.to(device or "cuda", non_blocking=non_blocking)

    def gft(self, x: Tensor) -> Tensor:
        r"""Graph Fourier transform :math:`U^\top x` of ``[n]`` or ``[..., n, channels]``."""
        columns = as_columns(x)
        check_signal(columns, self.num_nodes, self.dtype)
        coefficients = transformed(self._product, columns, forward=True)
        return coefficients if columns is x else coefficients.squeeze(-1)

    def igft(self, coefficients: Tensor) -> Tensor:
        r"""Inverse transform :math:`U \hat x` of ``[q]`` or ``[..., q, channels]``."""
        columns = as_columns(coefficients)
        check_signal(columns, self.num_eigenpairs, self.dtype, "coefficients", "eigenpairs")
        x = transformed(self._product, columns, forward=False)
        return x if columns is coefficients else x.squeeze(-1)

    def _filtered(self, x: Tensor, gains: Tensor) -> Tensor:
        coefficients = self.gft(x).unsqueeze(-2) * gains
        filtered: Tensor = self.igft(coefficients.flatten(-2))
        return filtered.reshape(*filtered.shape[:-1], *coefficients.shape[-2:])

    def landmarks(self, count: int, points: int | None = None) -> Landmarks:
        """At most ``count`` weighted points that integrate like the whole spectrum.

        With ``points``, also about that many to interpolate between, if there are more tokens.
        See :mod:`specformer.spectrum.landmarks` and
        :func:`specformer.spectrum.landmarks.gauss_quadrature`.
        """
        values, counts = self.distinct.values, self.distinct.counts

        def placed(array: np.ndarray) -> Tensor:
            return torch.as_tensor(array, dtype=values.dtype, device=values.device)

        tokens = values.cpu().numpy()
        nodes, weights = gauss_quadrature(tokens, counts.cpu().numpy(), count)
        keys = Landmarks(placed(nodes), placed(weights))
        if points is None or points >= len(tokens):
            return keys
        if points < 2:
            raise SpectrumError(f"points={points}: interpolation needs at least two.")
        places, matrix = pieced_interpolation(tokens, points)
        more = (0, -len(places) % ALIGNED)  # copies of the last point, which the matrix ignores
        places, matrix = np.pad(places, more, mode="edge"), np.pad(matrix, ((0, 0), more))
        return keys._replace(points=placed(places), interpolation=placed(matrix))

    def summary(self) -> dict[str, Any]:
        """Size, solver and checks, ready for JSON."""
        size = {"num_nodes": self.num_nodes, "num_eigenpairs": self.num_eigenpairs}
        solved = asdict(self.report) if self.report else {}
        return size | {"distinct_eigenvalues": len(self.distinct.values)} | solved

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file, atomically, with a checksum of the numbers.

        To a path that ends in ``/``, or an existing folder, it writes shards of rows, each with a
        checksum, and an index (:mod:`specformer.spectrum.shards`).
        """
        tensors = {"eigenvalues": self.eigenvalues, "eigenvectors": self.eigenvectors}
        report = asdict(self.report) if self.report else None
        if is_folder(path):
            write_shards(Path(path), self.eigenvalues, self.eigenvectors, report)
        else:
            write_tensors(path, tensors, FORMAT, {"report": json.dumps(report)})

    @classmethod
    def load(cls, path: str | Path, nodes: slice | None = None) -> Spectrum:
        """Read what :meth:`save` wrote; a file that is damaged or altered is refused.

        A file is mapped into memory, not copied: :meth:`streamed` reads from it as needed. From a
        folder, ``nodes=slice(a, b)`` reads only the shards that hold their rows, and all
        eigenvalues.
        """
        told: Any
        if is_folder(path):
            tensors, told, count = read_shards(Path(path), nodes)
            told = json.dumps(told)
        else:
            tensors, words = read_tensors(
                Path(path),
                "spectrum file",
                FORMAT,
                refused=SpectrumError,
                names=("eigenvalues", "eigenvectors"),
            )
            told = words.get("report", "")
            count = len(tensors["eigenvectors"])
            first, last = chosen_rows(nodes, count)
            tensors["eigenvectors"] = tensors["eigenvectors"][first:last]
        try:
            report = None if told == "null" else parse_record(SolveReport, told)
        except ValueError as error:
            raise SpectrumError(f"{path}: damaged spectrum file (its report: {error}).") from error
        check_finite(path, tensors)
        whole = None if nodes is None else count
        return cls(tensors["eigenvalues"], tensors["eigenvectors"], report, all_nodes=whole)


def _stored(dtype: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        raise SpectrumError(f"storage={dtype}: choose torch.bfloat16 or torch.float32.")
    return dtype
