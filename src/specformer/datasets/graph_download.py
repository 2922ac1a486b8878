r"""Molecular data sets from their public sources, as :class:`~specformer.graphs.GraphSet`.

ZINC comes through PyG, whose class reads a pickled source. OGB's sets are read from the CSV files
in its archives, and no pickle of them is loaded.
"""

from __future__ import annotations

import gzip
import io
import multiprocessing
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specformer.datasets.download import DownloadError, converted, fetch
from specformer.errors import GraphError
from specformer.files.host_memory import gib
from specformer.graphs import GraphSet, graph_set_from_pyg, write_graph_set
from specformer.graphs.formats.smiles import Molecules, read_smiles
from specformer.graphs.formats.table_file import read_table

OGB_URL = "https://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download"
PCQM4MV2_URL = "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip"
#: As OGB's own class gives it; the other archives have none.
PCQM4MV2_MD5 = "65b742bafca5670be4497499db7d361b"
#: How many molecules a process turns into graphs at a time.
_CHUNK = 50_000


def graph_set_from_ogb(folder: str | Path, name: str) -> GraphSet:
    """Read the unpacked archive of one of OGB's sets of molecules.

    ``raw/`` holds ``edge``, ``node-feat``, ``edge-feat``, ``num-node-list``, ``num-edge-list`` and
    ``graph-label`` as ``.csv.gz`` without header, an empty label being a missing one;
    ``split/scaffold/`` holds ``train``, ``valid`` and ``test``.
    """
    raw, parts = Path(folder) / "raw", Path(folder) / "split" / "scaffold"
    return GraphSet(
        num_nodes=_csv(raw / "num-node-list.csv.gz", np.int64)[:, 0],
        num_edges=_csv(raw / "num-edge-list.csv.gz", np.int64)[:, 0],
        edge_index=_csv(raw / "edge.csv.gz", np.int32).reshape(-1, 2).T,
        node_feat=_csv(raw / "node-feat.csv.gz", np.int16),
        edge_feat=_csv(raw / "edge-feat.csv.gz", np.int16),
        y=_csv(raw / "graph-label.csv.gz", np.float32),
        train_idx=_csv(parts / "train.csv.gz", np.int64)[:, 0],
        valid_idx=_csv(parts / "valid.csv.gz", np.int64)[:, 0],
        test_idx=_csv(parts / "test.csv.gz", np.int64)[:, 0],
        name=name,
    )


def graph_set_from_pcqm4mv2(folder: str | Path, workers: int | None = None) -> GraphSet:
    """Read the unpacked archive of PCQM4Mv2; its test-dev part, without targets, is the test part.

    ``raw/data.csv.gz`` has the columns ``smiles`` and ``homolumogap``; ``split_dict.pt`` is a
    dictionary of index arrays, loaded with ``weights_only=True``. ``workers`` processes turn SMILES
    into graphs, by default one per core.
    """
    table = read_table(Path(folder) / "raw" / "data.csv.gz")
    smiles = table.columns[table.said("smiles")]
    gap = table.numbers(table.said("homolumogap"), np.float32, missing=True).astype(np.float32)
    graphs, rows = _joined(list(_read_in_chunks(smiles, workers or os.cpu_count() or 1)))
    # Molecules that could not be read are in no part, and the others are numbered without gaps.
    place = np.full(len(smiles), -1)
    place[rows] = np.arange(len(rows))
    splits = _split_dict(Path(folder) / "split_dict.pt")
    index = {}
    for field, part in (("train_idx", "train"), ("valid_idx", "valid"), ("test_idx", "test-dev")):
        moved = place[splits[part]]
        index[field] = moved[moved >= 0]
    return replace(graphs, y=gap[rows], task_names=("homolumogap",), name="pcqm4mv2", **index)


def graph_set_from_zinc(parts: dict[str, Any]) -> GraphSet:
    """Join PyG's ``train``, ``val`` and ``test`` parts of ZINC, in this order."""
    graphs = graph_set_from_pyg([data for part in parts.values() for data in part], name="zinc")
    ends = np.cumsum([len(part) for part in parts.values()])
    train, valid, test = np.split(np.arange(ends[-1]), ends[:-1])
    return replace(graphs, train_idx=train, valid_idx=valid, test_idx=test)


def _zinc(root: Path) -> GraphSet:
    from torch_geometric.datasets import ZINC

    parts = {part: ZINC(str(root), subset=True, split=part) for part in ("train", "val", "test")}
    return graph_set_from_zinc(parts)


def _ogb(name: str, archive: str, root: Path) -> GraphSet:
    _unpack(f"{OGB_URL}/{archive}.zip", root)
    return graph_set_from_ogb(root / archive, name)


def _pcqm4mv2(root: Path) -> GraphSet:
    _unpack(PCQM4MV2_URL, root, PCQM4MV2_MD5)
    return graph_set_from_pcqm4mv2(root / "pcqm4m-v2")


#: The function that makes each set, given an empty folder for its raw files.
GRAPH_SOURCES: dict[str, Callable[[Path], GraphSet]] = {
    "zinc": _zinc,
    "molhiv": partial(_ogb, "molhiv", "hiv"),
    "molpcba": partial(_ogb, "molpcba", "pcba"),
    "pcqm4mv2": _pcqm4mv2,
}


def download_graphs(name: str) -> Path:
    """Fetch a set, convert it to ``NAME.npz`` in the user's cache, and return that path."""
    return converted(name, lambda raw, target: write_graph_set(target, GRAPH_SOURCES[name](raw)))


def _unpack(url: str, root: Path, md5: str | None = None) -> None:
    """Fetch a zip archive and unpack it into ``root``, if the disk has room for it."""
    path = root / "archive.zip"
    fetch(url, path, md5)
    with zipfile.ZipFile(path) as archive:
        need = sum(member.file_size for member in archive.infolist())
        free = shutil.disk_usage(root).free
        if need > free:
            raise DownloadError(f"it needs {gib(need)} of disk, and {gib(free)} are free")
        archive.extractall(root)
    path.unlink()


def _csv(path: Path, dtype: Any) -> np.ndarray:
    """Numbers of a gzipped CSV file without header, ``[rows, columns]``; empty cells are NaN."""
    try:
        with gzip.open(path) as file:
            text = file.read()
    except (OSError, EOFError) as error:
        raise GraphError(f"{path}: cannot be read: {error}") from None
    if np.issubdtype(dtype, np.floating):
        text = _with_nan(text)
    if not text.strip():
        return np.empty((0, 1), dtype=dtype)
    try:
        return np.loadtxt(io.BytesIO(text), delimiter=",", dtype=dtype, ndmin=2)
    except ValueError as error:
        raise GraphError(f"{path}: {str(error).partition(chr(10))[0]}") from None


def _with_nan(text: bytes) -> bytes:
    """Write ``nan`` into empty cells, by replacing in the whole text: there are millions."""
    text = b"\n" + text.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
    for empty, filled in ((b",,", b",nan,"), (b"\n,", b"\nnan,"), (b",\n", b",nan\n")):
        text = text.replace(empty, filled).replace(empty, filled)
    return text.replace(b"\n\n", b"\nnan\n").replace(b"\n\n", b"\nnan\n")


def _split_dict(path: Path) -> dict[str, np.ndarray]:
    """A dictionary of index arrays; nothing but arrays is loaded from the file."""
    rebuild: Any = np.empty(0).__reduce__()[0]  # the constructor that a pickled array names
    # NumPy 1 and 2 have it in different modules.
    addresses = [(rebuild, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    kinds = [type(np.dtype(kind)) for kind in (np.int64, np.int32)]
    try:
        with torch.serialization.safe_globals([*addresses, np.ndarray, np.dtype, *kinds]):
            content = torch.load(path, weights_only=True)
        return {str(part): np.asarray(index, dtype=np.int64) for part, index in content.items()}
    except Exception as error:  # torch raises a pickle error for anything else in the file
        raise GraphError(f"{path}: is not a dictionary of index arrays") from error


def _read_chunk(smiles: list[str], first: int) -> Molecules:
    return read_smiles(smiles, rows=range(first, first + len(smiles)))


def _read_in_chunks(smiles: list[str], workers: int) -> Iterator[Molecules]:
    """Molecules in chunks, read by several processes."""
    starts = range(0, len(smiles), _CHUNK)
    chunks = [smiles[first : first + _CHUNK] for first in starts]
    if min(workers, len(chunks)) < 2:
        yield from map(_read_chunk, chunks, starts)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork does not copy torch's threads
    with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=spawn) as pool:
        yield from pool.map(_read_chunk, chunks, starts)


def _joined(chunks: Sequence[Molecules]) -> tuple[GraphSet, np.ndarray]:
    """All molecules as one set, without their SMILES, and their rows in the source."""
    arrays: dict[str, Any] = {
        field: np.concatenate([getattr(chunk.graphs, field) for chunk in chunks])
        for field in ("num_nodes", "num_edges", "node_feat", "edge_feat")
    }
    ends = np.concatenate([chunk.graphs.edge_index for chunk in chunks], axis=1)
    rows = np.concatenate([chunk.rows for chunk in chunks]).astype(np.int64)
    return GraphSet(**arrays, edge_index=ends), rows
