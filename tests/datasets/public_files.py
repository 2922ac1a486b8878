"""A small labelled graph written the way each public source stores its data."""

from __future__ import annotations

import gzip
import pickle  # noqa: TID251 - Planetoid's files are pickles, read by PyG's own class
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

#: Planetoid's reader takes 500 nodes for validation whatever the file holds.
NODES, FEATURES, CLASSES, SPLITS = 620, 9, 3, 10


@dataclass(frozen=True)
class Truth:
    """Edges [2, E] once each, x 0/1 [n, features], y [n], three masks [n, splits]."""

    edges: np.ndarray
    x: np.ndarray
    y: np.ndarray
    masks: dict[str, np.ndarray]

    @property
    def adjacency(self) -> np.ndarray:
        dense = np.zeros((len(self.y), len(self.y)))
        dense[self.edges[0], self.edges[1]] = dense[self.edges[1], self.edges[0]] = 1
        return dense


def truth(seed: int = 0) -> Truth:
    generator = np.random.default_rng(seed)
    ring = np.stack([np.arange(NODES), np.roll(np.arange(NODES), -1)])
    chords = np.stack([np.arange(0, NODES, 5), (np.arange(0, NODES, 5) + 100) % NODES])
    edges = np.concatenate([ring, chords], axis=1)
    x = (generator.random((NODES, FEATURES)) < 0.2).astype(np.float32)
    x[np.arange(NODES), np.arange(NODES) % FEATURES] = 1  # none without a feature
    part = generator.integers(3, size=(NODES, SPLITS))
    masks = {name: part == number for number, name in enumerate(("train", "val", "test"))}
    return Truth(edges, x, np.arange(NODES) % CLASSES, masks)


def _write_mask_files(graph: Truth, folder: Path, name: str) -> None:
    for split in range(SPLITS):
        masks = {f"{part}_mask": mask[:, split] for part, mask in graph.masks.items()}
        np.savez(folder / f"{name}_split_0.6_0.2_{split}.npz", **masks)


def _write_geom_gcn(graph: Truth, raw: Path, *, dense: bool) -> None:
    """The two text files of geom-gcn; features as a row of numbers or as the places of ones."""
    raw.mkdir(parents=True)
    lines = ["node_id\tfeature\tlabel"]
    for node, (x, label) in enumerate(zip(graph.x, graph.y, strict=True)):
        shown = x.astype(int) if dense else np.flatnonzero(x)
        lines.append(f"{node}\t{','.join(map(str, shown))}\t{label}")
    (raw / "out1_node_feature_label.txt").write_text("\n".join(lines) + "\n")
    pairs = [f"{source}\t{target}" for source, target in graph.edges.T]
    (raw / "out1_graph_edges.txt").write_text("\n".join(["from\tto", *pairs]) + "\n")


def write_actor(graph: Truth, root: Path) -> None:
    _write_geom_gcn(graph, root / "raw", dense=False)
    _write_mask_files(graph, root / "raw", "film")


def write_chameleon(graph: Truth, root: Path) -> None:
    raw = root / "chameleon" / "geom_gcn" / "raw"
    _write_geom_gcn(graph, raw, dense=True)
    _write_mask_files(graph, raw, "chameleon")


def write_photo(graph: Truth, root: Path) -> None:
    raw = root / "Photo" / "raw"
    raw.mkdir(parents=True)
    arrays = {"labels": graph.y}
    for name, matrix in (("adj", graph.adjacency), ("attr", graph.x)):
        sparse = sp.csr_matrix(matrix)
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{name}_{part}"] = np.asarray(getattr(sparse, part))
    np.savez(raw / "amazon_electronics_photo.npz", **arrays)


def write_cora(graph: Truth, root: Path) -> None:
    raw = root / "Cora" / "geom-gcn" / "raw"
    raw.mkdir(parents=True)
    train, rest = 20, NODES - 30  # of x, of allx; the other nodes are tx
    one_hot = np.eye(CLASSES, dtype=np.int32)[graph.y]
    content = {
        "x": sp.csr_matrix(graph.x[:train]),
        "allx": sp.csr_matrix(graph.x[:rest]),
        "tx": sp.csr_matrix(graph.x[rest:]),
        "y": one_hot[:train],
        "ally": one_hot[:rest],
        "ty": one_hot[rest:],
        "graph": {n: np.flatnonzero(row).tolist() for n, row in enumerate(graph.adjacency)},
    }
    for name, value in content.items():
        (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(value))
    (raw / "ind.cora.test.index").write_text("".join(f"{n}\n" for n in range(rest, NODES)))
    _write_mask_files(graph, raw, "cora")


def facebook_table(graph: Truth) -> np.ndarray:
    """``local_info``: status, gender (0 not given), and two more columns of categories."""
    gender = np.where(np.arange(NODES) % 7 == 0, 0, graph.y % 2 + 1)
    return np.stack([np.arange(NODES) % 3, gender, np.arange(NODES) % 4, graph.y], axis=1)


def write_facebook(graph: Truth, root: Path, name: str) -> None:
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    scipy.io.savemat(
        raw / "data.mat",
        {"A": sp.csc_matrix(graph.adjacency), "local_info": facebook_table(graph).astype(np.uint8)},
    )
    if name == "penn94":
        keys = {"train": "train", "val": "valid", "test": "test"}
        splits = [
            {keys[part]: np.flatnonzero(mask[:, split]) for part, mask in graph.masks.items()}
            for split in range(5)
        ]
        np.save(raw / "fb100-Penn94-splits.npy", np.array(splits, dtype=object), allow_pickle=True)


def write_arxiv(graph: Truth, root: Path) -> None:
    folder = root / "ogbn_arxiv"
    for part in ("raw", "split/time", "processed"):
        (folder / part).mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()

    def table(name: str, rows: np.ndarray) -> None:
        text = "".join(",".join(map(str, row)) + "\n" for row in np.atleast_2d(rows).tolist())
        (folder / name).write_bytes(gzip.compress(text.encode()))

    column = graph.y.reshape(-1, 1)
    table("raw/edge.csv.gz", graph.edges.T)
    table("raw/num-node-list.csv.gz", np.array([NODES]))
    table("raw/num-edge-list.csv.gz", np.array([graph.edges.shape[1]]))
    table("raw/node-feat.csv.gz", graph.x + 0.25)
    table("raw/node-label.csv.gz", column)
    table("raw/node_year.csv.gz", 2000 + column)
    for part, mask in (("train", "train"), ("valid", "val"), ("test", "test")):
        table(f"split/time/{part}.csv.gz", np.flatnonzero(graph.masks[mask][:, 0]).reshape(-1, 1))


def write_platonov(graph: Truth, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        node_features=graph.x,
        node_labels=graph.y,
        edges=graph.edges.T,
        **{f"{part}_masks": mask.T for part, mask in graph.masks.items()},
    )
