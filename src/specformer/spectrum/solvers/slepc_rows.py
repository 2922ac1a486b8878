r"""Part of the MPI program: ranks check eigenvectors together and write their own rows.

Like :mod:`.slepc_program` it needs numpy and petsc4py only.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

#: How many columns are processed at once.
_COLUMNS = 40


def checked(
    out: dict[str, Any], laplacian: Any, values: np.ndarray, rows: np.ndarray, low: int
) -> dict[str, float]:
    """Round this rank's rows and fix signs, in place; return the largest errors over all ranks.

    Both ends, ``low`` pairs and the others, are made orthogonal to each other first.
    """
    from petsc4py import PETSc

    comm, (first, _) = laplacian.comm, laplacian.getOwnershipRange()

    def gathered(array: np.ndarray) -> np.ndarray:
        """The arrays of all ranks, one after the other."""
        own = PETSc.Vec().createWithArray(array.astype(np.float64).ravel(), comm=comm)
        scatter, every = PETSc.Scatter.toAll(own)
        scatter.scatter(own, every, addv=False, mode=PETSc.ScatterMode.FORWARD)
        return np.array(every.getArray(readonly=True)).reshape(comm.size, *array.shape)

    columns, below, above = np.arange(len(values)), rows[:, :low], rows[:, low:]
    if below.shape[1] and above.shape[1]:
        above -= below @ gathered(below.T @ above).sum(axis=0)
        above /= np.sqrt(gathered((above**2).sum(axis=0)).sum(axis=0))
    for start in range(0, len(values), _COLUMNS):  # few at a time, because each step makes copies
        part = rows[:, start : start + _COLUMNS]
        part[:] = part.astype(out["dtype"])
        size, own = np.abs(part), np.arange(part.shape[1])
        large = size >= gathered(size.max(axis=0)).max(axis=0) * (1.0 - out["tie"])
        place = large.argmax(axis=0)
        places = gathered(np.where(large.any(axis=0), first + place, np.inf)).argmin(axis=0)
        part *= np.sign(gathered(part[place, own])[places, own])
    x, y = laplacian.createVecs()
    residual = orthogonality = 0.0
    for column, value in enumerate(values):
        x.setArray(rows[:, column])
        laplacian.mult(x, y)
        y.axpy(-value, x)
        residual = np.maximum(residual, y.norm())
    for start in range(0, len(values), _COLUMNS):
        products = gathered(rows.T @ rows[:, start : start + _COLUMNS]).sum(axis=0)
        products[columns[start : start + _COLUMNS], columns[: products.shape[1]]] -= 1.0
        orthogonality = np.maximum(orthogonality, np.abs(products).max())
    return {"residual": float(residual), "orthogonality": float(orthogonality)}


def write_shards(
    out: dict[str, Any], rows: np.ndarray, first: int, rank: int
) -> list[dict[str, Any]]:
    """Write this rank's rows as safetensors files; returns their entries of the index."""
    kept = []
    height = max(1, out["shard"] // max(1, rows.shape[1] * np.dtype(out["dtype"]).itemsize))
    for number, start in enumerate(range(0, len(rows), height)):
        part = rows[start : start + height].astype(out["dtype"])
        digest = hashlib.sha256(f";eigenvectors:torch.{part.dtype}:{part.shape};".encode())
        digest.update(part.data)
        entry = {"dtype": f"F{8 * part.itemsize}", "shape": part.shape}
        content = {"__metadata__": {"format": out["format"], "checksum": digest.hexdigest()}}
        content["eigenvectors"] = entry | {"data_offsets": [0, part.nbytes]}
        header = json.dumps(content).encode()
        header += b" " * (-(8 + len(header)) % 64)  # aligned, as all our files are
        name = f"rows-{rank:05d}-{number:05d}.safetensors"
        path = Path(out["folder"]) / name
        with path.with_suffix(".part").open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.write(part.data)
        path.with_suffix(".part").replace(path)
        rows_of = [first + start, first + start + len(part)]
        kept.append({"file": name, "rows": rows_of, "checksum": digest.hexdigest()})
    return kept
