"""A small run folder like those of ``specformer demo``, with polynomials fitted for the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from specformer.training.runs.folder import RunFolder

FILTERS = {
    "low-pass": ("exp(−10λ²)", lambda x: np.exp(-10 * x**2)),
    "band-rejection": ("1 − exp(−10(λ−1)²)", lambda x: 1 - np.exp(-10 * (x - 1) ** 2)),
    "comb": ("|sin(πλ)|", lambda x: np.abs(np.sin(np.pi * x))),
}
#: Degree of the polynomial that stands for each model; None: no response, as for GAT.
MODELS = {"gcn": 1, "gat": None, "gprgnn": 4, "bernnet": 7, "specformer": 40}
NODE_MODELS = {"gcn": 0.71, "gprgnn": 0.88, "specformer": 0.93}
DATASETS = ("csbm-homophilic", "csbm-heterophilic")


def statistics(values: np.ndarray) -> dict[str, Any]:
    spread = 1.96 * float(np.std(values)) / np.sqrt(len(values))
    return {"mean": float(np.mean(values)), "ci95": spread, "values": [float(v) for v in values]}


def example(
    size: int = 12, raw: np.ndarray | None = None, titles: tuple[str, ...] = ("disc", "stripes")
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The result and the arrays of a run."""
    rng = np.random.default_rng(0)
    if raw is None:
        rows, columns = np.mgrid[:size, :size] / size
        disc = ((rows - 0.5) ** 2 + (columns - 0.5) ** 2 < 0.1).astype(float)
        raw = np.stack([disc, 0.5 + 0.5 * np.sin(12 * rows)])
    raw, titles = raw[: len(titles)], titles[: len(raw)]
    values, vectors = np.linalg.eigh(_laplacian(size))
    values = values.clip(0, 2)
    distinct, inverse, counts = np.unique(values.round(9), return_inverse=True, return_counts=True)
    arrays: dict[str, np.ndarray] = {
        "filters/eigenvalues": distinct,
        "filters/counts": counts,
        "filters/raw": raw,
        "filters/titles": np.array(titles),
    }
    filters = []
    for name, (formula, function) in FILTERS.items():
        target = function(distinct)
        arrays[f"filters/{name}/target"] = target
        true = _apply(raw, vectors, target[inverse])
        arrays[f"filters/{name}/true"] = true
        arrays[f"filters/{name}/specformer/attention"] = rng.dirichlet(np.ones(3), size=(2, 3))
        for model, degree in MODELS.items():
            fit = np.polynomial.Chebyshev.fit(distinct, target, degree or 2)
            response = fit(distinct) + 1e-3 * rng.normal(size=(len(raw), len(distinct)))
            image = np.stack([_apply(x[None], vectors, g[inverse])[0]
                              for x, g in zip(raw, response, strict=True)])  # fmt: skip
            where = f"filters/{name}/{model}"
            if degree is not None:
                arrays[f"{where}/response"] = response
            arrays[f"{where}/image"] = image
            sse = ((image - true) ** 2).sum((1, 2))
            arrays[f"{where}/curve"] = _curve(rng, sse, 600)
            variance = ((true - true.mean((1, 2), keepdims=True)) ** 2).sum((1, 2))
            filters.append(
                {
                    "filter": name,
                    "formula": formula,
                    "model": model,
                    "recipe": "quick",
                    "images": len(raw),
                    "sse": statistics(sse),
                    "r2": statistics(1 - sse / variance),
                    "parameters": 2000 + len(model),
                    "epochs": 512.5,
                    "seconds": 3.21,
                }
            )
    nodes = _nodes(rng, distinct, arrays)
    spectrum = {
        "name": f"grid {size} × {size}",
        "num_nodes": size**2,
        "num_eigenpairs": size**2,
        "distinct_eigenvalues": len(distinct),
        "solver": "dense",
        "seconds": 0.42,
        "max_residual": 3.2e-7,
        "max_orthogonality_error": 1.1e-6,
        "components": 1,
    }
    result = {
        "kind": "demo",
        "title": "Filters and nodes, learned from embedded data",
        "command": "specformer demo --seed 0",
        "created": "2025-03-04T14:05:06+00:00",
        "seconds": 83.4,
        "seed": 0,
        "environment": {
            "specformer": "0.1.0",
            "python": "3.12.3",
            "packages": {"torch": "2.13.0", "numpy": "2.2.0", "scikit-image": None},
            "device": "An Ordinary CPU @ 3.00GHz",
            "cpu_cores": 2,
            "commit": "0123456789ab",
        },
        "spectra": [spectrum],
        "filters": filters,
        "nodes": nodes,
    }
    return result, arrays


def write_run(path: Path, result: dict[str, Any], arrays: dict[str, np.ndarray]) -> RunFolder:
    run = RunFolder.create(path, {"seed": 0})
    if arrays:
        run.write_outputs(arrays)
    run.write_result(result)
    return run


def _nodes(
    rng: np.random.Generator, distinct: np.ndarray, arrays: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    entries = []
    for name in DATASETS:
        arrays[f"nodes/{name}/specformer/eigenvalues"] = distinct
        arrays[f"nodes/{name}/specformer/attention"] = rng.dirichlet(np.ones(3), size=(4, 3))
        heads = np.stack([np.cos(head * distinct) for head in range(4)], axis=1)
        arrays[f"nodes/{name}/specformer/response"] = heads
        for model, accuracy in NODE_MODELS.items():
            test = accuracy + 0.01 * rng.normal(size=5)
            losses = _curve(rng, np.full(5, 0.3), 200)
            arrays[f"nodes/{name}/{model}/curve"] = np.stack(
                [losses, losses * 1.1, np.nan_to_num(accuracy - 0.02 * losses, nan=np.nan)], axis=-1
            )
            entries.append(
                {
                    "dataset": name,
                    "description": "600 nodes, two classes.",
                    "model": model,
                    "runs": 5,
                    "test": statistics(test),
                    "val": statistics(test + 0.004),
                    "parameters": 4321,
                    "epochs": 180.0,
                    "seconds": 2.5,
                }
            )
    return entries


def _curve(rng: np.random.Generator, ends: np.ndarray, epochs: int) -> np.ndarray:
    """Losses that fall to ``ends``; NaN from where each run stopped."""
    epoch = np.arange(epochs)[:, None]
    curve = ends + 30 * np.exp(-epoch / 40) * rng.uniform(0.8, 1.2, size=(epochs, len(ends)))
    stops = epochs - 1 - 20 * np.arange(len(ends))
    return np.where(epoch <= stops, curve, np.nan)


def _apply(raw: np.ndarray, vectors: np.ndarray, response: np.ndarray) -> np.ndarray:
    flat = raw.reshape(len(raw), -1)
    return ((flat @ vectors) * response @ vectors.T).reshape(raw.shape)


def _laplacian(size: int) -> np.ndarray:
    path = np.eye(size, k=1) + np.eye(size, k=-1)
    adjacency = np.kron(path, np.eye(size)) + np.kron(np.eye(size), path)
    scale = 1 / np.sqrt(adjacency.sum(1))
    return np.eye(size**2) - scale[:, None] * adjacency * scale
